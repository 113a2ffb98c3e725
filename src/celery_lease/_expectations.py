"""What the schedule promises, read from `beat_schedule` itself: nobody keeps a second list of jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from celery.beat import ScheduleEntry

from celery_lease._errors import LeaseError
from celery_lease._slots import next_slot, slots
from celery_lease._task import LeasedTask

if TYPE_CHECKING:
    from celery import Celery

#: How far ahead the shortest interval is looked for: a day and a half of a quarter-hourly job, or two years.
_SLOTS_AHEAD = 150
_TIME_AHEAD = timedelta(days=2 * 366)


@dataclass(frozen=True)
class Expectation:
    """One entry of the schedule.

    Attributes:
        entry: its name.
        task: the task's name.
        schedule: as Celery understands it.
        lease: the lease that its runs take; None for a task without one, or that is not known here.
        is_known: whether the task is registered in this very process.
        per_argument: whether the lease's name is made from arguments.
        expires: what the entry says, else its task: seconds, an instant, or None.
        hard_limit: the task's hard time limit in seconds, or None.
        trouble: why the entry's arguments give no lease; "" if they do.
    """

    entry: str
    task: str
    schedule: Any
    lease: str | None = None
    is_known: bool = False
    per_argument: bool = False
    expires: Any = None
    hard_limit: float | None = None
    trouble: str = ""

    def interval(self, now: datetime | None = None) -> timedelta | None:
        """The shortest time between two slots from now on; None if there are no two."""
        start = now or datetime.now(UTC)
        ahead = islice(slots(self.schedule, start, start + _TIME_AHEAD), _SLOTS_AHEAD)
        return min((later - earlier for earlier, later in pairwise(ahead)), default=None)

    def slots(self, after: datetime, until: datetime) -> list[datetime]:
        """The slots after `after`, up to and with `until`, in order."""
        return list(slots(self.schedule, after, until))

    def next_slot(self, after: datetime) -> datetime | None:
        """The first slot after `after`; None if the schedule has no other."""
        return next_slot(self.schedule, after)


def read_expectations(app: Celery) -> list[Expectation]:
    """All entries of the app's `beat_schedule`, by name. The app's tasks must have been imported."""
    return [_expectation(app, name, given) for name, given in sorted((app.conf.beat_schedule or {}).items())]


def leased(expectations: list[Expectation]) -> dict[str, Expectation]:
    """Lease → the entry that takes it; of several, the one that is due most often."""
    chosen: dict[str, Expectation] = {}
    for expectation in expectations:
        if expectation.lease is not None:
            other = chosen.get(expectation.lease)
            if other is None or _is_due_more_often(expectation, other):
                chosen[expectation.lease] = expectation
    return chosen


def _is_due_more_often(one: Expectation, other: Expectation) -> bool:
    return (one.interval() or timedelta.max) < (other.interval() or timedelta.max)


def _expectation(app: Celery, name: str, given: Any) -> Expectation:
    entry = (
        given if isinstance(given, ScheduleEntry) else ScheduleEntry(**{**given, "name": name, "app": app})
    )
    task = app.tasks.get(str(entry.task))
    options = entry.options or {}
    expectation = Expectation(
        entry=name,
        task=str(entry.task),
        schedule=entry.schedule,
        is_known=task is not None,
        expires=options.get("expires") or (task.expires if task else None),
        hard_limit=options.get("time_limit") or (_hard_limit(app, task) if task else None),
    )
    if not isinstance(task, LeasedTask):
        return expectation
    lease, trouble = _lease(task, tuple(entry.args or ()), dict(entry.kwargs or {}))
    return replace(expectation, lease=lease, trouble=trouble, per_argument=task.is_per_argument)


def _lease(task: LeasedTask, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str | None, str]:
    try:
        return task.lease_name(args, kwargs), ""
    except (TypeError, LeaseError) as error:
        return None, str(error)


def _hard_limit(app: Celery, task: Any) -> float | None:
    limit = task.time_limit or app.conf.task_time_limit
    return float(limit) if limit else None
