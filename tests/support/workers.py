"""Real Celery processes: workers and whatever else a test starts from the command line."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.nodes.sessions import Reaper, Session
from tests.nodes.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """One command in its own session, its output in a file."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], log: Path, reaper: Reaper
    ) -> None:
        self.log_file = log
        with log.open("ab") as output:
            self._session = Session(
                argv,
                environment={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
                directory=log.parent,
                output=output,
                reaper=reaper,
            )

    @property
    def pid(self) -> int:
        """Of the first process."""
        return self._session.pid

    def log(self) -> str:
        """Everything printed so far."""
        return self.log_file.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = 20, count: int = 1) -> None:
        """Wait until `count` matches of the regular expression have been printed."""

        def printed() -> bool:
            assert self.is_alive() or self.count(pattern) >= count, f"ended early:\n{self.log()}"
            return self.count(pattern) >= count

        wait_until(printed, seconds)

    def count(self, pattern: str) -> int:
        """How often the regular expression matches what was printed so far."""
        return len(re.findall(pattern, self.log()))

    def is_alive(self) -> bool:
        """Whether the first process runs."""
        return self._session.exit_code() is None

    def signal(self, number: int) -> None:
        """Signal the first process only."""
        self._session.send(number)

    def kill_tree(self) -> None:
        """SIGKILL everything at once, as a power cut for this process would."""
        self._session.kill()

    def stop(self, seconds: float = 20) -> int:
        """SIGTERM and wait; the exit code as a shell counts it."""
        if self.is_alive():
            self._session.send(signal.SIGTERM)
        try:
            return self._session.wait(seconds)
        except subprocess.TimeoutExpired:
            self._session.kill()
            raise

    def children(self) -> list[int]:
        """The pids of its living children, such as the pool's."""
        return [child.pid for child in psutil.Process(self.pid).children() if child.status() != "zombie"]


class Worker(Process):
    """`celery worker` for an app module, ready to take tasks."""

    def __init__(
        self,
        app: str,
        environment: Mapping[str, str],
        log: Path,
        reaper: Reaper,
        *options: str,
        name: str = "worker",
        concurrency: int = 2,
    ) -> None:
        argv = [sys.executable, "-m", "celery", "-A", app, "worker", "-l", "INFO", "-n", f"{name}@%h"]
        super().__init__([*argv, "-c", str(concurrency), *options], environment, log, reaper)
        self.wait_for(r"ready\.", 30)
