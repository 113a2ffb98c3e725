"""Beats: in this process with a clock that tests set, and as real processes."""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from celery_lease import LeasedTask, _run, _store
from celery_lease._renewer import Renewer
from celery_lease.beat import LeasedScheduler
from tests.support.leases import make_app
from tests.support.site import Site
from tests.support.workers import Process

#: On the minute, so that slots are easy to read.
START = datetime(2026, 9, 14, 12, 0, 30, tzinfo=UTC)


class Beat:
    """One beat in this process, with a schedule and a clock of the test's choice.

    Attributes:
        app: what it sends for. The tasks `job` (leased) and `plain` are registered.
        now: the time that it believes in.
    """

    def __init__(self, url: str, schedule: dict[str, Any], now: datetime, **settings: Any) -> None:
        self.now = now
        self.app = make_app(url, beat_schedule=schedule, **settings)
        self.app.now = lambda: self.now.astimezone(self.app.timezone)  # type: ignore[method-assign]
        self.app.task(name="job", base=LeasedTask, shared=False)(_nothing)
        self.app.task(name="plain", shared=False)(_nothing)
        self.scheduler = LeasedScheduler(self.app)
        broker = self.app.conf.broker_url
        self._client = redis.Redis.from_url(broker, decode_responses=True, protocol=2)

    def tick(self, later: timedelta | None = None) -> list[str]:
        """Let time pass, and the beat do what it does then; the slots of what it sent, as HH:MM:SS."""
        before = len(self.messages())
        self.now += later or timedelta(0)
        self.scheduler.tick()
        return [slot_of(message) for message in self.messages()[before:]]

    def messages(self) -> list[dict[str, Any]]:
        """What lies in the queue, in the order of sending."""
        raw: Any = self._client.lrange("celery", 0, -1)
        return [json.loads(message) for message in reversed(raw)]

    def headers(self) -> list[dict[str, Any]]:
        """Of those messages."""
        return [message["headers"] for message in self.messages()]

    def die(self) -> None:
        """End without a word, as far as the store can tell; the lease is free at once."""
        self._client.delete("cron:{beat}")

    def close(self) -> None:
        """Close every connection."""
        self.scheduler.close()
        self.app.close()
        self._client.close()


def _nothing(*args: Any) -> None:
    """Do nothing; no worker is needed to see what a beat sends."""


def slot_of(message: dict[str, Any]) -> str:
    return datetime.fromtimestamp(message["headers"]["lease_slot"], UTC).strftime("%H:%M:%S")


@pytest.fixture(autouse=True)
def renewer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Renewer]:
    """A renewer of this test's own: what another test left unsettled is not its business."""
    own = Renewer()
    monkeypatch.setattr(_run, "renewer", own)
    yield own
    for store in _store._stores.values():
        store.close()
    _store._stores.clear()


@pytest.fixture
def make_beat(redis_url: str) -> Iterator[Callable[..., Beat]]:
    """Make beats in this process, on an empty shared server unless a URL is given."""
    beats: list[Beat] = []

    def make(
        schedule: dict[str, Any], *, url: str = redis_url, now: datetime = START, **settings: Any
    ) -> Beat:
        beats.append(Beat(url, schedule, now, **settings))
        return beats[-1]

    yield make
    for beat in beats:
        beat.close()


@pytest.fixture
def start_beat(start_process: Callable[..., Process], site: Site) -> Callable[..., Process]:
    """Start beat processes of the probe app: a lease of one second, a schedule of the test's choice."""

    def start(
        schedule: dict[str, Any],
        *options: str,
        app: str = "tests.support.probe",
        scheduler: str = "celery_lease.beat:LeasedScheduler",
        at: Site = site,
        conf: dict[str, Any] | None = None,
        **environment: str,
    ) -> Process:
        return start_process(
            *(sys.executable, "-m", "celery", "-A", app, "beat", "-l", "INFO"),
            *(("-S", scheduler) if scheduler else ()),
            *options,
            **{
                **at.environment,
                "PROBE_LEASE_SECONDS": "1",
                "PROBE_CONF": json.dumps({"beat_schedule": schedule, **(conf or {})}),
                **environment,
            },
        )

    return start


def ran_slots(site: Site, name: str) -> list[int]:
    """The slots of the job's real runs, in order."""
    return [int(record["slot"]) for record in site.records(name) if record["outcome"] == "ran"]
