"""A PostgreSQL of the test run's own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.nodes.missing import missing
from tests.nodes.ports import free_port
from tests.nodes.sessions import Reaper, Session
from tests.nodes.waiting import wait_until


def programs() -> Path:
    """Where the newest PostgreSQL's programs are. Debian keeps them off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    if not found and on_path:
        found = [Path(on_path).resolve().parent]
    return found[-1] if found else missing("no PostgreSQL")


class Postgres:
    """One server on a free loopback port."""

    def __init__(self, reaper: Reaper) -> None:
        self.port = free_port()
        self._programs = programs()
        # Not pytest's own directory, into which the server's user may not look.
        self._directory = Path(tempfile.mkdtemp(prefix="postgres"))
        # It refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self._directory, self._user)
        self._run(
            "initdb",
            "-D",
            "data",
            "-U",
            "tests",
            "--auth",
            "trust",
            "--no-sync",
            "--locale",
            "C",
            "-E",
            "UTF8",
        )
        with (self._directory / "log").open("wb") as output:
            self._session = Session(
                self._as_user(
                    *("postgres", "-D", "data", "-p", str(self.port), "-c", "listen_addresses=127.0.0.1"),
                    *("-c", f"unix_socket_directories={self._directory}", "-c", "fsync=off"),
                ),
                environment={**os.environ, "LC_ALL": "C"},
                directory=self._directory,
                output=output,
                reaper=reaper,
            )
        wait_until(self._answers, 30)

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://tests@127.0.0.1:{self.port}/postgres"

    def close(self) -> None:
        # Its children have sessions of their own: they end with it, or with the loss of it.
        self._session.send(signal.SIGQUIT)
        try:
            self._session.wait(10)
        except subprocess.TimeoutExpired:
            self._session.kill()
        shutil.rmtree(self._directory)

    def _answers(self) -> bool:
        command = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def _run(self, *command: str) -> None:
        subprocess.run(self._as_user(*command), cwd=self._directory, check=True, capture_output=True)

    def _as_user(self, program: str, *arguments: str) -> list[str]:
        command = [str(self._programs / program), *arguments]
        if self._user is None:
            return command
        user = pwd.getpwnam(self._user)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]
