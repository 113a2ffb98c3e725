"""withdraw.lua on a real server: an acquire that nobody waits for any more takes no lease."""

from tests.support.leases import Job

SINCE = "2026-09-14T12:15:03.123Z"


def test_a_lease_that_was_granted_to_nobody_is_taken_back_and_leaves_a_skip(job: Job) -> None:
    claim, _ = job.acquire()
    job.store.withdraw(claim, SINCE)
    assert not job.is_held()
    [record] = job.records
    assert record["outcome"] == "skipped_lock_unavailable"
    assert record["ended"] == job.ledger["last_skipped"] == SINCE
    assert record["task_id"] == "one"
    assert job.streak == job.total("skipped_lock_unavailable") == 1
    job.run()
    assert job.outcomes[1:] == ["ran"], "the run that never was is not an abandoned one"


def test_an_acquire_that_arrives_after_its_withdrawal_takes_nothing(job: Job) -> None:
    claim = job.claim()
    job.store.withdraw(claim, SINCE)
    assert job.refused(claim).answer == "finished"
    assert not job.is_held()
    assert job.outcomes == ["skipped_lock_unavailable"]
    job.acquire()


def test_a_withdrawal_whose_reply_was_lost_counts_once(job: Job) -> None:
    claim, _ = job.acquire()
    for _ in range(3):
        job.store.withdraw(claim, SINCE)
    assert job.streak == job.total("skipped_lock_unavailable") == 1


def test_a_refusal_whose_reply_was_lost_stays_the_one_skip_of_its_run(job: Job) -> None:
    job.acquire()
    refused = [job.claim() for _ in range(3)]
    for claim in refused:
        assert job.refused(claim).answer == "locked"
    for claim in refused:
        job.store.withdraw(claim, SINCE)
    assert job.outcomes == ["skipped_locked"] * 3
    assert job.streak == 3
    assert job.refused(refused[0]).answer == "finished"


def test_a_message_that_a_copy_has_carried_out_meanwhile_was_not_skipped(job: Job) -> None:
    unanswered = job.claim(delivery="one/0")
    job.release(*job.acquire(delivery="one/0", copy="redelivered"))
    job.store.withdraw(unanswered, SINCE)
    assert job.outcomes == ["ran"]
    assert job.streak == 0


def test_a_message_that_a_copy_is_carrying_out_was_not_skipped(job: Job) -> None:
    unanswered = job.claim(delivery="one/0")
    run = job.acquire(delivery="one/0", copy="redelivered")
    job.store.withdraw(unanswered, SINCE)
    assert job.release(*run) == "ran"
    assert job.outcomes == ["ran"]


def test_a_copy_that_got_no_answer_leaves_no_skip(job: Job) -> None:
    claim, _ = job.acquire(delivery="one/0", copy="redelivered")
    job.store.withdraw(claim, "")
    assert not job.is_held()
    assert job.outcomes == []
    assert job.streak == 0
    assert job.refused(claim).answer == "finished"
    job.run()
    assert job.outcomes == ["ran"]


def test_a_copy_of_a_message_that_was_withdrawn_has_nothing_to_do(job: Job) -> None:
    job.store.withdraw(job.claim(delivery="one/0"), SINCE)
    assert job.refused(delivery="one/0", copy="redelivered").answer == "finished"
    job.acquire(delivery="one/1", copy="redelivered")


def test_a_withdrawal_leaves_the_lease_and_the_open_run_of_another_alone(job: Job) -> None:
    _, grant = job.acquire()
    held = job.held
    job.store.withdraw(job.claim(), SINCE)
    assert job.held == held
    assert job.ledger["open_fence"] == str(grant.fence)


def test_a_renewal_that_was_under_way_does_not_revive_a_withdrawn_lease(job: Job) -> None:
    claim, grant = job.acquire()
    job.store.withdraw(claim, SINCE)
    job.acquire()
    assert job.renew(claim, grant) == "lost"
