"""A job after itself: a visible result means a free lease, a thousand times over."""

from celery import chain

from tests.nodes.waiting import wait_until
from tests.support.site import Site

CHAINS = 1000


def test_no_chain_of_a_job_after_itself_is_skipped_by_its_own_first_half(site: Site) -> None:
    site.start_worker(concurrency=4)
    results = [
        chain(
            site.signature("per_tenant", f"t{number}", 0),
            site.signature("per_tenant", f"t{number}", 0),
            app=site.app,
        ).apply_async()
        for number in range(CHAINS)
    ]
    wait_until(lambda: all(result.ready() for result in reversed(results)), 120)
    assert {result.state for result in results} == {"SUCCESS"}
    names = [f"export:t{number}" for number in range(CHAINS)]
    assert sum(site.total(name, "ran") for name in names) == 2 * CHAINS
    assert sum(site.total(name, "skipped_locked") for name in names) == 0
