"""The one `up` that may work on a data folder, and what it left behind if it was killed."""

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

LEFTOVER_GRACE_SECONDS = 5


@dataclass(frozen=True)
class Process:
    """A process as it can be recognised later: a pid alone may belong to someone else by then."""

    name: str
    pid: int
    started: str
    """As `ps` prints it; empty if `ps` could not tell."""
    shows: str

    @classmethod
    def look(cls, name: str, pid: int, shows: str) -> "Process":
        """The process that has this pid now."""
        return cls(name, pid, _started(pid), shows)

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs; in doubt, no."""
        return bool(self.started) and _started(self.pid) == self.started


class BusyError(Exception):
    """Another `up` holds the folder. `processes` is what it runs, itself first; empty if it just starts."""

    def __init__(self, processes: list[Process]) -> None:
        super().__init__("the data folder is in use")
        self.processes = processes


class Instance:
    """A claimed data folder."""

    def __init__(self, data: Path) -> None:
        self._state = data / "run.json"

    def record(self, processes: Iterable[Process]) -> None:
        """Write down what runs, for the next `up` to read."""
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps([asdict(process) for process in processes], indent=1), encoding="utf-8")
        fresh.replace(self._state)  # a reader sees the old list or the new one, never half of one

    def recorded(self) -> list[Process]:
        """What was written down last; empty if nothing was, or nothing readable."""
        try:
            return [Process(**entry) for entry in json.loads(self._state.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError):
            return []

    def end_leftovers(self) -> list[Process]:
        """End what an earlier `up` started and could not stop, and return it.

        On Linux the kernel has done so already. Elsewhere a SIGKILL of `up` leaves its services running.
        """
        left = [process for process in self.recorded()[1:] if process.alive]
        for process in reversed(left):  # the server last, as always
            _end(process)
        return left

    def forget(self) -> None:
        """Everything has been stopped."""
        self._state.unlink(missing_ok=True)


@contextmanager
def claim(data: Path) -> Iterator[Instance]:
    """Hold `data` for this process alone. The kernel gives it back when the process ends, whichever way.

    Raises:
        BusyError: another `up` holds it.
    """
    instance = Instance(data)
    with (data / "run.lock").open("a") as lock:
        if not _locked(lock):
            raise BusyError(instance.recorded())
        yield instance


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _started(pid: int) -> str:
    command = ["ps", "-o", "lstart=,stat=", "-p", str(pid)]
    try:
        answer = subprocess.run(  # noqa: S603 - fixed words and a number
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return ""  # a Linux without procps; there the kernel ends leftovers
    started, _, state = answer.stdout.strip().rpartition(" ")
    return "" if state.startswith("Z") else started.strip()  # a zombie has ended


def _end(process: Process) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):  # it ended meanwhile
            os.killpg(process.pid, signum)
        end = time.monotonic() + LEFTOVER_GRACE_SECONDS
        while process.alive and time.monotonic() < end:
            time.sleep(0.1)
