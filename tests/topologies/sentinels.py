"""Redis under Sentinel: a primary, a replica, and three sentinels that swap their parts if need be."""

import os
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from tests.nodes.ports import free_port
from tests.nodes.sessions import Reaper, Session
from tests.nodes.waiting import wait_until
from tests.support.servers import Server

NAME = "leases"

_QUORUM = 2
_WATCHERS = 3

_CONFIGURATION = f"""
port {{port}}
bind 127.0.0.1
dir {{directory}}
sentinel monitor {NAME} 127.0.0.1 {{primary}} {_QUORUM}
sentinel down-after-milliseconds {NAME} 500
sentinel failover-timeout {NAME} 5000
"""


class Sentinels:
    """All six servers, less one: two that hold data, three that watch."""

    def __init__(self, program: str, directory: Path, reaper: Reaper) -> None:
        at_once = ("--repl-diskless-sync-delay", "0")
        first = Server(program, directory / "first", reaper, *at_once)
        replica_of = ("--replicaof", "127.0.0.1", str(first.port))
        second = Server(program, directory / "second", reaper, *at_once, *replica_of)
        self._data = [first, second]
        self._watchers: list[Session] = []
        self._ports = [free_port() for _ in range(_WATCHERS)]
        for port in self._ports:
            self._watch(program, directory / str(port), port, first.port, reaper)
        wait_until(self.is_complete, 20)

    @property
    def url(self) -> str:
        """For `lease_url`; the first address is one at which nobody answers."""
        addresses = [free_port(), *self._ports]
        return ";".join(f"sentinel://127.0.0.1:{port}" for port in addresses)

    @property
    def primary(self) -> Server:
        """The server that the sentinels call primary now."""
        with self._sentinel(self._ports[0]) as sentinel:
            _, port = sentinel.sentinel_get_master_addr_by_name(NAME)
        return next(server for server in self._data if server.port == int(port))

    @property
    def replica(self) -> Server:
        """The other one of the two that hold data."""
        return next(server for server in self._data if server is not self.primary)

    @property
    def client(self) -> redis.Redis:
        """A client of whichever server is primary."""
        make: Any = Sentinel  # untyped
        sentinel = make([("127.0.0.1", port) for port in self._ports])
        client: redis.Redis = sentinel.master_for(NAME, decode_responses=True, protocol=2)
        return client

    def is_complete(self) -> bool:
        """Whether every watcher knows the replica and the other watchers, and the replica has the data."""
        return all(self._knows_all(port) for port in self._ports)

    def fail_over(self) -> None:
        """Order the replica to become primary; both servers live on."""
        before = self.primary
        with self._sentinel(self._ports[0]) as sentinel:
            sentinel.execute_command("SENTINEL FAILOVER", NAME)
        wait_until(lambda: self.primary is not before)

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.kill()
        for server in self._data:
            server.close()

    def _watch(self, program: str, directory: Path, port: int, primary: int, reaper: Reaper) -> None:
        directory.mkdir()
        file = directory / "sentinel.conf"  # which the sentinel rewrites
        file.write_text(_CONFIGURATION.format(port=port, directory=directory, primary=primary))
        with (directory / "log").open("wb") as output:
            self._watchers.append(
                Session(
                    [program, str(file), "--sentinel"],
                    environment=os.environ,
                    directory=directory,
                    output=output,
                    reaper=reaper,
                )
            )

    def _knows_all(self, port: int) -> bool:
        try:
            with self._sentinel(port) as sentinel:
                about: dict[str, Any] = sentinel.sentinel_master(NAME)
                replicas: list[Any] = sentinel.sentinel_slaves(NAME)
        except redis.RedisError:
            return False
        return (
            about["num-other-sentinels"] == _WATCHERS - 1
            and [replica["master-link-status"] for replica in replicas] == ["ok"]
            and not about["is_odown"]
        )

    def _sentinel(self, port: int) -> redis.Redis:
        # Without redis-py's own attempts, which take seconds where nobody listens yet.
        return redis.Redis(port=port, decode_responses=True, protocol=2, retry=Retry(NoBackoff(), 0))
