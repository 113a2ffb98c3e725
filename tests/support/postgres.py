"""A PostgreSQL server of the tests' own: a cluster in a temporary folder, gone at the end."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from tests.nodes.missing import missing
from tests.nodes.ports import free_port
from tests.nodes.sessions import Reaper, Session
from tests.nodes.waiting import wait_until

# Nothing here has to survive a power cut.
_OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")


class Postgres:
    """One server; every caller gets a database of its own in it."""

    def __init__(self, reaper: Reaper) -> None:
        programs = _programs()
        self.port = free_port()
        # Not below pytest's folders: the server must not run as root, and those are closed to others.
        self._directory = Path(tempfile.mkdtemp(prefix="postgres"))
        self._numbers = count(1)
        data = self._directory / "data"
        _give_away(self._directory)
        subprocess.run(
            [
                *_as_somebody_else(),
                *(str(programs / "initdb"), "--pgdata", str(data), "--auth=trust", "--username=tests"),
                *("--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd=self._directory,
        )
        with (self._directory / "server.log").open("ab") as output:
            self._session = Session(
                [
                    *_as_somebody_else(),
                    *(str(programs / "postgres"), "-D", str(data), "-p", str(self.port), "-h", "127.0.0.1"),
                    *("-k", ""),
                    *(word for option in _OPTIONS for word in ("-c", option)),
                ],
                environment=os.environ,
                directory=self._directory,
                output=output,
                reaper=reaper,
            )
        wait_until(self._answers, 30)

    def database(self) -> str:
        """Make an empty database and return its address."""
        name = f"tests{next(self._numbers)}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._address(name)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let nobody in meanwhile, and nobody know."""
        self._session.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self._session.send(signal.SIGCONT)

    def close(self) -> None:
        """End it, and remove its files."""
        self._session.send(signal.SIGINT)
        try:
            self._session.wait(10)
        except subprocess.TimeoutExpired:
            self._session.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _address(self, name: str) -> str:
        return f"postgresql://tests@127.0.0.1:{self.port}/{name}"

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._address("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def _programs() -> Path:
    """Where the server's programs are; Debian keeps them off PATH."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return installed[-1] if installed else missing("no PostgreSQL server is installed")


def _somebody_else() -> str:
    names = {user.pw_name for user in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def _as_somebody_else() -> list[str]:
    """The server refuses to run as root."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(_somebody_else())
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _give_away(directory: Path) -> None:
    if os.geteuid() == 0:
        user = pwd.getpwnam(_somebody_else())
        os.chown(directory, user.pw_uid, user.pw_gid)
