"""peek.lua on a real server: who has the lease, for people."""

from tests.support.leases import SECONDS, Job


def test_a_free_lease_has_no_holder(job: Job) -> None:
    assert job.store.peek("job") is None


def test_a_holder_is_shown_with_its_fence_and_the_beginning_of_its_token_only(job: Job) -> None:
    claim, grant = job.acquire()
    holder = job.store.peek("job")
    assert holder is not None
    assert 0 < holder["expires_in"] <= SECONDS
    expected = {
        "task_id": "one",
        "worker": "w@here",
        "since": grant.since,
        "renewed": grant.since,
        "fence": str(grant.fence),
        "token_prefix": claim.token[:8],
    }
    assert expected.items() <= holder.items()
    assert claim.token not in repr(holder)


def test_looking_changes_nothing(job: Job) -> None:
    job.acquire()
    before = job.held
    job.store.peek("job")
    assert job.held == before


def test_a_strangers_key_is_held_by_nobody_known(job: Job) -> None:
    job.client.set(job.keys.lease, "an old lock", ex=60)
    assert job.store.peek("job") == {}
