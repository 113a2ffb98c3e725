"""A RabbitMQ of the test run's own."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.nodes.ports import free_port
from tests.nodes.recipes import rabbitmq
from tests.nodes.sessions import Reaper, Session
from tests.nodes.waiting import wait_until


@dataclass
class _Place:
    """What the recipe asks about a container."""

    directory: Path
    amqp_port: int
    id: str = "topologies"

    def port(self, published: str) -> int:
        return {"5672/tcp": self.amqp_port}[published]

    def place(self, inside: str) -> Path:
        return self.directory / inside.strip("/")


class Rabbit:
    """One broker on a free loopback port."""

    def __init__(self, directory: Path, reaper: Reaper) -> None:
        self.port = free_port()
        launch = rabbitmq(_Place(directory, self.port, f"{os.getpid():08}"), ["rabbitmq-server"])
        with (directory / "log").open("wb") as output:
            self._session = Session(
                launch.argv,
                environment={**os.environ, **launch.environment},
                directory=directory,
                output=output,
                reaper=reaper,
            )
        wait_until(self._answers, 60)

    @property
    def url(self) -> str:
        """For a broker or a result backend."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def close(self) -> None:
        self._session.kill()

    def _answers(self) -> bool:
        """Whether it greets whom it does not understand, as it does once it has started."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.sendall(b"AMQP\x00\x00\x00\x00")
                return probe.recv(4) == b"AMQP"
        except OSError:
            return False
