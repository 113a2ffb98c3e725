"""One program that `up` runs: how it is started, watched and stopped.

Each runs in a session of its own, so that the terminal's Ctrl-C reaches only `up`, which then stops them in
order. Its output goes straight to a file: nothing is lost and nothing blocks, whatever happens to `up`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

LEASH = Path(__file__).with_name("leash.py")
POLL_SECONDS = 0.1
QUIT_SECONDS = 2


@dataclass(frozen=True, kw_only=True)
class Service:
    """What to run. Times are in seconds."""

    name: str
    command: list[str]
    shows: str = ""
    """Where it is or what it does, in the words of the screen."""
    env: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: float = 5
    """How long it may take to end after SIGTERM."""
    quit_signal: signal.Signals = signal.SIGTERM
    """Sent when the grace is over or the user is in a hurry, before SIGKILL."""
    orphan_signal: signal.Signals = signal.SIGKILL
    """Sent by the kernel when `up` itself is gone (Linux)."""


class Running:
    """A started service: `pid` is its main process, `log` the file with what it writes.

    With `answer`, what it writes to standard output goes to that file instead and the log has only the rest.

    Raises:
        OSError: the process could not be started.
    """

    def __init__(
        self, service: Service, env: Mapping[str, str], *, log: Path, answer: Path | None = None
    ) -> None:
        self.service = service
        self.log = log
        leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), str(int(service.orphan_signal))]
        with ExitStack() as files:
            rest = files.enter_context(log.open("wb"))
            self._process = subprocess.Popen(  # noqa: S603 - our own list of commands, no shell
                [*leash, *service.command],
                env={**env, **service.env},
                stdin=subprocess.DEVNULL,
                stdout=files.enter_context(answer.open("wb")) if answer else rest,
                stderr=rest,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; else its code as a shell gives it, 128 + N if signal N ended it."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def stop(self, *, hurry: Callable[[], bool]) -> None:
        """End it, politely at first: SIGTERM to the main process only, and its grace.

        The main process alone, because Celery's worker then finishes the tasks its children are running; a
        signal to the group would end those. Whatever is left afterwards, or as soon as `hurry()` says so, is
        killed. Afterwards nothing of the session runs on.
        """
        self._process.terminate()
        if not self._gone_within(self.service.grace_seconds, hurry):
            self._process.send_signal(self.service.quit_signal)
            self._gone_within(QUIT_SECONDS, lambda: False)
        self._kill_session()
        self._process.wait()

    def _gone_within(self, seconds: float, hurry: Callable[[], bool]) -> bool:
        end = time.monotonic() + seconds
        while self._process.poll() is None:
            if time.monotonic() > end or hurry():
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _kill_session(self) -> None:
        # It leads its session, so its group has the same number. Nothing may be left of it; macOS then says
        # PermissionError if there is still a zombie.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
