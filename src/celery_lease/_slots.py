"""When a schedule is due: its slots, as instants in UTC, the same on every machine that asks.

A slot depends on the schedule alone, and not on when a beat was started or when it last sent:

    crontab     the matching minute, on the clock of the schedule's time zone
    interval    a multiple of the interval since 1970, which no time zone can shift
    solar       the event
    others      whatever the schedule itself says comes next

On the two nights a year on which the clocks change, a crontab that is due in every hour goes on as if
nothing happened. One with certain hours keeps its promise of once a day: what falls into the hour that
is left out is due as much later as the clocks went forward, and what falls into the hour that comes
twice is due the first time. (Celery's own arithmetic loses the repeated hour, 2 h of a quarter-hourly job
within 3 h.)
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from celery.schedules import crontab
from celery.schedules import schedule as interval
from celery.utils.time import maybe_make_aware

if TYPE_CHECKING:
    from collections.abc import Iterator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Slots are told apart by whole seconds: that is what goes into messages and into the store.
SECOND = timedelta(seconds=1)

#: A clock change this near is looked at.
_NEAR = timedelta(hours=3)

_EVERY_HOUR = 24


def next_slot(schedule: Any, after: datetime) -> datetime | None:
    """The first slot after `after` (aware); None if the schedule has no other."""
    if _is_plain(schedule, crontab):
        return _next_of_crontab(schedule, after)
    if _is_plain(schedule, interval):
        every: timedelta = schedule.run_every
        return _EPOCH + ((after - _EPOCH) // every + 1) * every
    return _next_by_asking(schedule, after)


def slots(schedule: Any, after: datetime, until: datetime) -> Iterator[datetime]:
    """The slots after `after`, up to and with `until`, in order."""
    slot = next_slot(schedule, after)
    while slot is not None and slot <= until:
        yield slot
        slot = next_slot(schedule, slot)


def latest_slot(schedule: Any, after: datetime, until: datetime) -> datetime | None:
    """The last of those, however long ago `after` is."""
    latest, window = None, timedelta(minutes=1)
    while until - window > after and next(slots(schedule, until - window, until), None) is None:
        window *= 2
    for latest in slots(schedule, max(after, until - window), until):  # noqa: B007 - wanted after the loop
        pass
    return latest


def _is_plain(schedule: Any, kind: type[Any]) -> bool:
    """Whether the schedule reckons as `kind` does; a subclass may have rules of its own."""
    return isinstance(schedule, kind) and type(schedule).remaining_estimate is kind.remaining_estimate


def _next_of_crontab(schedule: Any, after: datetime) -> datetime:
    zone = schedule.tz
    wall = after.astimezone(zone).replace(tzinfo=None)
    if len({(after + step).astimezone(zone).utcoffset() for step in (-_NEAR, timedelta(0), _NEAR)}) > 1:
        wall -= _NEAR  # instants are not in the order of the wall clock here
    found: list[datetime] = []
    for due in _walls(schedule, wall):
        # Of a time that comes twice, the two; of a time that is left out, the first is the one we want.
        first, second = (due.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        twice = second > first and len(schedule.hour) == _EVERY_HOUR
        found += [instant for instant in ([first, second] if twice else [first]) if instant > after]
        if first > after:
            break
    return min(found)


def _walls(schedule: Any, after: datetime) -> Iterator[datetime]:
    """The times on the wall clock that match the crontab, after `after`, without end."""
    day = after.date()
    while True:
        if (
            day.month in schedule.month_of_year
            and day.day in schedule.day_of_month
            and day.isoweekday() % 7 in schedule.day_of_week
        ):
            for hour in sorted(schedule.hour):
                if day > after.date() or hour >= after.hour:
                    times = (datetime.combine(day, time(hour, minute)) for minute in sorted(schedule.minute))
                    yield from (due for due in times if due > after)
        day += timedelta(days=1)


def _next_by_asking(schedule: Any, after: datetime) -> datetime | None:
    for start in (after, after + SECOND):
        now = found = maybe_make_aware(schedule.now()).astimezone(UTC)
        try:
            found = now + schedule.remaining_estimate(start)
        except NotImplementedError:
            is_due, seconds = schedule.is_due(start)
            found = now if is_due else now + timedelta(seconds=seconds)
        # What it found before may come back a moment later: it reckons from a clock that goes on meanwhile.
        if found - after >= SECOND:
            return found
    return None
