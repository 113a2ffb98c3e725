"""Random faults on a stage, all out of one seed."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil
import redis

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.stage import Stage
    from tests.support.proxy import Proxy
    from tests.support.workers import Worker

FAULTS_PER_SECOND = 1.5
TRIGGERS_PER_SECOND = 3.0


class Place(NamedTuple):
    """A worker and its way to the store."""

    proxy: Proxy
    workers: list[Worker]

    @property
    def worker(self) -> Worker:
        """The one that is there now."""
        return self.workers[-1]


class Mischief:
    """Does harm for a while, several faults at a time, and puts everything right in the end.

    Attributes:
        done: what was done, and how often.
    """

    def __init__(self, stage: Stage, seed: int, proxies: list[Proxy], names: list[str]) -> None:
        self.done: dict[str, int] = {}
        self._stage = stage
        self._names = names
        self._random = random.Random(seed)
        self._places = [Place(proxy, []) for proxy in proxies]
        self._starting: list[threading.Thread] = []
        self._undo: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        for place in self._places:
            self._start_worker(place)

    def go_on(self, seconds: float) -> None:
        """Trigger jobs and do harm at random moments; then heal."""
        end = time.monotonic() + seconds
        trigger_at = fault_at = time.monotonic()
        while (now := time.monotonic()) < end:
            if now >= trigger_at:
                self._trigger(self._random.choice(self._names))
                trigger_at = now + self._random.expovariate(TRIGGERS_PER_SECOND)
            if now >= fault_at:
                [fault] = self._random.choices(list(FAULTS), list(FAULTS.values()))
                self._do(fault)
                fault_at = now + self._random.expovariate(FAULTS_PER_SECOND)
            self._undo_what_is_over(now)
            time.sleep(0.01)
        self._undo_what_is_over(float("inf"))
        for start in self._starting:
            start.join()

    def _trigger(self, name: str) -> None:
        self._stage.send(name, self._random.uniform(0, 8), queue="work")

    def _do(self, fault: Callable[[Mischief], Callable[[], object] | None]) -> None:
        undo = fault(self)
        self.done[fault.__name__] = self.done.get(fault.__name__, 0) + 1
        if undo is not None:
            until = time.monotonic() + self._random.uniform(0.5, 8)
            heapq.heappush(self._undo, (until, next(self._numbers), undo))

    def _undo_what_is_over(self, now: float) -> None:
        while self._undo and self._undo[0][0] <= now:
            _, _, undo = heapq.heappop(self._undo)
            undo()

    def _start_worker(self, place: Place) -> None:
        place.workers.append(self._stage.start_worker("work", concurrency=4, PROBE_LEASE_URL=place.proxy.url))

    def _place(self) -> Place:
        return self._random.choice(self._places)

    def _child(self) -> int | None:
        children = _children(self._place().worker)
        return self._random.choice(children) if children else None

    def kill_child(self) -> None:
        """SIGKILL to one pool process, in whatever state it is."""
        _signal(self._child(), signal.SIGKILL)

    def kill_worker(self) -> None:
        """SIGKILL to a worker with all its processes; another one starts in its place."""
        place = self._place()
        place.worker.kill_tree()
        start = threading.Thread(target=self._start_worker, args=(place,))
        start.start()  # the harm goes on meanwhile
        self._starting.append(start)

    def stop_child(self) -> Callable[[], object]:
        """SIGSTOP to one pool process."""
        child = self._child()
        _signal(child, signal.SIGSTOP)
        return lambda: _signal(child, signal.SIGCONT)

    def cut(self) -> Callable[[], object]:
        """Close a worker's connections to the store, and new ones at once."""
        place = self._place()
        place.proxy.cut()
        return place.proxy.heal

    def isolate_a_holder(self) -> Callable[[], object] | None:
        """Part a job's very holder from the store, and let others want to run the job."""
        name = self._random.choice(self._names)
        with contextlib.suppress(redis.RedisError), self._client() as client:
            pid = client.hget(self._stage.site.key(name), "pid")
            for place in self._places:
                if pid and int(pid) in _children(place.worker):
                    place.proxy.cut()
                    for _ in range(3):
                        self._trigger(name)
                    return place.proxy.heal
        return None

    def drop_connections(self) -> None:
        """Close a worker's connections to the store, once."""
        self._place().proxy.drop_connections()

    def black_hole(self) -> Callable[[], object]:
        """Swallow what a worker and the store say to each other."""
        place = self._place()
        place.proxy.black_hole()
        return place.proxy.heal

    def drop_answers(self) -> Callable[[], object]:
        """Swallow what the store says to a worker."""
        place = self._place()
        place.proxy.drop_answers()
        return place.proxy.heal

    def delay(self) -> Callable[[], object]:
        """Put distance between a worker and the store."""
        place = self._place()
        place.proxy.delay(self._random.uniform(0.01, 0.4))
        return place.proxy.heal

    def flush_scripts(self) -> None:
        """Let the store forget all scripts."""
        self._ask_store("SCRIPT", "FLUSH")

    def kill_subscribers(self) -> None:
        """Let the store close every subscribing connection."""
        self._ask_store("CLIENT", "KILL", "TYPE", "pubsub")

    def kill_clients(self) -> None:
        """Let the store close every other connection."""
        self._ask_store("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def pause_store(self) -> None:
        """Let the store answer nobody for a moment."""
        self._ask_store("CLIENT", "PAUSE", str(self._random.randrange(50, 2000)))

    def freeze_store(self) -> Callable[[], object]:
        """SIGSTOP to the store."""
        self._stage.store.freeze()
        return self._stage.store.thaw

    def crash_store(self) -> None:
        """SIGKILL to the store, which writes everything down before it answers."""
        self._stage.store.close()
        self._stage.store.start()

    def _ask_store(self, *command: str) -> None:
        # A store that cannot be asked now has another fault, which is as good.
        with contextlib.suppress(redis.RedisError), self._client() as client:
            client.execute_command(*command)

    def _client(self) -> redis.Redis:
        return redis.Redis.from_url(
            self._stage.store.url, decode_responses=True, protocol=2, socket_timeout=1, retry=None
        )


def _children(worker: Worker) -> list[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return worker.children()
    return []


def _signal(pid: int | None, number: int) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            os.kill(pid, number)


#: How often each is chosen, compared with the others: most of all what parts a living holder from the store.
FAULTS: dict[Callable[[Mischief], Callable[[], object] | None], int] = {
    Mischief.isolate_a_holder: 8,
    Mischief.cut: 3,
    Mischief.black_hole: 4,
    Mischief.drop_answers: 3,
    Mischief.delay: 3,
    Mischief.stop_child: 3,
    Mischief.kill_child: 3,
    Mischief.kill_worker: 1,
    Mischief.drop_connections: 1,
    Mischief.flush_scripts: 1,
    Mischief.kill_subscribers: 1,
    Mischief.kill_clients: 1,
    Mischief.pause_store: 1,
    Mischief.freeze_store: 1,
    Mischief.crash_store: 1,
}
