"""The same promises in every pool that Celery has, and in every way of handing out its processes."""

import time

import pytest
from celery.exceptions import TimeLimitExceeded

from celery_lease import SKIPPED
from tests.nodes.missing import needs_package
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends
from tests.support.workers import Worker

pytestmark = pytest.mark.slow

LEASE_SECONDS = 3

POOLS = {
    "prefork": ("-P", "prefork"),
    "prefork, a process for each run": ("-P", "prefork", "--max-tasks-per-child=1"),
    "prefork, autoscaled": ("-P", "prefork", "--autoscale=3,1"),
    "threads": ("-P", "threads"),
    "solo": ("-P", "solo"),
    "gevent": ("-P", "gevent"),
    "eventlet": ("-P", "eventlet"),
}
#: Where one worker carries out more than one run at a time.
CONCURRENT = [pool for pool in POOLS if pool != "solo"]


@pytest.fixture(autouse=True)
def _needs_pool(request: pytest.FixtureRequest) -> None:
    """The pools of greenlets come with a package of their own."""
    pool = request.node.callspec.params["pool"]
    if pool in {"gevent", "eventlet"}:
        needs_package(pool)


def start(site: Site, pool: str, queue: str = "celery") -> Worker:
    return site.start_worker("-Q", queue, *POOLS[pool], concurrency=4)


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_is_exclusive_for_several_terms_of_its_lease(site: Site, pool: str) -> None:
    holder = start(site, pool, "one")
    start(site, pool, "two")
    first = site.send("barrier", queue="one")
    site.entered()
    before = site.held("barrier")
    queues = ["two"] if pool == "solo" else ["one", "two"]
    deadline, skips = time.monotonic() + 2.2 * LEASE_SECONDS, 0
    while time.monotonic() < deadline:
        results = [site.send("barrier", queue=queue) for queue in queues]
        assert ends(*results) == [SKIPPED] * len(queues)
        skips += len(queues)
        time.sleep(0.3)
    held = site.held("barrier")
    assert (held["token"], held["alive"]) == (before["token"], before["alive"])
    assert held["renewed"] > before["renewed"]
    assert site.is_holder_connected("barrier")
    site.open()
    assert first.get(timeout=10) == "opened"
    assert site.held("barrier") == {}
    assert site.outcomes("barrier") == ["skipped_locked"] * skips + ["ran"]
    assert holder.count("Traceback|retaken|lost") == 0


@pytest.mark.parametrize("pool", POOLS)
def test_a_killed_worker_is_taken_over(site: Site, pool: str) -> None:
    holder = start(site, pool, "one")
    site.send("barrier", queue="one")
    site.entered()
    dead = site.held("barrier")
    holder.kill_tree()
    start(site, pool, "two")
    second = site.send("barrier", "second", queue="two")
    site.entered("second", seconds=LEASE_SECONDS + 2)
    assert int(site.held("barrier")["fence"]) > int(dead["fence"])
    site.open("second")
    assert second.get(timeout=10) == "opened"
    assert site.outcomes("barrier") == ["abandoned", "ran"]


@pytest.mark.parametrize("pool", POOLS)
def test_a_failure_and_a_retry_give_the_lease_back(site: Site, pool: str) -> None:
    start(site, pool)
    for _ in range(2):
        with pytest.raises(ValueError, match="on purpose"):
            site.send("fail").get(timeout=10)
        assert site.held("fail") == {}
    assert site.send("retry", 2).get(timeout=20) == 3
    assert site.held("retry") == {}
    assert site.outcomes("fail") == ["failed", "failed"]
    assert site.outcomes("retry") == ["retried", "retried", "ran"]


@pytest.mark.parametrize("pool", CONCURRENT)
def test_runs_side_by_side_share_nothing(site: Site, pool: str) -> None:
    start(site, pool)
    tenants = ["a", "b"]
    first = [site.send("per_tenant", tenant, 2) for tenant in tenants]
    wait_until(lambda: all(site.held(f"export:{tenant}") for tenant in tenants))
    tokens = [site.held(f"export:{tenant}")["token"] for tenant in tenants]
    second = [site.send("per_tenant", tenant, 0) for tenant in tenants]
    assert ends(*second) == [SKIPPED, SKIPPED]
    assert [site.held(f"export:{tenant}")["token"] for tenant in tenants] == tokens
    assert [result.get(timeout=10) for result in first] == [f"export:{tenant}" for tenant in tenants]
    assert [site.held(f"export:{tenant}") for tenant in tenants] == [{}, {}]
    for tenant in tenants:
        assert site.outcomes(f"export:{tenant}") == ["skipped_locked", "ran"]


@pytest.mark.parametrize("pool", ["prefork", "prefork, a process for each run", "gevent"])
def test_where_a_hard_limit_is_enforced_it_frees_the_lease(site: Site, pool: str) -> None:
    start(site, pool)
    struck = site.send("limited", 30, time_limit=1)
    with pytest.raises(TimeLimitExceeded):
        struck.get(timeout=10)
    wait_until(lambda: site.held("limited") == {}, LEASE_SECONDS + 0.5)
    assert site.send("limited", 0).get(timeout=10) == "done"
    assert site.outcomes("limited") in (["failed", "ran"], ["abandoned", "ran"])
