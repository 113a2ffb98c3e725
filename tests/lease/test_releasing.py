"""release.lua on a real server: the lease is free, and the run is closed once, whoever asks again."""

import pytest

from tests.support.leases import Job


def test_the_owner_gives_the_lease_back_and_the_run_is_written_down(job: Job) -> None:
    claim, grant = job.acquire()
    assert job.release(claim, grant, worked=3, backlog=12) == "ran"
    assert not job.is_held()
    [record] = job.records
    assert record["ended"] >= record["since"] == grant.since
    expected = {
        "outcome": "ran",
        "fence": str(grant.fence),
        "worked": "3",
        "backlog": "12",
        "task": "job",
        "task_id": "one",
        "worker": "w@here",
        "pid": "7",
    }
    assert expected.items() <= record.items()
    assert claim.token not in repr(record)


def test_nobody_gives_somebody_elses_lease_back(job: Job) -> None:
    stale, first = job.acquire()
    job.expire()
    job.acquire()
    held = job.held
    assert job.release(stale, first) == "lost"
    assert job.held == held
    assert job.records[-1]["outcome"] == "lost"
    assert job.records[-1]["fence"] == str(first.fence)
    assert "last_ran" not in job.ledger, "a run whose lease was taken is not a run that counts"


def test_a_run_is_lost_when_another_came_and_went_in_between(job: Job) -> None:
    stale, first = job.acquire()
    job.expire()
    job.run()
    assert job.release(stale, first) == "lost"


def test_a_lease_that_only_ran_out_was_not_lost(job: Job) -> None:
    claim, grant = job.acquire()
    job.expire()
    assert job.release(claim, grant) == "ran"
    assert job.outcomes == ["ran"]


def test_only_the_call_was_late_and_the_run_counts_although_another_has_come_since(job: Job) -> None:
    stale, first = job.acquire()
    job.expire()
    job.acquire()
    held = job.held
    assert job.release(stale, first, late=True, worked=2) == "ran"
    assert job.held == held
    assert job.total("ran") == 1
    assert job.ledger["last_ran"]


@pytest.mark.parametrize("late", [False, True])
def test_a_release_whose_reply_was_lost_answers_the_same_again_and_counts_once(
    job: Job, *, late: bool
) -> None:
    claim, grant = job.acquire()
    answers = {job.release(claim, grant, late=late, worked=1) for _ in range(3)}
    assert answers == {"ran"}
    assert (job.outcomes, job.total("ran")) == (["ran"], 1)


def test_a_lost_runs_release_asked_again_counts_once(job: Job) -> None:
    stale, first = job.acquire()
    job.expire()
    job.acquire()
    assert job.release(stale, first) == job.release(stale, first) == "lost"
    assert job.total("lost") == 1


@pytest.mark.parametrize("late", [False, True])
def test_a_release_asked_again_counts_once_although_another_run_was_closed_in_between(
    job: Job, *, late: bool
) -> None:
    claim, grant = job.acquire()
    job.release(claim, grant, late=late)
    job.run()
    assert job.release(claim, grant, late=late) == "ran"
    assert job.outcomes == ["ran", "ran"]
    assert job.total("ran") == 2


def test_a_late_release_leaves_the_next_ones_open_run_alone(job: Job) -> None:
    stale, first = job.acquire()
    job.expire()
    _, second = job.acquire()
    job.release(stale, first)
    assert job.ledger["open_fence"] == str(second.fence)
    job.expire()
    job.acquire()
    assert job.records[-1]["outcome"] == "abandoned"
    assert job.records[-1]["fence"] == str(second.fence)


def test_a_slot_is_done_by_a_run_only_and_never_goes_back(job: Job) -> None:
    for outcome in ("failed", "retried", "skipped_locked"):
        job.release(*job.acquire(slot="200"), outcome)
        assert job.client.hgetall(job.keys.slot) == {}
    stale, first = job.acquire(slot="100")
    job.expire()
    job.release(*job.acquire(slot="200"))
    job.release(stale, first, late=True)
    assert job.client.hgetall(job.keys.slot) == {"": "200"}


def test_a_retried_message_is_not_finished_before_the_next_one_is_sent(job: Job) -> None:
    claim, grant = job.acquire(delivery="one/0")
    job.release(claim, grant, "retried")
    job.release(*job.acquire(delivery="one/0", copy="redelivered"), "retried")
    job.store.finish(claim)
    assert job.refused(delivery="one/0", copy="redelivered").answer == "finished"


def test_finished_messages_are_remembered_by_the_thousand_and_for_two_days(job: Job) -> None:
    now = job.acquire()[1].fence
    job.expire()
    two_days = 2 * 86400 * 1_000_000
    job.client.zadd(job.keys.done, {"old/0": now - two_days - 1, "yesterday/0": now - two_days // 2})
    job.release(*job.acquire(delivery="one/0"))
    assert job.client.zscore(job.keys.done, "old/0") is None
    assert job.client.zscore(job.keys.done, "yesterday/0") is not None
    job.client.zadd(job.keys.done, {f"many{i}/0": now - i for i in range(1500)})
    job.release(*job.acquire(delivery="last/0"))
    assert job.client.zcard(job.keys.done) == 1000
    assert job.client.zscore(job.keys.done, "last/0") is not None


def test_the_late_end_of_an_older_run_does_not_let_a_late_renewal_revive_a_newer_one(job: Job) -> None:
    older = job.acquire()
    job.expire()
    newer = job.acquire()
    assert job.release(*newer) == "ran"
    assert job.release(*older) == "lost"
    assert job.renew(*newer) == "released"
    assert not job.is_held()
    assert job.release(*newer) == "ran"
    assert job.outcomes == ["abandoned", "ran", "lost"]


def test_a_message_that_was_put_back_comes_again_also_if_its_lease_was_lost_before(job: Job) -> None:
    claim, grant = job.acquire(delivery="one/0", message="m")
    job.expire()
    other = job.acquire(delivery="two/0")
    assert job.release(claim, grant, "retried") == "lost"
    job.release(*other)
    job.release(*job.acquire(delivery="one/0", message="m", copy="redelivered"))
    assert job.outcomes == ["abandoned", "lost", "ran", "ran"]
