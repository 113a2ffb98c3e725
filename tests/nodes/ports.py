"""Ports for local processes."""

import random
import socket
from collections.abc import Iterator

# Below every system's ephemeral range (Linux starts at 32768, macOS at 49152). A port out of that
# range can be taken by any outgoing connection while its server restarts, even by a client that
# connects to itself while it waits for that very server.
_FIRST, _LAST = 15_000, 32_000

# Not the shared generator: seeding plugins make that one repeat itself in every xdist worker.
_random = random.SystemRandom()
_handed_out: set[int] = set()


def free_port() -> int:
    """Return a port that nothing listens on and that this process did not hand out before."""
    port = next(port for port in _candidates() if _can_bind(port))
    _handed_out.add(port)
    return port


def is_listening(port: int) -> bool:
    """Tell whether a connection to the local port is accepted."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _candidates() -> Iterator[int]:
    while True:
        port = _random.randrange(_FIRST, _LAST)
        if port not in _handed_out:
            yield port


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
