"""The rules, on written evidence: when each of them speaks, and when it is silent."""

from datetime import timedelta

import pytest
from celery.schedules import crontab

from celery_lease._expectations import Expectation
from celery_lease._watchdog import Limits, missed_slots, unregistered
from tests.watchdog.evidence import (
    EVERY_20_S,
    QUARTERS,
    at,
    evidence,
    findings,
    going_on,
    run,
    skip,
)

HELD = {"task_id": "one", "worker": "w@here", "pid": "7", "since": "2026-09-14T11:50:00.000Z", "fence": "1"}


def test_a_job_that_runs_as_it_should_is_no_finding() -> None:
    assert findings(evidence(*(run(minute) for minute in (-31, -16, -1)), backlog=3), now=5) == {}


# --- skips ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("streak", "found"), [(2, False), (3, True), (12, True)])
def test_skips_in_a_row_are_found_from_the_number_in_the_setting_on(streak: int, *, found: bool) -> None:
    assert ("skips" in findings(evidence(run(-1), streak=streak), now=1)) is found


def test_the_setting_for_skips_counts() -> None:
    assert "skips" in findings(evidence(run(-1), streak=1), now=1, limits=Limits(1, 300))


@pytest.mark.parametrize(
    ("connected", "said"),
    [({"connected": "1"}, "is connected"), ({"connected": "0"}, "is not connected"), ({}, "(pid 7)")],
)
def test_the_skips_say_who_holds_the_lease(connected: dict[str, str], said: str) -> None:
    what = findings(evidence(run(-1), streak=3, holder={**HELD, **connected}), now=1)["skips"].what
    assert "3 skips in a row" in what
    assert "task one on w@here" in what
    assert said in what
    assert "last real run: 2026-09-14 11:59:00 UTC" in what


def test_an_old_string_lock_is_named_as_what_it_is() -> None:
    assert "unknown holder" in findings(evidence(run(-1), streak=3, holder={}), now=1)["skips"].what


# --- overdue --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("now", "found"), [(14, False), (29, False), (31, False), (33, True), (600, True)])
def test_no_real_run_for_two_intervals_is_found(now: float, *, found: bool) -> None:
    assert ("overdue" in findings(evidence(run(0)), now=now)) is found


def test_skips_failures_and_expired_messages_do_not_count_as_real_runs() -> None:
    records = [run(0), skip(15), skip(30, "expired"), run(31, "failed"), run(46, "lost"), run(47, "dry_run")]
    assert "overdue" in findings(evidence(*records), now=47)


def test_a_job_that_takes_longer_than_its_interval_is_not_overdue_while_it_keeps_its_pace() -> None:
    # It ends at :20, skips :15, runs from :30 to :50, and so on.
    records = [run(minute, took=20) for minute in (-100, -70, -40, -10)]
    assert findings(evidence(*records), now=19.5) == {}


def test_a_job_that_never_ran_is_overdue_two_intervals_after_it_was_first_seen() -> None:
    new = evidence(first_seen=0)
    assert findings(new, now=29) == {}
    assert "no real run ever" in findings(new, now=32)["overdue"].what


def test_a_job_that_comes_back_to_the_schedule_starts_anew() -> None:
    assert findings(evidence(run(-10_000), first_seen=0), now=29) == {}


def test_a_job_for_working_hours_is_not_overdue_at_night() -> None:
    office = Expectation(
        "office", "curation", crontab(minute="0", hour="9-17", day_of_week="mon-fri"), "curation"
    )
    ran_at_17 = run(5 * 60 + 1)  # a Monday
    assert findings(evidence(ran_at_17, expectation=office), now=20.9 * 60) == {}
    assert "overdue" in findings(evidence(ran_at_17, expectation=office), now=22.1 * 60)


def test_a_lease_outside_of_the_schedule_is_never_overdue() -> None:
    assert findings(evidence(run(0), expectation=None), now=100_000) == {}


# --- idle -----------------------------------------------------------------------------------------------


def test_runs_without_work_are_found_while_there_is_a_backlog() -> None:
    idle = [run(minute, worked="0") for minute in (-31, -16, -1)]
    assert "3 runs did no work, and 7 are left" in findings(evidence(*idle, backlog=7), now=1)["idle"].what
    assert findings(evidence(*idle, backlog=0), now=1) == {}
    assert findings(evidence(*idle), now=1) == {}
    assert findings(evidence(*idle[1:], backlog=7), now=1) == {}
    assert findings(evidence(*idle, run(0), backlog=7), now=1) == {}


# --- events ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["abandoned", "lost", "missed"])
def test_an_event_is_over_with_the_next_real_run_but_not_before_an_interval(outcome: str) -> None:
    event = skip(1, outcome, task_id="one", worker="w@here")
    assert outcome in findings(evidence(run(0), event), now=2)
    assert outcome in findings(evidence(run(0), event, run(3)), now=15)
    assert outcome in findings(evidence(run(0), event), now=17)
    assert findings(evidence(run(0), event, run(3)), now=17) == {}


def test_an_event_of_a_lease_outside_of_the_schedule_is_shown_for_an_hour() -> None:
    event = skip(0, "abandoned")
    assert "abandoned" in findings(evidence(event, expectation=None), now=59)
    assert findings(evidence(event, expectation=None), now=61) == {}


def test_a_run_that_reported_by_itself_after_all_was_not_abandoned() -> None:
    ended = run(3)
    closed = ended.__class__(ended.id, "abandoned", at(2), ended.since, ended.fence, {})
    assert findings(evidence(closed, ended), now=4) == {}
    assert "abandoned" in findings(evidence(closed, run(3.5)), now=4)


def test_a_message_that_was_given_up_says_how_often_it_died() -> None:
    record = run(1, "failed", error="delivery cap", deaths="5", task_id="one")
    assert "died with its worker 5 times" in findings(evidence(run(0), record), now=2)["capped"].what
    assert "capped" not in findings(evidence(run(0), run(1, "failed", error="ValueError")), now=2)


# --- overrunning ----------------------------------------------------------------------------------------


def test_a_run_past_its_hard_time_limit_is_found() -> None:
    limited = Expectation("curation", "curation", QUARTERS.schedule, "curation", hard_limit=600)
    given = evidence(run(0), expectation=limited, open_run=going_on(1))
    assert findings(given, now=11) == {}
    assert "past its hard time limit of 10 min" in findings(given, now=13)["overrunning"].what


def test_a_run_far_beyond_every_run_before_it_is_found() -> None:
    daily = Expectation("curation", "curation", crontab(minute="0", hour="0"), "curation")
    history = [run(minute, took=took) for minute, took in ((-50, 1), (-40, 4), (-30, 2), (-20, 1), (-10, 1))]
    given = evidence(*history, expectation=daily, open_run=going_on(0))
    assert "overrunning" not in findings(given, now=12)
    assert "the longest of the last 5 took 4 min" in findings(given, now=13)["overrunning"].what


def test_a_run_shorter_than_a_lease_is_never_overrunning() -> None:
    history = [run(minute, took=0.01) for minute in range(-50, -1)]
    assert findings(evidence(*history, open_run=going_on(0)), now=4.9) == {}
    assert "overrunning" in findings(evidence(*history, open_run=going_on(0)), now=5.1)


def test_few_runs_are_no_history() -> None:
    daily = Expectation("curation", "curation", crontab(minute="0", hour="0"), "curation")
    assert findings(evidence(run(-1), expectation=daily, open_run=going_on(0)), now=120) == {}


def test_a_run_at_a_terminal_is_not_overrunning_and_no_measure_for_others() -> None:
    history = [run(minute) for minute in (-50, -40, -30, -20)]
    drained = run(-10, took=600, worker="terminal@desk")
    daily = Expectation("curation", "curation", crontab(minute="0", hour="0"), "curation")
    at_terminal = going_on(0, worker="terminal@desk")
    assert "overrunning" not in findings(
        evidence(*history, run(-5), expectation=daily, open_run=at_terminal), now=600
    )
    assert "overrunning" in findings(
        evidence(*history, drained, run(-5), expectation=daily, open_run=going_on(0)), now=10
    )


# --- slots without a trace ------------------------------------------------------------------------------


def missed(*records: object, now: float, **facts: object) -> list[float]:
    """Minutes after noon of the slots that are missing."""
    given = evidence(*records, **{"first_seen": 0.5, "last_ran": at(0), **facts})  # type: ignore[arg-type]
    _, slots = missed_slots(given, at(now))
    return [(slot - at(0)).total_seconds() / 60 for slot in slots]


def test_a_slot_is_judged_once_the_next_one_is_over_by_a_little() -> None:
    assert missed(now=30.9) == []
    assert missed(now=31.1) == [15]
    assert missed_slots(evidence(first_seen=0.5), at(31.1))[0] == at(15)


@pytest.mark.parametrize(
    "outcome", ["skipped_locked", "skipped_lock_unavailable", "expired", "skipped_already_done"]
)
def test_a_slot_with_any_record_in_its_time_left_a_trace(outcome: str) -> None:
    assert missed(skip(28, outcome), now=32) == []
    assert missed(skip(28, outcome), now=47) == [30]


def test_a_slot_that_a_record_names_left_a_trace_whenever_that_was() -> None:
    named = skip(200, "expired", slot=str(int(at(15).timestamp())))
    assert 15 not in missed(named, now=211)
    assert 30 in missed(named, now=211)


def test_a_slot_during_a_run_left_a_trace() -> None:
    assert missed(run(50, took=49), now=62) == []
    assert missed(now=62, open_run=going_on(1)) == []
    assert missed(now=62, open_run=going_on(47)) == [15, 30]


def test_a_record_of_a_missed_slot_is_no_trace() -> None:
    assert missed(skip(31.5, "missed", slot=str(int(at(15).timestamp()))), now=47) == [15, 30]


def test_slots_are_judged_once() -> None:
    assert missed(now=47, judged=at(15)) == [30]


def test_slots_from_before_the_first_sight_are_nobodys() -> None:
    assert missed(now=47, first_seen=16) == [30]


def test_after_a_long_outage_the_latest_slots_are_written_down() -> None:
    slots = missed(now=3 * 24 * 60 + 2)
    assert len(slots) == 100
    assert slots[-1] == 3 * 24 * 60 - 15


def test_where_older_records_are_not_at_hand_nothing_is_said() -> None:
    assert missed(skip(60), now=90, is_all=False) == []


def test_a_beat_off_the_grid_leaves_a_trace_in_each_interval_of_its_own() -> None:
    # Twenty-second runs that begin just before or just after the slot.
    records = [run(n / 3 + (0.001 if n % 2 else -0.001), took=0.0001) for n in range(1, 10)]
    assert missed(*records, now=3, expectation=EVERY_20_S, first_seen=0.1) == []


# --- unregistered ---------------------------------------------------------------------------------------


def test_a_task_that_no_worker_has_is_named() -> None:
    found = unregistered(QUARTERS, {"other"}, at(0), at(10))
    assert found is not None
    assert found.job == "curation"
    assert "'curation', which no worker has registered" in found.what


def test_nothing_is_said_of_registrations_where_no_worker_ever_said_anything() -> None:
    assert unregistered(QUARTERS, set(), at(0), at(10)) is None


def test_a_new_entry_gives_its_workers_a_moment() -> None:
    assert unregistered(QUARTERS, {"other"}, at(0), at(1)) is None


def test_a_registered_task_is_no_finding() -> None:
    assert unregistered(QUARTERS, {"curation"}, at(0), at(10)) is None


def test_an_interval_is_the_shortest_one_of_a_schedule() -> None:
    uneven = Expectation("uneven", "t", crontab(minute="0,10,30"))
    assert uneven.interval(at(0)) == timedelta(minutes=10)
    yearly = Expectation("yearly", "t", crontab("0", "0", day_of_month="1", month_of_year="1"))
    assert yearly.interval(at(0)) == timedelta(days=365)
