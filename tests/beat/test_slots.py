"""The slots of schedules: in any time zone, and on the nights of the clock change too."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedstate, schedule, solar
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_lease._slots import latest_slot, next_slot, slots
from tests.nodes.missing import missing

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

#: Noon to noon around a change of the clocks in Berlin.
BACK = datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 25, 12, tzinfo=UTC)
FORWARD = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 12, tzinfo=UTC)


def in_zone(zone: str, plan: Any) -> Any:
    """The schedule as an app in that time zone has it."""
    app = Celery("zoned", set_as_current=False)
    app.conf.update(timezone=zone)
    plan.app = app
    return plan


def berlin(*args: Any, **fields: Any) -> Any:
    return in_zone("Europe/Berlin", crontab(*args, **fields))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize("night", [BACK, FORWARD], ids=["back", "forward"])
@pytest.mark.parametrize(
    ("plan", "every"),
    [("*/15", 15 * MINUTE), ("0", HOUR), ("*", MINUTE)],
    ids=["quarters", "hours", "minutes"],
)
def test_a_job_due_in_every_hour_does_not_notice_the_clock_change(
    plan: str, every: timedelta, night: tuple[datetime, datetime]
) -> None:
    begin, end = night
    due = list(slots(berlin(minute=plan), begin, end))
    assert due == [begin + every * n for n in range(1, (end - begin) // every + 1)]


@pytest.mark.parametrize(("hour", "minute"), [(1, 59), (2, 0), (2, 30), (2, 59), (3, 0)])
@pytest.mark.parametrize("night", [BACK, FORWARD], ids=["back", "forward"])
def test_a_daily_job_is_due_once_in_a_night_of_the_clock_change(
    hour: int, minute: int, night: tuple[datetime, datetime]
) -> None:
    assert len(list(slots(berlin(minute, hour), *night))) == 1


def test_what_falls_into_the_hour_that_is_left_out_is_due_an_hour_later() -> None:
    assert list(slots(berlin(30, 2), *FORWARD)) == [at("2026-03-29T01:30")]  # 03:30 in Berlin


def test_what_falls_into_the_hour_that_comes_twice_is_due_the_first_time() -> None:
    assert list(slots(berlin(30, 2), *BACK)) == [at("2026-10-25T00:30")]


def test_an_interval_does_not_know_time_zones() -> None:
    plan = in_zone("Europe/Berlin", schedule(timedelta(minutes=20)))
    for begin, end in (BACK, FORWARD):
        assert list(slots(plan, begin, end)) == [begin + 20 * MINUTE * n for n in range(1, 73)]


@pytest.mark.parametrize("seconds", [1, 7, 90, 1.5, 0.3, 86400 * 7])
def test_an_interval_lies_on_the_multiples_of_itself(seconds: float) -> None:
    every = timedelta(seconds=seconds)
    slot = next_slot(schedule(every), at("2026-09-14T12:00:03.123456"))
    assert slot is not None
    assert (slot - datetime(1970, 1, 1, tzinfo=UTC)) % every == timedelta(0)
    assert timedelta(0) < slot - at("2026-09-14T12:00:03.123456") <= every


@pytest.mark.parametrize(
    ("plan", "after", "expected"),
    [
        (crontab(0, 0, day_of_week="sun"), "2026-09-14T00:00", "2026-09-20T00:00"),
        (crontab(0, 0, day_of_week="mon-fri"), "2026-09-11T00:00", "2026-09-14T00:00"),
        (crontab(0, 0, day_of_month=31), "2026-09-14T00:00", "2026-10-31T00:00"),
        (crontab(0, 0, day_of_month=29, month_of_year=2), "2026-09-14T00:00", "2028-02-29T00:00"),
        (crontab(0, 0, day_of_month=1, month_of_year="*/6"), "2026-01-01T00:00", "2026-07-01T00:00"),
        (crontab(59, 23), "2026-12-31T23:59", "2027-01-01T23:59"),
        (crontab(minute="*/15"), "2026-09-14T12:00", "2026-09-14T12:15"),
        (crontab(minute="*/15"), "2026-09-14T12:14:59.999999", "2026-09-14T12:15"),
    ],
)
def test_a_crontab_is_due_at_its_matching_minute(plan: Any, after: str, expected: str) -> None:
    assert next_slot(in_zone("UTC", plan), at(after)) == at(expected)


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "America/Sao_Paulo", "Pacific/Auckland"]


@settings(max_examples=60, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    begin=st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1)),  # noqa: DTZ001 - a time zone follows
    near_a_change=st.booleans(),
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=4),
    hours=st.one_of(st.just(set(range(24))), st.sets(st.integers(0, 23), min_size=1, max_size=6)),
    days_of_week=st.one_of(st.just(set(range(7))), st.sets(st.integers(0, 6), min_size=1)),
)
def test_every_matching_minute_is_a_slot_and_nothing_else_is(
    zone: str,
    begin: datetime,
    near_a_change: bool,
    minutes: set[int],
    hours: set[int],
    days_of_week: set[int],
) -> None:
    start = begin.replace(tzinfo=UTC)
    if near_a_change:
        start = next(changes(ZoneInfo(zone), start), start) - HOUR * random.Random(begin.minute).randrange(30)
    end = start + 2 * DAY
    plan = in_zone(zone, crontab(sorted(minutes), sorted(hours), sorted(days_of_week)))
    found, expected = set(slots(plan, start, end)), set(matching(plan, ZoneInfo(zone), start, end))
    assert expected <= found
    # Beyond those only what the clocks have left out, as much later.
    assert all(is_moved(plan, ZoneInfo(zone), slot) for slot in found - expected)


def changes(zone: ZoneInfo, begin: datetime) -> Iterator[datetime]:
    """Changes of the clocks within a year, to the hour."""
    for step in range(366 * 24):
        now = begin + HOUR * step
        if now.astimezone(zone).utcoffset() != (now + HOUR).astimezone(zone).utcoffset():
            yield now


def matching(plan: Any, zone: ZoneInfo, begin: datetime, end: datetime) -> Iterator[datetime]:
    """Minute by minute, what the clock on the wall says; the second time only for a job of every hour."""
    now = begin.replace(second=0, microsecond=0) + MINUTE
    while now <= end:
        wall = now.astimezone(zone)
        if matches(plan, wall) and (not wall.fold or len(plan.hour) == 24):
            yield now
        now += MINUTE


def matches(plan: Any, wall: datetime) -> bool:
    return wall.minute in plan.minute and wall.hour in plan.hour and wall.isoweekday() % 7 in plan.day_of_week


def is_moved(plan: Any, zone: ZoneInfo, slot: datetime) -> bool:
    """Whether the slot would have matched if the clocks had not gone forward within the last hour or so."""
    before = (slot - 2 * HOUR).astimezone(zone).utcoffset()
    now = slot.astimezone(zone).utcoffset()
    assert before is not None
    assert now is not None
    return before < now and matches(plan, slot + before)


@settings(max_examples=60, deadline=None)
@given(
    plan=st.sampled_from(
        [
            crontab(minute="*/15"),
            crontab(0, 3),
            crontab(30, 2, day_of_week="sun"),
            schedule(7),
            schedule(3600),
        ]
    ),
    minutes=st.integers(0, 60 * 24 * 3),
    seconds=st.integers(0, 60),
)
def test_the_latest_slot_is_the_last_of_all(plan: Any, minutes: int, seconds: int) -> None:
    in_zone("Europe/Berlin", plan)
    after, until = BACK[0], BACK[0] + MINUTE * minutes + timedelta(seconds=seconds)
    assert latest_slot(plan, after, until) == max(slots(plan, after, until), default=None)


def test_the_latest_slot_of_a_minutely_job_is_found_at_once_after_thirty_years() -> None:
    now = datetime.now(UTC)
    slot = latest_slot(in_zone("UTC", crontab()), now - 365 * 30 * DAY, now)
    assert slot == now.replace(second=0, microsecond=0)


class Told(BaseSchedule):
    """A schedule of somebody's own: what is left until the next of some instants."""

    def __init__(self, *instants: datetime) -> None:
        super().__init__(nowfun=lambda: datetime.now(UTC))
        self.instants = instants

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        left = (instant for instant in self.instants if instant > last_run_at)
        return next(left, self.instants[-1]) - self.now()


class OnlyDue(BaseSchedule):
    """One that can say nothing but whether it is due: an hour after its last run."""

    def __init__(self) -> None:
        super().__init__(nowfun=lambda: datetime.now(UTC))

    def is_due(self, last_run_at: datetime) -> schedstate:
        left = (last_run_at + HOUR - self.now()).total_seconds()
        return schedstate(left <= 0, max(left, 0) or 3600)


def test_a_schedule_of_another_kind_is_asked() -> None:
    now = datetime.now(UTC)
    plan = Told(now + HOUR, now + 3 * HOUR)
    first = next_slot(plan, now)
    assert first is not None
    assert abs(first - (now + HOUR)) < timedelta(milliseconds=100)
    second = next_slot(plan, first)  # and does not give the first one again, a moment off
    assert second is not None
    assert abs(second - (now + 3 * HOUR)) < timedelta(milliseconds=100)
    assert next_slot(plan, second) is None


def test_a_subclass_with_rules_of_its_own_is_asked_too() -> None:
    class Holidays(crontab):
        def remaining_estimate(self, last_run_at: datetime, *args: Any, **kwargs: Any) -> timedelta:
            return super().remaining_estimate(last_run_at, *args, **kwargs) + DAY

    plain, later = in_zone("UTC", crontab(0, 3)), in_zone("UTC", Holidays(0, 3))
    now = datetime.now(UTC)
    first, second = next_slot(plain, now), next_slot(later, now)
    assert first is not None
    assert second is not None
    assert abs(second - first - DAY) < timedelta(milliseconds=100)


def test_a_schedule_that_only_knows_whether_it_is_due_is_due_now() -> None:
    now = datetime.now(UTC)
    slot = next_slot(OnlyDue(), now - 2 * HOUR)
    assert slot is not None
    assert abs(slot - now) < timedelta(milliseconds=100)
    later = next_slot(OnlyDue(), now)
    assert later is not None
    assert abs(later - (now + HOUR)) < timedelta(milliseconds=100)


def test_the_sun_rises_once_a_day() -> None:
    try:
        plan = in_zone("UTC", solar("sunrise", 52.5, 13.4))
    except Exception as error:  # noqa: BLE001 - Celery's own ImproperlyConfigured
        missing(f"sunrise needs ephem: {error}")
    rises = list(slots(plan, at("2026-09-14T00:00"), at("2026-09-24T00:00")))
    assert [slot.date().day for slot in rises] == list(range(14, 24))
    assert all(slot.hour in (4, 5) for slot in rises)
