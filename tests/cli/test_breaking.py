"""`break`: who holds it, whether that is who the operator saw, and an entry in the ledger."""

import getpass
from collections.abc import Callable

import pytest

from tests.cli.command import Lease
from tests.nodes.waiting import wait_until
from tests.run.terminal import Terminal
from tests.support.leases import Job
from tests.support.site import Site


def test_a_lease_is_broken_for_the_token_that_was_seen_and_that_is_in_the_ledger(
    lease: Lease, job: Job
) -> None:
    claim, grant = job.acquire()
    done = lease("break", "counts", "--token", claim.token[:8])
    assert done.code == 0, done.err
    assert "held by task one on w@here (pid 7)" in done.out
    assert "whether its process lives cannot be told" in done.out
    assert not job.is_held()
    [record] = job.records
    assert (record["outcome"], record["held_by"], record["held_fence"]) == ("broken", "one", str(grant.fence))
    assert record["by"].startswith(f"{getpass.getuser()}@")
    assert claim.token not in str(record)


def test_a_holder_whose_lease_was_broken_is_lost_and_does_not_take_it_back(lease: Lease, job: Job) -> None:
    claim, grant = job.acquire()
    assert lease("break", "counts", "--token", claim.token[:8]).code == 0
    assert job.renew(claim, grant) == "lost"
    assert job.release(claim, grant) == "lost"
    assert job.acquire()[1].fence > grant.fence


def test_another_holder_than_the_one_that_was_seen_is_left_alone(lease: Lease, job: Job) -> None:
    job.acquire()
    done = lease("break", "counts", "--token", "0123zzzz", "--force")
    assert done.code == 75
    assert "somebody else holds it than you saw" in done.err
    assert job.is_held()
    assert job.outcomes == []


def test_a_connected_holder_needs_force_and_is_told_at_once(lease: Lease, site: Site) -> None:
    worker = site.start_worker("-E", PROBE_LEASE_SECONDS="300")
    first = site.occupy()
    token = site.held("barrier")["token"]
    done = lease("break", "barrier", "--token", token[:8], "--json")
    assert (done.code, done.json["error"]) == (75, "connected")
    assert "its process is connected" in lease("break", "barrier", "--token", token[:8]).out
    assert site.held("barrier")["token"] == token
    done = lease("break", "barrier", "--token", token[:8], "--force", "--json")
    assert done.json["told"] is True
    # Its next renewal would be a minute and a half away.
    wait_until(lambda: worker.count("lease lost"), seconds=5)
    site.open()
    first.get(timeout=20)
    assert site.outcomes("barrier") == ["broken", "lost"]


def test_an_old_string_lock_needs_force(lease: Lease, job: Job) -> None:
    job.client.set(job.keys.lease, "1757851200000", ex=3 * 3600)
    done = lease("break", "counts")
    assert done.code == 75
    assert "--force deletes it" in done.err
    assert lease("break", "counts", "--force").code == 0
    assert not job.is_held()
    assert job.outcomes == ["broken"]


def test_what_nobody_holds_cannot_be_broken(lease: Lease, job: Job) -> None:
    done = lease("break", "counts")
    assert done.code == 1
    assert "nobody holds the lease" in done.err
    assert job.outcomes == []


def test_without_a_token_somebody_must_say_yes(
    lease: Lease, job: Job, in_terminal: Callable[..., Terminal]
) -> None:
    job.acquire()
    done = lease("break", "counts")
    assert done.code == 2
    assert "--token PREFIX" in done.err
    for key, is_held in ((b"n\n", True), (b"y\n", False)):
        terminal = in_terminal("break", "counts")
        terminal.expect("task one on w@here")
        terminal.expect("Break it?")
        terminal.press(key)
        terminal.ends()
        assert job.is_held() is is_held


@pytest.mark.parametrize("prefix", ["", "a", "abc"])
def test_a_token_too_short_to_tell_holders_apart_is_refused(lease: Lease, job: Job, prefix: str) -> None:
    job.acquire()
    assert lease("break", "counts", "--token", prefix).code == 2
    assert job.is_held()
