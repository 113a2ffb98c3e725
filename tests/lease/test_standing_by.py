"""Claims that are presented again and again, as a standby scheduler does."""

import time

from celery_lease._store import Grant, Refusal
from tests.nodes.waiting import wait_until
from tests.support.leases import Job


def test_standing_by_is_no_skip(job: Job) -> None:
    job.acquire()
    for _ in range(3):
        assert job.refused(standby=True).answer == "locked"
    assert job.outcomes == []
    assert job.streak == 0


def test_a_standby_learns_who_holds_the_lease(job: Job) -> None:
    job.acquire(holder={"host": "far away"})
    assert job.refused(standby=True).holder["host"] == "far away"


def test_a_standby_gets_the_lease_once_it_is_free(job: Job) -> None:
    claim, grant = job.acquire()
    waiting = job.claim(standby=True)
    assert isinstance(job.store.acquire(waiting), Refusal)
    job.release(claim, grant)
    assert isinstance(job.store.acquire(waiting), Grant)


def test_a_standby_takes_over_from_a_holder_that_is_gone(job: Job) -> None:
    job.acquire()
    job.client.hset(job.keys.lease, "alive", job.keys.alive("nobody"))
    job.client.persist(job.keys.lease)
    waiting = job.claim(standby=True)
    assert job.store.acquire(waiting) == Refusal("waiting", job.refused(waiting).holder)
    began = time.monotonic()
    wait_until(lambda: isinstance(job.store.acquire(waiting), Grant))
    assert time.monotonic() - began > 0.9 * job.store.settings.grace
    assert job.outcomes == ["abandoned"]


def test_a_grant_whose_answer_was_lost_begins_anew_when_it_is_asked_for_again(job: Job) -> None:
    claim, grant = job.acquire()
    job.client.pexpire(job.keys.lease, 100)
    _, again = job.acquire(claim)
    assert again.fence == grant.fence
    left = job.client.pttl(job.keys.lease)
    assert isinstance(left, int)
    assert left > 0.9 * job.store.settings.seconds * 1000
