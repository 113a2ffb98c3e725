"""Real Redis-protocol servers as local processes, with the faults that tests do to them."""

import os
import signal
import subprocess
from pathlib import Path

import redis

from tests.nodes.ports import free_port
from tests.nodes.sessions import Reaper, Session
from tests.nodes.waiting import wait_until


class Server:
    """One server on a free loopback port. The port stays the same over restarts."""

    def __init__(
        self, program: str, directory: Path, reaper: Reaper, *options: str, persistent: bool = False
    ) -> None:
        self.port = free_port()
        self.directory = directory
        self._program = program
        self._reaper = reaper
        self._options = [*options, "--appendonly", "yes" if persistent else "no"]
        self._session: Session | None = None
        self.start()

    @property
    def url(self) -> str:
        """The address of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Of the server's process."""
        assert self._session is not None
        return self._session.pid

    def client(self) -> redis.Redis:
        """A client for looking from outside, decoding answers."""
        return redis.Redis.from_url(self.url, decode_responses=True, protocol=2)

    def start(self) -> None:
        """Start and wait until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "server.log").open("ab") as output:
            self._session = Session(
                [
                    *(self._program, "--port", str(self.port), "--bind", "127.0.0.1"),
                    *("--dir", str(self.directory), "--save", ""),
                    *self._options,
                ],
                environment=os.environ,
                directory=self.directory,
                output=output,
                reaper=self._reaper,
            )
        wait_until(self.answers)

    def answers(self) -> bool:
        """Whether PING is answered."""
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self._session is not None:
            self._session.send(signal.SIGTERM)
            try:
                self._session.wait(10)
            except subprocess.TimeoutExpired:
                self._session.kill()
            self._session = None

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: everything that was sent meanwhile is carried out."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._session is not None:
            self._session.kill()
            self._session = None
