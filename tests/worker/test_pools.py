"""Pools without processes of their own: many runs in one process, and time limits that nobody enforces."""

import time
from importlib.util import find_spec

import pytest

from celery_lease import SKIPPED
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends

LEASE_SECONDS = 3


def owners_over(site: Site, name: str, seconds: float) -> set[str | None]:
    """Who had the lease at any moment of that time."""
    seen, end = set(), time.monotonic() + seconds
    while time.monotonic() < end:
        seen.add(site.held(name).get("token"))
        time.sleep(0.05)
    return seen


def test_in_one_process_one_run_goes_on_and_three_are_skipped(site: Site) -> None:
    site.start_worker("-P", "threads", concurrency=4)
    first = site.occupy()
    token = site.held("barrier")["token"]
    assert ends(*[site.send("barrier") for _ in range(3)]) == [SKIPPED] * 3
    assert owners_over(site, "barrier", LEASE_SECONDS + 1) == {token}
    site.open()
    assert first.get(timeout=10) == "opened"
    assert site.held("barrier") == {}
    assert site.outcomes("barrier") == ["skipped_locked"] * 3 + ["ran"]


def test_runs_in_one_process_know_their_own_leases(site: Site) -> None:
    site.start_worker("-P", "threads", concurrency=4)
    results = {tenant: site.send("per_tenant", tenant, 1) for tenant in ("a", "b", "c")}
    wait_until(lambda: all(site.held(f"export:{tenant}") for tenant in results))
    assert len({site.held(f"export:{tenant}")["token"] for tenant in results}) == 3
    assert ends(site.send("per_tenant", "a", 0)) == [SKIPPED]
    for tenant, result in results.items():
        assert result.get(timeout=10) == f"export:{tenant}"
        assert site.held(f"export:{tenant}") == {}
    assert site.outcomes("export:a") == ["skipped_locked", "ran"]
    assert site.outcomes("export:b") == ["ran"]


def test_a_thread_that_burns_the_processor_keeps_its_lease(site: Site) -> None:
    site.start_worker("-P", "threads", concurrency=2)
    result = site.send("burn", 3 * LEASE_SECONDS)
    wait_until(lambda: site.held("burn"))
    token = site.held("burn")["token"]
    assert owners_over(site, "burn", 3 * LEASE_SECONDS - 0.5) == {token}
    assert ends(result) == ["SUCCESS"]
    assert site.outcomes("burn") == ["ran"]


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_in_a_process_of_greenlets_nothing_stands_still_for_a_lease(site: Site, pool: str) -> None:
    if find_spec(pool) is None:
        pytest.skip(f"{pool} is not installed")
    site.start_worker("-P", pool, concurrency=10)
    first = site.occupy()
    token = site.held("barrier")["token"]
    began = time.monotonic()
    assert ends(*[site.send("barrier") for _ in range(3)]) == [SKIPPED] * 3
    assert time.monotonic() - began < 0.5, "a start that waits for a thread blocks every greenlet"
    assert owners_over(site, "barrier", LEASE_SECONDS + 1) == {token}
    site.open()
    assert first.get(timeout=10) == "opened"
    assert site.held("barrier") == {}
    results = {tenant: site.send("per_tenant", tenant, 0.5) for tenant in ("a", "b", "c")}
    for tenant, result in results.items():
        assert result.get(timeout=10) == f"export:{tenant}"


def test_a_hung_thread_past_its_hard_limit_lets_its_lease_run_out(site: Site) -> None:
    limit = 2
    hung_in = site.start_worker("-P", "threads", "-Q", "one")
    site.start_worker("-Q", "two")
    began = time.monotonic()
    hung = site.send("barrier", "hung", queue="one", time_limit=limit)
    site.entered("hung")
    token = site.held("barrier")["token"]
    assert owners_over(site, "barrier", limit - 0.5) == {token}
    second = site.run_as_soon_as_possible("barrier", "second", seconds=limit + LEASE_SECONDS, queue="two")
    site.entered("second")
    assert time.monotonic() - began < limit + LEASE_SECONDS + 1
    assert hung_in.count("ERROR.*barrier: the run is past its hard time limit and goes on") == 1
    site.open("hung")
    assert hung.get(timeout=10) == "opened"
    assert site.held("barrier")["task_id"] == second.id, "the hung run gave back a lease that was not its own"
    site.open("second")
    assert second.get(timeout=10) == "opened"
    assert site.outcomes("barrier")[-2:] == ["lost", "ran"]


def test_the_solo_pool_renews_while_its_only_thread_is_in_the_body(site: Site) -> None:
    solo = site.start_worker("-P", "solo", "-Q", "one", concurrency=1)
    site.start_worker("-Q", "two")
    first = site.send("barrier", queue="one")
    assert site.entered() == solo.pid
    token = site.held("barrier")["token"]
    assert owners_over(site, "barrier", LEASE_SECONDS + 1) == {token}
    assert ends(*[site.send("barrier", queue="two") for _ in range(3)]) == [SKIPPED] * 3
    site.open()
    assert first.get(timeout=10) == "opened"
    assert site.held("barrier") == {}
    assert ends(site.send("counts", 1, 0, queue="one")) == ["SUCCESS"]
