"""acquire.lua on a real server: who gets the lease, and what everybody else is told."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from celery_lease._store import Refusal, Store
from tests.support.leases import SECONDS, Job

REDELIVERED = "redelivered"
FAR_FUTURE = 9_000_000_000_000_000  # microseconds: in the 23rd century, and below 2^53


def server_micros(client: Any) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1_000_000 + int(micros)


def test_a_free_lease_is_granted_with_a_fence_and_a_since_of_the_servers_clock(job: Job) -> None:
    before = server_micros(job.client)
    _, grant = job.acquire()
    assert before <= grant.fence <= server_micros(job.client)
    since = datetime.fromisoformat(grant.since).timestamp()
    assert since == pytest.approx(grant.fence / 1e6, abs=0.002)


def test_a_lease_is_a_hash_that_a_person_can_read_and_that_ends_by_itself(job: Job) -> None:
    claim, grant = job.acquire()
    held = job.held
    expected = {
        "token": claim.token,
        "fence": str(grant.fence),
        "since": grant.since,
        "renewed": grant.since,
        "task": "job",
        "task_id": "one",
        "worker": "w@here",
        "host": "here",
        "pid": "7",
    }
    assert expected.items() <= held.items()
    assert SECONDS * 1000 - 500 < job.client.pttl(job.keys.lease) <= SECONDS * 1000


def test_a_held_lease_is_refused_with_the_holder_and_without_its_token(job: Job) -> None:
    claim, grant = job.acquire()
    refusal = job.refused(holder={"task_id": "two"})
    assert refusal.answer == "locked"
    assert refusal.holder["task_id"] == "one"
    assert refusal.holder["since"] == grant.since
    assert 0 < refusal.holder["expires_in"] <= SECONDS
    assert claim.token not in repr(refusal)
    assert job.held["token"] == claim.token


def test_an_acquire_whose_reply_was_lost_gets_the_same_grant_again_and_counts_once(job: Job) -> None:
    claim, grant = job.acquire()
    held, ledger = job.held, job.ledger
    assert job.store.acquire(claim) == grant
    assert (job.held, job.ledger, job.records) == (held, ledger, [])


def test_a_refusal_whose_reply_was_lost_is_given_again_and_counts_once(job: Job) -> None:
    job.acquire()
    late = job.claim()
    assert job.refused(late).answer == job.refused(late).answer == "locked"
    assert job.outcomes == ["skipped_locked"]
    assert (job.streak, job.total("skipped_locked")) == (1, 1)


def test_two_refusals_count_twice(job: Job) -> None:
    job.acquire()
    job.refused()
    job.refused()
    assert (job.streak, job.total("skipped_locked")) == (2, 2)


def test_every_grant_has_a_higher_fence_than_the_one_before(job: Job) -> None:
    fences = [job.run().fence for _ in range(20)]
    assert fences == sorted(set(fences))


def test_a_fence_ahead_of_the_clock_still_grows_by_one(job: Job) -> None:
    job.client.set(job.keys.fence, FAR_FUTURE)
    assert job.run().fence == FAR_FUTURE + 1
    assert job.run().fence == FAR_FUTURE + 2
    assert job.client.get(job.keys.fence) == str(FAR_FUTURE + 2)


def test_fences_do_not_go_back_when_the_store_has_lost_everything(job: Job) -> None:
    before = job.run().fence
    job.client.flushall()
    assert job.run().fence > before


@pytest.mark.parametrize(
    "command",
    [
        ("SET", "1757851200"),
        ("RPUSH", "x"),
        ("SADD", "x"),
        ("ZADD", "1", "x"),
        ("XADD", "*", "f", "v"),
        ("HSET", "owner", "an-older-program"),
    ],
    ids=lambda command: str(command[0]),
)
def test_a_strangers_key_is_a_lock_by_somebody_unknown_and_nobody_touches_it(
    job: Job, command: tuple[str, ...]
) -> None:
    name, *values = command
    job.client.execute_command(name, job.keys.lease, *values)
    before = job.client.dump(job.keys.lease)
    claim = job.claim()
    refusal = job.refused(claim)
    assert refusal.answer == "locked"
    assert not {"task_id", "token", "fence"} & refusal.holder.keys()
    assert "expires_in" not in refusal.holder
    assert job.store.peek("job") is not None
    job.store.withdraw(claim, "2026-09-14T12:15:03.000Z")
    assert job.client.dump(job.keys.lease) == before
    assert job.outcomes == ["skipped_locked"]


def test_a_strangers_lock_that_ends_lets_the_next_one_in(job: Job) -> None:
    job.client.set(job.keys.lease, "old lock", px=10_800_000)
    assert job.refused().answer == "locked"
    job.expire()
    job.acquire()


def test_a_run_that_never_reported_its_end_is_written_down_by_the_next_one_once(job: Job) -> None:
    _, dead = job.acquire(holder={"task_id": "dead", "worker": "w@gone"})
    job.expire()
    job.run()
    job.run()
    abandoned, *others = job.records
    assert abandoned["outcome"] == "abandoned"
    assert abandoned["fence"] == str(dead.fence)
    assert (abandoned["task_id"], abandoned["worker"]) == ("dead", "w@gone")
    assert abandoned["since"] == dead.since
    assert [record["outcome"] for record in others] == ["ran", "ran"]
    assert job.total("abandoned") == 1


def test_a_slot_that_was_done_is_not_done_again(job: Job) -> None:
    claim, grant = job.acquire(slot="1757851200")
    job.release(claim, grant)
    assert job.refused(slot="1757851200").answer == "already_done"
    assert job.refused(slot="1757850300").answer == "already_done", "an older slot"
    job.release(*job.acquire(slot="1757852100"))
    assert job.outcomes == ["ran", "skipped_already_done", "skipped_already_done", "ran"]
    assert job.streak == 0, "nothing was missed"


def test_two_entries_of_one_lease_have_slots_of_their_own(job: Job) -> None:
    """A daily and a weekly report are both due on Monday at midnight."""
    job.release(*job.acquire(slot="1757894400", entry="daily"))
    job.release(*job.acquire(slot="1757894400", entry="weekly"))
    assert job.refused(slot="1757894400", entry="daily").answer == "already_done"
    assert job.outcomes == ["ran", "ran", "skipped_already_done"]


def test_slots_are_compared_as_numbers(job: Job) -> None:
    job.release(*job.acquire(slot="999999999"))
    job.release(*job.acquire(slot="1000000000"))
    assert job.client.hgetall(job.keys.slot) == {"": "1000000000"}


def test_a_run_by_hand_has_no_slot_and_always_runs(job: Job) -> None:
    job.release(*job.acquire(slot="1757851200"))
    job.release(*job.acquire())
    assert job.outcomes == ["ran", "ran"]
    assert job.client.hgetall(job.keys.slot) == {"": "1757851200"}


def test_a_slot_whose_run_failed_may_be_tried_again(job: Job) -> None:
    job.release(*job.acquire(slot="1757851200"), "failed")
    job.release(*job.acquire(slot="1757851200"))
    assert job.outcomes == ["failed", "ran"]


def test_a_second_copy_of_a_finished_message_leaves_no_trace(job: Job) -> None:
    job.release(*job.acquire(delivery="one/0"))
    ledger = job.ledger
    assert job.refused(delivery="one/0", copy=REDELIVERED) == Refusal("finished", {})
    assert (job.ledger, job.outcomes) == (ledger, ["ran"])


def test_a_second_copy_of_a_message_that_is_being_carried_out_leaves_no_trace(job: Job) -> None:
    job.acquire(delivery="one/0")
    ledger = job.ledger
    assert job.refused(delivery="one/0", copy=REDELIVERED).answer == "live"
    assert (job.ledger, job.records) == (ledger, [])


def test_a_message_whose_copy_is_being_carried_out_leaves_no_trace(job: Job) -> None:
    """It waited in a busy worker until the broker sent a copy of it to another one."""
    job.acquire(delivery="one/0", copy=REDELIVERED)
    ledger = job.ledger
    assert job.refused(delivery="one/0").answer == "live"
    assert (job.ledger, job.records) == (ledger, [])


def test_a_run_that_was_refused_stays_refused_when_it_asks_again_for_the_lost_answer(job: Job) -> None:
    holder = job.acquire()
    claims = [job.claim() for _ in range(7)]
    assert {job.refused(claim).answer for claim in claims} == {"locked"}
    job.release(*holder)
    assert {job.refused(claim).answer for claim in claims} == {"locked"}
    assert job.outcomes == [*["skipped_locked"] * 7, "ran"]
    job.run()


def test_a_copy_that_asks_again_for_the_lost_answer_is_told_again_to_park_itself(job: Job) -> None:
    job.acquire(delivery="one/0")
    copy = job.claim(delivery="one/0", copy=REDELIVERED)
    told = job.refused(copy)
    assert told.detail
    assert job.refused(copy) == told
    assert job.refused(delivery="one/0", copy=REDELIVERED).detail == "", "one parked copy is enough"
    assert "parked_by" not in job.refused().holder


def test_another_messages_redelivery_is_an_ordinary_skip(job: Job) -> None:
    job.acquire(delivery="one/0")
    assert job.refused(delivery="one/1", copy=REDELIVERED).answer == "locked", "a later attempt"
    assert job.refused(delivery="two/0", copy=REDELIVERED).answer == "locked", "another task"
    assert job.total("skipped_locked") == 2


def test_a_redelivered_message_whose_worker_died_is_carried_out(job: Job) -> None:
    job.acquire(delivery="one/0")
    job.expire()
    job.release(*job.acquire(delivery="one/0", copy=REDELIVERED))
    assert job.outcomes == ["abandoned", "ran"]


@pytest.mark.parametrize("names", [["one"], ["one", "two"], list("abcdefgh")])
def test_each_message_that_kills_its_worker_is_tried_so_often_whoever_else_dies_and_whoever_notices(
    job: Job, names: list[str]
) -> None:
    cap = job.store.settings.delivery_cap
    starts: list[str] = []
    for _ in range(cap):
        for name in names:
            job.acquire(delivery=f"{name}/0", copy=REDELIVERED)
            starts.append(name)
            job.expire()
            if len(starts) % 2:  # the watchdog is there before the next run
                while job.store.abandon("job", leaseless_seconds=0, unconnected_seconds=0) != "abandoned":
                    pass
    for name in names:
        assert job.refused(delivery=f"{name}/0", copy=REDELIVERED).answer == "capped"
    assert job.total("abandoned") == len(starts)


def test_a_message_sent_again_on_purpose_is_carried_out_again(job: Job) -> None:
    job.release(*job.acquire(delivery="one/0"))
    job.release(*job.acquire(delivery="one/0"))
    assert job.outcomes == ["ran", "ran"]


def test_a_message_sent_again_with_the_same_id_is_told_from_a_copy_of_the_first(job: Job) -> None:
    job.release(*job.acquire(delivery="one/0", message="first"))
    job.release(*job.acquire(delivery="one/0", message="second"))
    assert job.refused(delivery="one/0", message="first") == Refusal("finished", {})
    assert job.refused(delivery="one/0", message="first", copy=REDELIVERED) == Refusal("finished", {})
    assert job.outcomes == ["ran", "ran"]


def test_names_are_listed_where_people_look_for_jobs(job: Job, start_store: Callable[..., Store]) -> None:
    job.acquire()
    Job(start_store(), job.client, "other").acquire()
    assert job.client.smembers("cron:jobs") == {"job", "other"}


def test_every_key_of_a_job_has_the_prefix_and_one_lease_does_not_disturb_another(
    job: Job, start_store: Callable[..., Store]
) -> None:
    apart = Job(start_store(lease_key_prefix="acme:"), job.client)
    job.acquire()
    apart.release(*apart.acquire(slot="1757851200", delivery="one/0"))
    assert job.is_held()
    keys = set(job.client.keys())
    assert {key for key in keys if key.startswith("acme:")} == {*apart.keys.all[1:], "acme:jobs"}
    assert {key for key in keys if not key.startswith("acme:")} <= {*job.keys.all, "cron:jobs"}
