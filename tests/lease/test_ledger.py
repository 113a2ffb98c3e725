"""What the scripts write down about a job: counters, the last real run, and records of runs."""

from collections.abc import Callable
from typing import Any

import pytest

from celery_lease._ledger import Ledger
from celery_lease._store import Store
from tests.support.leases import Job
from tests.support.servers import Server

NINETY_DAYS_MS = 90 * 24 * 3600 * 1000


def test_every_outcome_is_counted_by_its_name(job: Job) -> None:
    for outcome in ("ran", "failed", "failed", "retried"):
        job.run(outcome)
    job.acquire()
    job.refused()
    counted = {field: value for field, value in job.ledger.items() if field.startswith("total:")}
    assert counted == {
        "total:ran": "1",
        "total:failed": "2",
        "total:retried": "1",
        "total:skipped_locked": "1",
    }
    assert job.outcomes == ["ran", "failed", "failed", "retried", "skipped_locked"]


def test_only_a_run_that_ran_moves_the_last_real_run(job: Job) -> None:
    job.run()
    last_ran = job.ledger["last_ran"]
    assert last_ran == job.records[-1]["ended"]
    for outcome in ("failed", "retried", "skipped_locked", "lost"):
        job.run(outcome)
    assert job.ledger["last_ran"] == last_ran
    job.run()
    assert job.ledger["last_ran"] >= last_ran
    assert job.ledger["last_ran"] == job.records[-1]["ended"]


def test_a_run_without_work_is_real_and_still_tells_when_work_was_done_last(job: Job) -> None:
    job.run(worked=5)
    last_worked = job.ledger["last_worked"]
    job.run(worked=0)
    ledger = job.ledger
    assert ledger["last_worked"] == last_worked
    assert ledger["last_ran"] == job.records[-1]["ended"]


def test_a_run_that_does_not_say_what_it_did_counts_as_work(job: Job) -> None:
    job.run()
    assert job.ledger["last_worked"] == job.ledger["last_ran"]


def test_the_backlog_is_what_the_last_run_that_said_so_left_behind(job: Job) -> None:
    job.run(backlog=7)
    job.run()
    assert job.ledger["backlog"] == "7"
    job.run(backlog=0)
    assert job.ledger["backlog"] == "0"


def test_a_lost_runs_backlog_is_not_believed(job: Job) -> None:
    job.run(backlog=7)
    stale, first = job.acquire()
    job.expire()
    job.acquire()
    assert job.release(stale, first, backlog=0) == "lost"
    assert job.ledger["backlog"] == "7"


def test_skips_in_a_row_end_with_a_real_run_and_with_nothing_else(job: Job) -> None:
    holder = job.acquire()
    job.refused()
    job.store.withdraw(job.claim(), "2026-09-14T12:15:03.123Z")
    job.release(*holder, "failed")
    job.run("skipped_locked")  # its body met another lease that it could not have
    job.run("retried")
    assert job.streak == 3
    job.run()
    assert job.streak == 0


def test_the_open_run_is_known_while_it_goes_on(job: Job) -> None:
    claim, grant = job.acquire(holder={"task_id": "two"})
    ledger = job.ledger
    assert ledger["open_fence"] == str(grant.fence)
    assert (ledger["open_task_id"], ledger["open_worker"]) == ("two", "w@here")
    assert ledger["open_since"] == ledger["last_started"] == grant.since
    job.release(claim, grant)
    assert not [field for field in job.ledger if field.startswith("open_")]


def test_a_run_that_failed_says_what_it_raised(job: Job) -> None:
    job.run("failed", worked=0, error="ValueError")
    assert job.records[-1]["error"] == "ValueError"


def test_about_so_many_run_records_are_kept_as_the_setting_says(
    start_store: Callable[..., Store], client: Any
) -> None:
    job = Job(start_store(lease_history=10), client)
    for _ in range(300):
        job.run()
    # A stream is cut by whole nodes, of a hundred entries by default.
    assert 10 <= len(job.records) <= 10 + 100
    assert job.total("ran") == 300, "the totals are not cut"


@pytest.mark.parametrize("end", ["release", "refuse", "withdraw"])
def test_what_a_per_argument_lease_leaves_behind_goes_ninety_days_later(
    start_store: Callable[..., Store], client: Any, end: str
) -> None:
    job = Job(start_store(), client, "export:acme", per_argument=True)
    claim, grant = job.acquire(delivery="one/0", slot="1757851200")
    if end == "release":
        job.release(claim, grant)
    elif end == "refuse":
        job.refused()
    else:
        job.store.withdraw(claim, "2026-09-14T12:15:03.123Z")
    lives = {key: client.pttl(key) for key in job.keys.all[1:] if client.exists(key)}
    assert {job.keys.ledger, job.keys.runs} <= lives.keys()
    for key, left in lives.items():
        assert NINETY_DAYS_MS - 10_000 < left <= NINETY_DAYS_MS, key


def test_what_a_job_with_one_lease_leaves_behind_stays(job: Job) -> None:
    job.release(*job.acquire(delivery="one/0", slot="1757851200"))
    assert {key: job.client.ttl(key) for key in job.keys.all[1:]} == dict.fromkeys(job.keys.all[1:], -1)


def test_the_ledger_survives_a_restart_of_the_store(
    start_server: Callable[..., Server], start_store: Callable[..., Store]
) -> None:
    server = start_server(persistent=True)
    with server.client() as client:
        job = Job(start_store(server.url), client)
        job.run(worked=3, backlog=7)
        job.acquire()
        job.refused()
        before = job.ledger, job.records
    server.stop()
    server.start()
    with server.client() as client:
        job = Job(start_store(server.url), client)
        assert (job.ledger, job.records) == before
        state = Ledger(job.store).state("job")
        assert (state.streak, state.backlog, state.totals) == (1, 7, {"ran": 1, "skipped_locked": 1})
        assert state.open_run is not None


def test_an_unguarded_run_is_a_real_one_with_a_fence_of_its_own(job: Job) -> None:
    held, grant = job.acquire()
    job.refused()
    claim, own = job.claim(), job.store.fence("job")
    assert own.fence > grant.fence
    job.store.unguarded(claim, own, "unguarded", {"worked": 0, "backlog": 2})
    state = Ledger(job.store).state("job")
    assert state.last_ran is not None
    assert (state.last_worked, state.streak, state.backlog) == (None, 0, 2)
    assert state.open_run is not None, "the run that holds the lease goes on"
    assert job.release(held, grant) == "ran"


@pytest.mark.parametrize("outcome", ["failed", "dry_run"])
def test_an_unguarded_run_that_is_not_real_moves_nothing(job: Job, outcome: str) -> None:
    job.acquire()
    job.refused()
    job.store.unguarded(job.claim(), job.store.fence("job"), outcome, {"worked": 0})
    state = Ledger(job.store).state("job")
    assert (state.last_ran, state.streak, state.totals[outcome]) == (None, 1, 1)


def test_slots_are_written_down_as_missed_once(job: Job) -> None:
    job.store.judge("job", 1800, [900, 1800], per_argument=False)
    job.store.judge("job", 1800, [900, 1800], per_argument=False)
    job.store.judge("job", 900, [900], per_argument=False)
    job.store.judge("job", 2700, [900, 2700], per_argument=False)
    assert [record["slot"] for record in job.records] == ["900", "1800", "2700"]
    assert job.total("missed") == 3
    assert job.streak == 0


def test_a_holder_is_shown_as_connected_only_while_the_store_sees_its_channel(job: Job) -> None:
    job.acquire()
    holder = Ledger(job.store).state("job").holder or {}
    assert "connected" not in holder
    channel = f"{job.keys.lease}:alive:somebody"
    job.client.hset(job.keys.lease, "alive", channel)
    assert (Ledger(job.store).state("job").holder or {})["connected"] == "0"
    with job.client.pubsub() as somebody:
        somebody.ssubscribe(channel)
        assert somebody.get_message(timeout=5)
        holder = Ledger(job.store).state("job").holder or {}
    assert holder["connected"] == "1"
    assert "alive" not in holder
