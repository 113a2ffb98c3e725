"""A Redis Cluster of six processes: three primaries that share the slots, and a replica for each."""

import os
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from tests.nodes.ports import free_port
from tests.nodes.sessions import Reaper, Session
from tests.nodes.waiting import wait_until

_SLOTS = 16384
_PRIMARIES = 3
_BUS = 10_000  # the nodes talk among each other at the port that is so much higher
_FIRST_EPHEMERAL_PORT = 32_000


class Node:
    """One process of the cluster."""

    def __init__(self, program: str, directory: Path, reaper: Reaper) -> None:
        self.port = _port_with_bus()
        directory.mkdir()
        with (directory / "log").open("wb") as output:
            self._session = Session(
                [
                    *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory)),
                    *("--save", "", "--cluster-enabled", "yes", "--cluster-node-timeout", "1000"),
                    # Copies of a few keys need no long talks about who is the newest.
                    *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
                ],
                environment=os.environ,
                directory=directory,
                output=output,
                reaper=reaper,
            )
        # Without redis-py's own attempts, which take seconds where nobody listens.
        self.client = redis.Redis(
            port=self.port, decode_responses=True, protocol=2, retry=Retry(NoBackoff(), 0)
        )
        wait_until(self.answers)
        self.id = str(self.ask("MYID"))

    def ask(self, *command: object) -> Any:
        """Send it a command of CLUSTER."""
        execute: Any = self.client.execute_command
        return execute("CLUSTER", *command)

    def own_slots(self) -> set[int]:
        """The slots that it serves as a primary."""
        ranges = [
            range(first, last + 1)
            for first, last, (_, port, *_), *_ in self.ask("SLOTS")
            if port == self.port
        ]
        return set().union(*ranges)

    def kill(self) -> None:
        """SIGKILL."""
        self._session.kill()

    def close(self) -> None:
        self.client.close()
        self._session.kill()

    def answers(self) -> bool:
        """Whether PING is answered."""
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False


class Cluster:
    """The six nodes, ready."""

    def __init__(self, program: str, directory: Path, reaper: Reaper) -> None:
        self.nodes = [Node(program, directory / f"node{number}", reaper) for number in range(2 * _PRIMARIES)]
        primaries, replicas = self.nodes[:_PRIMARIES], self.nodes[_PRIMARIES:]
        for number, node in enumerate(primaries):
            first, last = (_SLOTS * n // _PRIMARIES for n in (number, number + 1))
            node.ask("ADDSLOTSRANGE", first, last - 1)
            node.ask("SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            node.ask("MEET", "127.0.0.1", self.nodes[0].port)
        wait_until(lambda: all(self._known_to(node) == len(self.nodes) for node in self.nodes), 20)
        for primary, replica in zip(primaries, replicas, strict=True):
            replica.ask("REPLICATE", primary.id)
        wait_until(self.is_complete, 30)
        self.client: Any = RedisCluster(
            host="127.0.0.1", port=primaries[0].port, decode_responses=True, protocol=2
        )

    @property
    def url(self) -> str:
        """For `lease_url`."""
        return f"redis+cluster://127.0.0.1:{self.nodes[1].port}"

    def slot_of(self, key: str) -> int:
        """The slot of a key."""
        return int(self.client.keyslot(key))

    def node_of(self, key: str) -> Node:
        """The primary that has the key's slot, by its own account: what others say may be of yesterday."""
        slot = self.slot_of(key)
        for node in self.nodes:
            if node.answers() and slot in node.own_slots():
                return node
        raise LookupError(f"nobody has slot {slot}")

    def is_served(self, key: str) -> bool:
        """Whether any living node has the key's slot."""
        return any(node.answers() and self.slot_of(key) in node.own_slots() for node in self.nodes)

    def is_complete(self) -> bool:
        """Whether every slot is served and every replica has its data."""
        return all("cluster_state:ok" in node.ask("INFO") for node in self.nodes) and all(
            _replication(node).get("master_link_status", "up") == "up" for node in self.nodes
        )

    def move(self, slot: int, source: Node, target: Node) -> None:
        """Move a slot with all its keys, as `redis-cli --cluster reshard` does."""
        target.ask("SETSLOT", slot, "IMPORTING", source.id)
        source.ask("SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.ask("GETKEYSINSLOT", slot, 100):
            source.client.migrate("127.0.0.1", target.port, keys, 0, 2000)
        for node in (target, source, *self.nodes[:_PRIMARIES]):
            node.ask("SETSLOT", slot, "NODE", target.id)

    def close(self) -> None:
        self.client.close()
        for node in self.nodes:
            node.close()

    def _known_to(self, node: Node) -> int:
        return sum("connected" in line for line in node.ask("NODES").splitlines() if "handshake" not in line)


def _replication(node: Node) -> dict[str, Any]:
    about: Any = node.client.info("replication")
    return dict(about)


def _port_with_bus() -> int:
    while True:
        port = free_port()
        if port + _BUS < _FIRST_EPHEMERAL_PORT:
            return port
