"""A tick shows the best that was done in its time, and never work where there was none."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab
from celery.schedules import schedule as interval

from celery_lease._expectations import Expectation
from celery_lease._ledger import OpenRun, RunRecord
from celery_lease.web._plot import draw, in_words
from celery_lease.web._strip import KINDS, Strip, final, of_records, of_schedule, window

NOON = datetime(2026, 9, 14, 12, 0, tzinfo=UTC)
QUARTER = timedelta(minutes=15)


def record(
    minute: float, outcome: str = "ran", *, took: float = 30, fence: int = 0, **fields: Any
) -> RunRecord:
    """Of a run that began so many minutes after noon, or of a skip then."""
    at = NOON + timedelta(minutes=minute)
    is_run = not outcome.startswith(("skipped", "missed"))
    ended = at + timedelta(seconds=took) if is_run else at
    given = fence or int(at.timestamp())
    return RunRecord(f"{minute}", outcome, ended, at if is_run else None, given if is_run else None, fields)


def letters(records: list[RunRecord], ticks: int = 4, open_run: OpenRun | None = None) -> str:
    """The strip of so many quarters of an hour from noon; the last one has just begun."""
    slots = [NOON + number * QUARTER for number in range(ticks)]
    newest_first = sorted(records, key=lambda each: each.ended, reverse=True)
    strip = of_schedule(slots, newest_first, open_run, NOON - QUARTER)
    return "".join(tick.kind.letter for tick in strip.ticks)


def test_every_tick_shows_what_happened_in_its_time() -> None:
    records = [record(0), record(15, "failed"), record(30, "skipped_locked"), record(45, "abandoned")]
    assert letters(records) == "RFLA"


def test_a_tick_in_which_nothing_happened_is_missed_once_it_is_over() -> None:
    assert letters([record(0), record(30)]) == "RMR·"


def test_a_run_belongs_to_the_tick_in_which_it_began_however_long_it_took() -> None:
    assert (
        letters([record(0, took=40 * 60), record(15, "skipped_locked"), record(30, "skipped_locked")])
        == "RLL·"
    )


def test_a_run_whose_message_came_late_belongs_to_its_slot() -> None:
    slot = str(int((NOON + QUARTER).timestamp()))
    assert letters([record(0), record(31, slot=slot), record(32)], ticks=3) == "RRR"


def test_a_failure_that_was_made_good_in_its_tick_is_good() -> None:
    assert letters([record(0, "failed"), record(5, "retried"), record(9)], ticks=1) == "R"


def test_skips_beside_a_failure_do_not_hide_it() -> None:
    assert letters([record(0, "failed"), record(5, "skipped_locked")], ticks=1) == "F"


def test_of_a_run_that_was_corrected_the_last_word_counts() -> None:
    assert letters([record(0, fence=7), record(0, "failed", took=40, fence=7, amends="ran")], ticks=1) == "F"
    reported_late = [record(0, "abandoned", fence=7), record(0, took=60, fence=7)]
    assert [each.outcome for each in final(reversed(reported_late))] == ["ran"]


def test_a_run_that_goes_on_is_shown_where_it_began() -> None:
    going_on = OpenRun(1, "id", "worker", NOON + QUARTER)
    assert letters([record(0), record(30, "skipped_locked")], open_run=going_on) == "R▸L·"


def test_what_was_before_the_first_record_is_not_called_missed() -> None:
    slots = [NOON + number * QUARTER for number in range(4)]
    strip = of_schedule(slots, [record(45)], None, NOON + 3 * QUARTER)
    assert [tick.outcome for tick in strip.ticks] == ["unknown"] * 3 + ["ran"]
    assert strip.summary == [(KINDS["ran"], "ran", 1)]


def test_the_incident_in_words() -> None:
    records = [record(0)] + [record(15 * number, "skipped_locked") for number in range(1, 13)] + [record(195)]
    slots = [NOON + number * QUARTER for number in range(14)]
    strip = of_schedule(slots, list(reversed(records)), None, NOON)
    assert [(stretch.ticks, stretch.outcome) for stretch in strip.stretches] == [
        (1, "ran"),
        (12, "skipped_locked"),
        (1, "ran"),
    ]
    assert (strip.stretches[1].first.hour, strip.stretches[1].last.hour) == (12, 15)


@pytest.mark.parametrize(
    ("schedule", "ticks"),
    [
        (crontab(minute="*/15"), 96),
        (crontab(minute="0"), 24),
        (crontab(minute="0", hour="3"), 24),
        (crontab(minute="*"), 96),
    ],
)
def test_the_window_is_a_day_or_two_dozen_slots_in_at_most_96_ticks(schedule: Any, ticks: int) -> None:
    schedule.app = Celery("clock", set_as_current=False)
    schedule.app.conf.timezone = "UTC"
    now = NOON + timedelta(minutes=1)
    slots = window([Expectation("entry", "task", schedule)], now)
    strip = of_schedule(slots, [], None, NOON - timedelta(days=90))
    assert len(strip.ticks) == ticks
    assert slots[-1] <= now
    assert strip.ticks[-1].outcome == ("due" if ticks == len(slots) else "missed")
    assert {tick.outcome for tick in strip.ticks[:-1]} == {"missed"}


def test_where_slots_share_a_tick_the_worst_of_them_is_shown() -> None:
    minutes = [NOON + number * timedelta(minutes=1) for number in range(960)]
    records = [record(number) for number in range(960) if number not in (15, 16, 33)]
    records += [record(15, "skipped_locked"), record(16, "skipped_locked"), record(33, "failed")]
    newest_first = sorted(records, key=lambda each: each.ended, reverse=True)
    strip = of_schedule(minutes, newest_first, None, NOON)
    assert len(strip.ticks) == 96
    assert [tick.kind.letter for tick in strip.ticks[:5]] == ["R", "L", "R", "F", "R"]
    assert strip.ticks[1].detail == "8 ran, 2 skipped_locked"


def test_of_a_schedule_of_seconds_the_last_ticks_are_shown_one_by_one() -> None:
    slots = window([Expectation("entry", "task", interval(timedelta(seconds=3)))], NOON)
    assert len(slots) == 96
    assert slots[-1] == NOON


def test_a_job_without_a_schedule_shows_its_last_runs() -> None:
    strip = of_records([record(90, "failed"), record(60, "skipped_locked"), record(0)], None)
    assert [tick.outcome for tick in strip.ticks] == ["ran", "skipped_locked", "failed"]
    assert of_records([], None) == Strip([])


def test_an_outcome_from_a_newer_version_has_its_first_letter() -> None:
    assert letters([record(0, "quite_new")], ticks=1) == "Q"


def test_letters_are_never_the_same_for_two_outcomes() -> None:
    shown = [kind.letter for kind in KINDS.values()]
    assert len(set(shown)) == len(shown)


def test_durations_are_drawn_in_order_and_inside_the_frame() -> None:
    runs = [record(number, took=number + 1) for number in range(50)]
    plot = draw(list(reversed(runs)))
    assert plot is not None
    assert [point.x for point in plot.points] == sorted(point.x for point in plot.points)
    assert [point.y for point in plot.points] == sorted((point.y for point in plot.points), reverse=True)
    assert all(0 < point.x < 960 and 0 < point.y < 220 for point in plot.points)
    assert plot.summary == "50 runs: median 26 s, longest 50 s"
    assert draw([record(0)]) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.004, "4 ms"), (1, "1 s"), (59.94, "59.9 s"), (180, "3 min"), (3 * 3600, "3 h")],
)
def test_durations_are_as_short_as_they_can_be_read(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
