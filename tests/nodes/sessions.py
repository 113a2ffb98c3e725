"""Local processes that end together, as the processes of a container do.

A container is a PID namespace: when its first process ends, the kernel ends the others. The nearest
thing without an engine is a session: the first process leads it, its descendants stay in its process
group, and the group can be killed at once.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


class Reaper:
    """Kills the watched sessions when this process is gone, however it went."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("reaper.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(script)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the test run, which still has to say what is over
        )

    def watch(self, pid: int) -> None:
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        self._tell(f"-{pid}\n")

    def close(self) -> None:
        """Kill what is still watched, and end."""
        self._pipe.close()
        self._process.wait(10)

    @property
    def _pipe(self) -> IO[bytes]:
        if self._process.stdin is None:
            raise RuntimeError("the reaper was started without a pipe")
        return self._process.stdin

    def _tell(self, line: str) -> None:
        self._pipe.write(line.encode())
        self._pipe.flush()


class Session:
    """One command with all its descendants."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        output: IO[bytes],
        reaper: Reaper,
    ) -> None:
        self._process = subprocess.Popen(
            argv,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reaper = reaper
        self._over = False
        reaper.watch(self.pid)

    @property
    def pid(self) -> int:
        """Of the first process; also the number of its session and process group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the first process's exit code as a shell counts it, or None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        self._end_descendants()
        return code if code >= 0 else 128 - code

    def wait(self, timeout: float | None = None) -> int:
        """Like `exit_code`, after waiting. Raises `subprocess.TimeoutExpired`."""
        code = self._process.wait(timeout)
        self._end_descendants()
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Signal the first process only."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill every process and wait until the first one is gone."""
        if not self._over:
            self._kill_group()
            self.wait(10)

    def _end_descendants(self) -> None:
        # Once only: later the number may belong to somebody else's group.
        if not self._over:
            self._over = True
            self._kill_group()
            self._reaper.forget(self.pid)

    def _kill_group(self) -> None:
        # PermissionError: macOS, for a group in which only a zombie is left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
