"""A network namespace: the nearest thing to another machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from tests.nodes.missing import missing

if TYPE_CHECKING:
    from collections.abc import Iterator


class Namespace(NamedTuple):
    """One other machine, with a wire to this one.

    Attributes:
        name: of the namespace, and of this end of the wire.
        here: this machine's address on the wire.
    """

    name: str
    here: str

    @property
    def prefix(self) -> list[str]:
        """What a command starts with to run there."""
        return ["ip", "netns", "exec", self.name]

    def cut(self) -> None:
        """Take the wire away: nothing there can say another word."""
        _ip("link", "set", self.name, "down")


@contextlib.contextmanager
def other_machine() -> Iterator[Namespace]:
    """Another machine; skip where this process may not make one."""
    if os.geteuid() or not shutil.which("ip"):
        missing("a network namespace needs root and the command ip")
    name = f"lease{secrets.token_hex(4)}"
    # Carrier-grade NAT's own network: nobody's at home, and nothing on the Internet's.
    subnet = f"100.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        missing(f"no network namespace can be made here ({error.stderr.strip()})")
    try:
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("addr", "add", f"{subnet}.1/30", "dev", name)
        _ip("link", "set", name, "up")
        _ip("-n", name, "addr", "add", f"{subnet}.2/30", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield Namespace(name, f"{subnet}.1")
    finally:
        _ip("netns", "del", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
