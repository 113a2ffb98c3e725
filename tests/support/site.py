"""The probe app installed on given servers: trigger its jobs, and see from outside what became of them."""

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import redis
from celery import Celery
from celery.result import AsyncResult
from kombu import Consumer

from celery_lease._keys import Keys
from tests.nodes.waiting import wait_until
from tests.support.workers import Worker

#: What a worker of a test does without: it starts in half a second instead of one and a half.
ALONE = ("--without-mingle", "--without-gossip")


class Site:
    """One installation.

    Attributes:
        app: a client's app: it knows the jobs by name only, as another service would.
        leases: a client of the lease store, for looking.
        side: a client of the store in which the jobs write what they do, and where barriers are.
        environment: what a process of the probe needs to belong to this installation.
    """

    def __init__(
        self,
        start_worker: Callable[..., Worker],
        broker: str,
        *,
        backend: str | None = None,
        leases: str | None = None,
        side: str | None = None,
        looking: redis.Redis | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Name the servers; what is not named is on the broker.

        Args:
            start_worker: the fixture.
            broker: for the messages.
            backend: for the results.
            leases: for the leases.
            side: for what the jobs write, and for barriers.
            looking: a client of the lease store, where its address is not one of a single server.
            conf: more of Celery's settings for the workers.
        """
        self._start_worker = start_worker
        self._prefix = (conf or {}).get("lease_key_prefix", "cron:")
        self.app = Celery("client", broker=broker, backend=backend or broker, set_as_current=False)
        self.app.conf.update(
            broker_connection_timeout=2,
            redis_socket_timeout=2.0,
            redis_socket_connect_timeout=2.0,
            result_backend_transport_options={"retry_policy": {"timeout": 2.0}},
        )
        self._poster = Celery("poster", broker=broker, set_as_current=False)
        self.environment = {
            "PROBE_URL": broker,
            "PROBE_BACKEND": backend or broker,
            "PROBE_LEASE_URL": leases or broker,
            "PROBE_SIDE_URL": side or broker,
            "PROBE_CONF": json.dumps(conf or {}),
        }
        self.leases = looking or _client(leases or broker)
        self.side = _client(side or broker)

    def start_worker(self, *options: str, concurrency: int = 2, **environment: str) -> Worker:
        """Start a worker, ready to take tasks."""
        return self._start_worker(
            *ALONE, *options, concurrency=concurrency, **{**self.environment, **environment}
        )

    def send(self, job: str, *args: Any, **options: Any) -> AsyncResult[Any]:
        """Trigger a job, with Celery's options for the message."""
        return self.app.send_task(job, args, **options)

    def post(self, job: str, *args: Any, **options: Any) -> str:
        """Trigger a job without touching the result backend; the message's id."""
        return str(self._poster.send_task(job, args, **options).id)

    def signature(self, job: str, *args: Any, **options: Any) -> Any:
        """An immutable signature, for canvas."""
        return self.app.signature(job, args=args, immutable=True, **options)

    def occupy(self, key: str = "gate") -> AsyncResult[Any]:
        """Trigger `barrier` and wait until its body is entered."""
        first = self.send("barrier", key)
        self.entered(key)
        return first

    def entered(self, key: str = "gate", seconds: int = 20) -> int:
        """Wait until the body of a `barrier` is entered; the pid that entered it."""
        entered = self.side.blpop([f"{key}:entered"], timeout=seconds)
        assert entered, f"nobody entered {key} within {seconds} s"
        return int(entered[1])

    def run_as_soon_as_possible(
        self, job: str, *args: Any, seconds: float, **options: Any
    ) -> AsyncResult[Any]:
        """Trigger a job again whenever it was skipped, as a schedule does, until a trigger has the lease."""
        deadline = time.monotonic() + seconds

        def is_decided(result: AsyncResult[Any]) -> bool:
            return result.ready() or self.held(job).get("task_id") == result.id

        while time.monotonic() < deadline:
            result = self.send(job, *args, **options)
            wait_until(functools.partial(is_decided, result), seconds)
            if not result.ready():
                return result
        raise TimeoutError(f"{job} could not run within {seconds} s")

    def open(self, key: str = "gate") -> None:
        """Let the body at the barrier go on."""
        self.side.lpush(key, "opened")

    def key(self, name: str) -> str:
        """The lease's key in Redis."""
        return Keys(self._prefix, name).lease

    def held(self, name: str) -> dict[str, str]:
        """The lease as it is in Redis now; empty when it is free."""
        return self.leases.hgetall(self.key(name))  # type: ignore[return-value]

    def is_holder_connected(self, name: str) -> bool:
        """Whether the store sees the live connection of the process that has the lease."""
        answer: Any = self.leases.pubsub_shardnumsub(self.held(name).get("alive", ""))
        return bool(answer[0][1])

    def ledger(self, name: str) -> dict[str, str]:
        """The job's counters."""
        return self.leases.hgetall(f"{self.key(name)}:ledger")  # type: ignore[return-value]

    def total(self, name: str, outcome: str) -> int:
        """How many runs of the job ended like this."""
        return int(self.ledger(name).get(f"total:{outcome}", 0))

    def outcomes(self, name: str) -> list[str]:
        """Of the job's run records, oldest first."""
        return [record["outcome"] for record in self.records(name)]

    def records(self, name: str) -> list[dict[str, str]]:
        """The job's run records, oldest first."""
        entries: Any = self.leases.xrange(f"{self.key(name)}:runs")
        return [fields for _, fields in entries]

    def bodies(self) -> list[dict[str, str]]:
        """What the bodies of `sleep` noted, in the order in which it happened."""
        entries: Any = self.side.xrange("bodies")
        return [fields for _, fields in entries]

    def errbacks(self) -> list[dict[str, str]]:
        """What the errbacks noted."""
        entries: Any = self.side.xrange("errbacks")
        return [fields for _, fields in entries]

    @contextlib.contextmanager
    def states(self) -> Iterator[Callable[[], list[tuple[str, str]]]]:
        """Hear every state that is written to a Redis result backend while this is open.

        Yields a function that returns (task id, state) in the order of writing, so far.
        """
        heard: list[tuple[str, str]] = []
        with _client(self.environment["PROBE_BACKEND"]) as client, client.pubsub() as channel:
            channel.psubscribe("celery-task-meta-*")
            wait_until(lambda: (channel.get_message(timeout=1) or {}).get("type") == "psubscribe")

            def so_far() -> list[tuple[str, str]]:
                while message := channel.get_message(timeout=0.1):
                    meta = json.loads(message["data"])
                    heard.append((meta["task_id"], meta["status"]))
                return heard

            yield so_far

    @contextlib.contextmanager
    def events(self, kind: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
        """Hear every event of that kind while this is open; yields a function that returns them, so far."""
        heard: list[dict[str, Any]] = []
        with self.app.connection_for_read() as connection, connection.channel() as channel:
            receiver = self.app.events.Receiver(channel, handlers={kind: heard.append})
            [consumer] = receiver.get_consumers(functools.partial(Consumer, channel), channel)

            def so_far() -> list[dict[str, Any]]:
                with contextlib.suppress(TimeoutError):
                    while True:
                        connection.drain_events(timeout=0.1)
                return heard

            with consumer:
                yield so_far

    def close(self) -> None:
        """Close every connection of this process."""
        backend: Any = self.app.backend
        consumer = getattr(backend, "result_consumer", None)
        if consumer is not None:
            if hasattr(consumer, "subscribed_to"):
                consumer.subscribed_to.clear()  # else every forgotten result reconnects to say so
            with contextlib.suppress(AttributeError):  # rpc://'s, when it was never started
                consumer.stop()
        self.app.close()
        self._poster.close()
        self.leases.close()
        self.side.close()


def ends(*results: AsyncResult[Any], seconds: float = 20) -> list[str]:
    """Wait until every result is ready; their states."""
    wait_until(lambda: all(result.ready() for result in results), seconds)
    return [result.state for result in results]


def seconds_of(action: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.monotonic()
    action()
    return time.monotonic() - began


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True, protocol=2, socket_timeout=None)
