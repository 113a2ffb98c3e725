"""In these pools a job runs on past its time limit. Its lease does not."""

import time

import pytest

from tests.nodes.missing import needs_package
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 2
GRACE_SECONDS = 10


@pytest.fixture
def site(site: Site) -> Site:
    # As in production: long enough that nothing here is the mere end of a lease.
    site.environment["PROBE_LEASE_SECONDS"] = "300"
    return site


def test_a_run_past_its_hard_limit_is_over_for_everybody_else_after_the_grace(site: Site) -> None:
    """All pools at once, because the wait is the same."""
    pools = ["threads", "solo", "eventlet"]
    needs_package("eventlet")
    workers = [site.start_worker("-Q", pool, "-P", pool) for pool in pools]
    site.start_worker("-Q", "other", concurrency=3)
    hung = [site.send("per_tenant", pool, 16, queue=pool, time_limit=LIMIT_SECONDS) for pool in pools]
    wait_until(lambda: all(site.held(f"export:{pool}") for pool in pools))
    began = time.monotonic()
    for worker, pool in zip(workers, pools, strict=True):
        worker.wait_for(f"ERROR.*export:{pool}: the run is past its hard time limit and goes on")
    assert LIMIT_SECONDS - 0.5 < time.monotonic() - began < LIMIT_SECONDS + 1
    others = [site.send("per_tenant", pool, 0, queue="other") for pool in pools]
    assert ends(*others, seconds=GRACE_SECONDS + 2) == ["SUCCESS"] * 3
    assert ends(*hung) == ["SUCCESS"] * 3, "nobody could end it"
    for pool in pools:
        assert site.outcomes(f"export:{pool}") == ["abandoned", "ran", "lost"]


def test_the_worker_in_which_a_run_hangs_can_run_the_job_again_itself(site: Site) -> None:
    site.start_worker("-P", "threads", concurrency=16)
    site.send("barrier", "hung", time_limit=LIMIT_SECONDS)
    site.entered("hung")
    began = time.monotonic()
    second = site.run_as_soon_as_possible("barrier", "second", seconds=30)
    assert time.monotonic() - began < LIMIT_SECONDS + GRACE_SECONDS + 2
    site.open("second")
    assert second.get(timeout=10) == "opened"


def test_a_soft_limit_that_nobody_enforces_changes_nothing(site: Site) -> None:
    site.start_worker("-P", "threads", concurrency=4)
    result = site.send("limited", 2, soft_time_limit=1)
    assert result.get(timeout=10) == "done"
    assert site.outcomes("limited") == ["ran"]
