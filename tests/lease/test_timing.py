"""The two numbers that everything else rests on."""

import copy
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from celery.schedules import crontab, maybe_schedule
from celery.schedules import schedule as every

from beat_schedule import beat_schedule
from celery_lease import LeasedTask
from celery_lease._settings import LEASE_SECONDS, RENEW_EVERY_SECONDS, RENEW_SHARE
from tasks import app


def shortest_interval(when: Any) -> timedelta:
    """The least time between two instants of a schedule, walking along it for a while."""
    walked: Any = copy.copy(maybe_schedule(when, app=app))
    now = datetime(2028, 2, 27, 23, 59, 30, tzinfo=UTC)  # over the end of a leap February
    gaps: list[timedelta] = []
    for _ in range(1000):
        walked.nowfun = partial(datetime.fromtimestamp, now.timestamp(), UTC)
        gap = walked.remaining_estimate(now)
        now += gap
        gaps.append(gap)
    return min(gaps[1:])  # the first one begins anywhere


def leased_entries() -> dict[str, Any]:
    """Entries of the schedule whose job runs under a lease."""
    app.loader.import_default_modules()
    entries: dict[str, Any] = beat_schedule
    return {
        entry: options["schedule"]
        for entry, options in entries.items()
        if isinstance(app.tasks[options["task"]], LeasedTask)
    }


def test_a_failed_renewal_is_survivable_because_a_lease_is_at_least_three_renewals_long() -> None:
    assert LEASE_SECONDS >= 3 * RENEW_EVERY_SECONDS
    assert RENEW_SHARE * LEASE_SECONDS == RENEW_EVERY_SECONDS


def test_a_dead_run_costs_less_than_one_scheduled_cycle() -> None:
    entries = leased_entries()
    assert entries
    for entry, when in entries.items():
        assert timedelta(seconds=LEASE_SECONDS) <= shortest_interval(when), entry


def test_the_shortest_interval_is_read_off_every_kind_of_schedule() -> None:
    assert shortest_interval(crontab(minute="*/15")) == timedelta(minutes=15)
    assert shortest_interval(crontab(minute="0,7,30")) == timedelta(minutes=7)
    assert shortest_interval(crontab(minute="0", hour="6,8")) == timedelta(hours=2)
    assert shortest_interval(crontab(minute="0", hour="0", day_of_month="1")) == timedelta(days=28)
    assert shortest_interval(every(timedelta(seconds=90))) == timedelta(seconds=90)
    assert shortest_interval(600.0) == timedelta(minutes=10)
