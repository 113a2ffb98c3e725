"""The schedule against leases, limits and the server: what is wrong, and what a crash costs."""

from __future__ import annotations

import importlib.util
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from celery_lease._expectations import Expectation, read_expectations
from celery_lease._jobs import BEAT, leased_tasks
from celery_lease._settings import shortest_time_limit
from celery_lease._startup import visibility_timeout
from celery_lease._store import store_of
from celery_lease._task import LeasedTask

if TYPE_CHECKING:
    from datetime import timedelta

    from celery import Celery

    from celery_lease._settings import Settings


@dataclass(frozen=True)
class JobCheck:
    """One entry of the schedule, or one leased task that is not in it.

    Attributes:
        job: the entry's name, or the task's.
        task: the task's name.
        lease: the lease's name; None for a plain task.
        interval: the shortest time between two slots.
        ticks_lost_to_a_kill: beside the run that died; None without a schedule or a lease.
        ticks_lost_to_power_loss: the same, when the machine goes without a word.
        expires: in words.
        hard_limit: seconds, or None.
        wrong: what is wrong with it.
    """

    job: str
    task: str
    lease: str | None = None
    interval: timedelta | None = None
    ticks_lost_to_a_kill: int | None = None
    ticks_lost_to_power_loss: int | None = None
    expires: str = "-"
    hard_limit: float | None = None
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.wrong


@dataclass(frozen=True)
class Checkup:
    """The result.

    Attributes:
        jobs: one for each entry and each leased task beside.
        facts: about the leases and the server, in words.
        wrong: everything that is wrong, in sentences.
    """

    jobs: list[JobCheck]
    facts: dict[str, str]
    wrong: list[str]

    @property
    def ok(self) -> bool:
        return not self.wrong


def examine(app: Celery) -> Checkup:
    """Examine the app, whose tasks must have been imported.

    Raises:
        StoreUnavailable: the lease store does not answer.
    """
    settings, memory = store_of(app).settings, store_of(app).memory()
    expectations = read_expectations(app)
    in_schedule = {expectation.task for expectation in expectations}
    jobs = [_entry(app, expectation, settings) for expectation in expectations]
    jobs += [_task(app, task) for task in leased_tasks(app) if task.name not in in_schedule]
    wrong = [f"{job.job}: {trouble}" for job in jobs for trouble in job.wrong]
    wrong += _duplicates(app, expectations) + _eviction(memory) + _alerting(settings)
    return Checkup(jobs, _facts(app, settings, memory), wrong)


def _entry(app: Celery, expectation: Expectation, settings: Settings) -> JobCheck:
    interval, task = expectation.interval(), app.tasks.get(expectation.task)
    is_leased = isinstance(task, LeasedTask)
    return JobCheck(
        job=expectation.entry,
        task=expectation.task,
        lease=expectation.lease,
        interval=interval,
        ticks_lost_to_a_kill=_ticks_after_kill(interval, settings) if is_leased else None,
        ticks_lost_to_power_loss=_ticks_after_power_loss(interval, settings) if is_leased else None,
        expires=_expires(app, expectation, is_leased=is_leased),
        hard_limit=expectation.hard_limit,
        wrong=_wrong_with_entry(app, expectation, interval, settings),
    )


def _task(app: Celery, task: LeasedTask) -> JobCheck:
    limit = task.time_limit or app.conf.task_time_limit
    return JobCheck(
        job=str(task.name),
        task=str(task.name),
        lease=task.lease or str(task.name),
        hard_limit=limit,
        wrong=_wrong_with_limit(app, task, limit),
    )


def _ticks_after_kill(interval: timedelta | None, settings: Settings) -> int | None:
    """The first tick after the death waits the grace out and takes over; those that come meanwhile skip."""
    if interval is None:
        return None
    return max(math.ceil(settings.grace / interval.total_seconds()) - 1, 0)


def _ticks_after_power_loss(interval: timedelta | None, settings: Settings) -> int | None:
    """Nobody can tell the holder from a slow one until its lease ends."""
    return None if interval is None else math.ceil(settings.seconds / interval.total_seconds())


def _expires(app: Celery, expectation: Expectation, *, is_leased: bool) -> str:
    expires = expectation.expires
    if expires is None:
        return "interval" if is_leased and _is_leased_scheduler(app) else "never"
    return f"{expires:g} s" if isinstance(expires, int | float) else str(expires)


def _is_leased_scheduler(app: Celery) -> bool:
    return "lease" in str(app.conf.beat_scheduler).lower()


def _wrong_with_entry(
    app: Celery, expectation: Expectation, interval: timedelta | None, settings: Settings
) -> list[str]:
    task = app.tasks.get(expectation.task)
    if task is None:
        return [f"the task {expectation.task!r} is not known to this app, so its messages are thrown away"]
    if not isinstance(task, LeasedTask):
        return []
    wrong = [f"its arguments give no lease: {expectation.trouble}"] if expectation.trouble else []
    if interval is not None and settings.seconds > interval.total_seconds():
        wrong.append(
            f"it is due every {interval.total_seconds():g} s, and a lease lasts {settings.seconds:g} s: a "
            f"power loss costs {_ticks_after_power_loss(interval, settings)} ticks; make it due less often"
        )
    if _expires(app, expectation, is_leased=True) == "never":
        wrong.append(
            "its messages never expire, so a backlog after a downtime is repeated; set its expires option, "
            "or use celery_lease.beat:LeasedScheduler"
        )
    return wrong + _wrong_with_limit(app, task, expectation.hard_limit)


def _wrong_with_limit(app: Celery, task: LeasedTask, limit: float | None) -> list[str]:
    if not limit:
        return [
            "it has no hard time limit, so a run that hangs holds its lease for ever; give it a time_limit"
        ]
    wrong = []
    if limit < (least := shortest_time_limit(app)):
        wrong.append(
            f"its hard time limit of {limit:g} s may end it while it waits for a dead holder; give it "
            f"{least:g} s"
        )
    visible = visibility_timeout(app)
    if visible is not None and task.acks_late and limit >= visible:
        wrong.append(
            f"its hard time limit of {limit:g} s is not below the broker's visibility timeout of "
            f"{visible:g} s: the broker gives a message that is being carried out to another worker as well"
        )
    return wrong


def _duplicates(app: Celery, expectations: list[Expectation]) -> list[str]:
    takers: dict[str, set[str]] = defaultdict(set)
    for task in leased_tasks(app):
        takers[task.lease or str(task.name)].add(str(task.name))
    for expectation in expectations:
        if expectation.lease:
            takers[expectation.lease].add(expectation.task)
    wrong = [
        f"the tasks {', '.join(sorted(tasks))} take one lease, {lease!r}, so they skip each other"
        for lease, tasks in sorted(takers.items())
        if len(tasks) > 1
    ]
    if BEAT in takers:
        wrong.append(
            f"the lease {BEAT!r} is beat's own; the task {', '.join(takers[BEAT])} needs another one"
        )
    return wrong


def _eviction(memory: dict[str, Any]) -> list[str]:
    if memory["policy"] == "noeviction" or not memory["limit"]:
        return []
    said = (
        f"the store may evict leases and ledgers when its memory is full ({memory['policy']}); set "
        "maxmemory-policy to noeviction, or give the leases a server of their own"
    )
    return [said]


def _alerting(settings: Settings) -> list[str]:
    if settings.alert_urls and importlib.util.find_spec("apprise") is None:
        return ['lease_alert_urls is set, and Apprise is not installed: pip install "celery-lease[alerts]"']
    return []


def _facts(app: Celery, settings: Settings, memory: dict[str, Any]) -> dict[str, str]:
    visible = visibility_timeout(app)
    limit = f"{memory['limit'] / 1024**2:.0f} MB" if memory["limit"] else "no limit"
    return {
        "lease": f"{settings.seconds:g} s, taken over {settings.grace:g} s after its process is gone",
        "visibility timeout": f"{visible:g} s" if visible is not None else "none",
        "eviction policy": f"{memory['policy']} ({limit})",
        "scheduler": str(app.conf.beat_scheduler),
        "alerts go to": f"{len(settings.alert_urls)} addresses" if settings.alert_urls else "the log only",
        "dead-man's switches": str(len(settings.ping_urls)),
    }
