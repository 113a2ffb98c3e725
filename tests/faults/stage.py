"""The stage of a fault run: an installation whose every step is written down, to be judged at the end."""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from kombu.utils import uuid

from celery_lease import SKIPPED
from tests.nodes.waiting import wait_until
from tests.support.history import NO_TRIGGER_LOST, Event, Reader, Violation, judge
from tests.support.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from celery.result import AsyncResult

    from tests.support.servers import Server
    from tests.support.site import Site
    from tests.support.workers import Worker

#: Leases that are held, and lost, at once in one test: a few, or many in a soak.
LEASES = int(os.environ.get("FAULT_LEASES", "3"))

#: How soon after the death of its holder a job runs again, at the default lease: the grace and a little.
RUNS_AGAIN_SECONDS = 12.0

_BETWEEN_TRIGGERS_SECONDS = 0.2
#: Longer than a broker of these tests keeps a message from another worker.
_CLOSES_BOOKS_EVERY_SECONDS = 25.0


class Stage:
    """One installation of `tests.faults.jobs` under faults.

    Broker, result backend and what bodies write are on a calm server; only the leases are on `store`.

    Attributes:
        site: the installation.
        store: the server with the leases.
        lost_by_broker: triggers that no worker ever received, found while settling.
    """

    def __init__(self, site: Site, store: Server, directory: Path, *, lease_seconds: float) -> None:
        directory.mkdir()
        self.site = site
        self.store = store
        self.lost_by_broker: list[str] = []
        site.environment["FAULTS_DIRECTORY"] = str(directory)
        site.environment["PROBE_LEASE_SECONDS"] = str(lease_seconds)
        self._directory = directory
        self._recorder = Recorder(directory)
        self._reader = Reader(directory)
        self._workers: list[Worker] = []
        self._triggers: dict[str, tuple[str, AsyncResult[Any]]] = {}

    def start_worker(
        self, queue: str, *options: str, concurrency: int = LEASES, **environment: str
    ) -> Worker:
        """Start a worker for one queue, with room for all leases at once."""
        worker = self.site.start_worker(
            "-Q", queue, *options, concurrency=concurrency, app="tests.faults.jobs", **environment
        )
        self._workers.append(worker)
        return worker

    def send(
        self,
        name: str,
        seconds: float = 60,
        gate: str = "",
        *,
        queue: str,
        job: str = "works",
        **options: Any,
    ) -> AsyncResult[Any]:
        """Trigger a run under the lease `name`; its body goes on until the gate of that name is opened."""
        task_id = uuid()
        with self._recorder.around("sent", name, task_id=task_id):
            result = self.site.send(job, name, seconds, gate, task_id=task_id, queue=queue, **options)
        self._triggers[task_id] = (name, result)
        return result

    def entered(self, gate: str, seconds: int = 20) -> int:
        """Wait until a body behind the gate is entered; the pid that entered it."""
        return self.site.entered(gate, seconds)

    def open(self, gate: str) -> None:
        """Let every body behind the gate end, now and later."""
        (self._directory / f"{gate}.open").touch()

    def lose_data(self, action: Callable[[], object], name: str = "") -> None:
        """Do what makes the store lose its data, or one lease: an overlap across it is forgiven."""
        with self._recorder.around("data_lost", name):
            action()

    def history(self) -> list[Event]:
        """What has been written down so far."""
        return self._reader.events()

    def of(self, kind: str, **about: Any) -> list[Event]:
        """The events of one kind and of these properties, so far, in the order of time."""
        return sorted(
            (
                event
                for event in self.history()
                if event.kind == kind and all(getattr(event, key) == value for key, value in about.items())
            ),
            key=lambda event: event.at,
        )

    def happened_after(self, moment: float, kind: str, fence: int) -> bool:
        """Whether such an event has begun since the moment."""
        return any(event.at > moment for event in self.of(kind, fence=fence))

    def body_of(self, result: AsyncResult[Any]) -> Event:
        """When the body of a trigger was entered, and under which fence."""
        [event] = self.of("entered", task_id=result.id)
        return event

    def delay_of(self, trigger: AsyncResult[Any], dead: int) -> float:
        """How long a trigger waited for its body after the death of the run with the fence `dead`.

        Many deaths take their time, and nobody looks before the trigger does: the grace counts from there.
        """
        last_words = max(event.until for kind in ("sample", "wrote") for event in self.of(kind, fence=dead))
        [sent] = self.of("sent", task_id=trigger.id)
        return self.body_of(trigger).at - max(last_words, sent.at)

    def send_until_entered(
        self, name: str, work_seconds: float = 60, gate: str = "", *, queue: str, seconds: float
    ) -> AsyncResult[Any]:
        """Trigger the job again whenever it is skipped, as its schedule would, until it runs."""
        deadline = time.monotonic() + seconds

        def is_decided(result: AsyncResult[Any]) -> bool:
            return result.ready() or self.site.held(name).get("task_id") == result.id

        while True:
            result = self.send(name, work_seconds, gate, queue=queue)
            wait_until(partial(is_decided, result), deadline - time.monotonic())
            if not result.ready() or result.state != SKIPPED:
                return result
            time.sleep(_BETWEEN_TRIGGERS_SECONDS)

    def run_once_more(self, name: str, *, queue: str, seconds: float = RUNS_AGAIN_SECONDS) -> Event:
        """Trigger the job until it has run; when. That also closes what was abandoned."""
        result = self.send_until_entered(name, 0, queue=queue, seconds=seconds)
        result.get(timeout=20)
        return self.body_of(result)

    def settle(self, *, queue: str, seconds: float) -> None:
        """Wait until every trigger has had its end, and close the books of every job."""
        deadline = time.monotonic() + seconds
        close_at = time.monotonic() + _CLOSES_BOOKS_EVERY_SECONDS
        while (now := time.monotonic()) < deadline and (names := self._without_an_end()):
            time.sleep(1)
            self._forget_what_the_broker_lost(queue)
            if now > close_at:
                # A message that nobody redelivers was acknowledged; its run is written down by the next one.
                close_at = now + _CLOSES_BOOKS_EVERY_SECONDS
                for name in names:
                    self.run_once_more(name, queue=queue, seconds=deadline - now)
        for name in {name for name, _ in self._triggers.values()}:
            self.run_once_more(name, queue=queue, seconds=max(deadline - time.monotonic(), 10))

    def outcomes(self) -> Counter[str]:
        """How often each outcome is on record."""
        return Counter(event.said for event in self._records())

    def assert_promises_kept(self) -> None:
        """Judge everything that happened."""
        violations = self._judge()
        said = "\n".join(f"{each.promise}: {each.name}: {each.what}" for each in violations)
        assert not violations, f"{said}\nthe history is in {self._directory}"

    def _forget_what_the_broker_lost(self, queue: str) -> None:
        """A message that was on its way from the queue to a worker at the moment of a kill is no more.

        That is between the broker and Celery: no worker has received it.
        """
        side: Any = self.site.side
        there = "\n".join([*side.lrange(queue, 0, -1), *side.hvals("unacked")])
        received = "\n".join(worker.log() for worker in self._workers)
        for task_id in [*self._triggers]:
            if task_id not in there and task_id not in received:
                del self._triggers[task_id]
                self.lost_by_broker.append(task_id)

    def _without_an_end(self) -> set[str]:
        return {each.name for each in self._judge() if each.promise == NO_TRIGGER_LOST}

    def _judge(self) -> list[Violation]:
        events = [each for each in self.history() if each.task_id not in self.lost_by_broker]
        return judge([*events, *self._records(), *self._states()])

    def _records(self) -> list[Event]:
        names = {name for name, _ in self._triggers.values()}
        return [
            Event(
                "recorded",
                name,
                task_id=record.get("task_id", ""),
                fence=int(record.get("fence", 0)),
                said=record["outcome"],
                number=number,
            )
            for name in names
            for number, record in enumerate(self.site.records(name))
        ]

    def _states(self) -> list[Event]:
        return [
            Event("state", name, task_id=task_id, said=result.state if result.ready() else "")
            for task_id, (name, result) in self._triggers.items()
        ]
