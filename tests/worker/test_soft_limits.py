"""A soft time limit may strike anywhere: while the lease is asked for, given back, or a skip is recorded."""

import random
import re
from collections.abc import Callable

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from celery_lease import SKIPPED
from tests.nodes.waiting import wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.site import Site, ends

LEASE_SECONDS = 3


@pytest.fixture
def slow(shared_server: Server, start_proxy: Callable[[Server], Proxy]) -> Proxy:
    """On the way to one of the stores."""
    return start_proxy(shared_server)


def test_struck_while_the_lease_is_asked_for_it_is_a_failure_and_the_lease_is_given_back(
    start_site: Callable[..., Site], redis_url: str, slow: Proxy
) -> None:
    site = start_site(redis_url, leases=slow.url)
    worker = site.start_worker(concurrency=1)
    slow.delay(0.4)
    struck = site.send("limited", 0, soft_time_limit=0.6)
    worker.wait_for(r"Soft time limit \(0.6s\) exceeded")
    slow.heal()
    with pytest.raises(SoftTimeLimitExceeded):
        struck.get(timeout=20)
    wait_until(lambda: site.held("limited") == {}, LEASE_SECONDS)
    assert site.send("limited", 0).get(timeout=20) == "done"
    assert site.outcomes("limited")[-1] == "ran"
    assert site.total("limited", "skipped_locked") == 0
    assert "open_fence" not in site.ledger("limited")


def test_struck_while_the_lease_is_given_back_the_result_of_the_body_stands(
    start_site: Callable[..., Site], redis_url: str, slow: Proxy
) -> None:
    site = start_site(redis_url, leases=slow.url)
    worker = site.start_worker(concurrency=1)
    result = site.send("barrier", soft_time_limit=1)
    site.entered()
    slow.delay(0.9)
    site.open()
    worker.wait_for(r"Soft time limit \(1s\) exceeded")
    slow.heal()
    assert result.get(timeout=20) == "opened"
    assert result.state == "SUCCESS"
    assert site.held("barrier") == {}
    assert site.outcomes("barrier") == ["ran"]
    assert "open_fence" not in site.ledger("barrier")


def test_struck_while_a_skip_is_recorded_it_stays_a_skip(
    start_site: Callable[..., Site], redis_url: str, slow: Proxy
) -> None:
    site = start_site(redis_url, backend=slow.url)
    worker = site.start_worker()
    first = site.occupy()
    slow.delay(0.5)
    struck = site.send("barrier", soft_time_limit=0.3)
    worker.wait_for(r"barrier: a soft time limit struck while a skip was being recorded; it stays a skip")
    slow.heal()
    assert ends(struck) == [SKIPPED]
    assert site.outcomes("barrier") == ["skipped_locked"]
    assert site.held("barrier")["task_id"] == first.id
    site.open()
    assert ends(first) == ["SUCCESS"]


@pytest.mark.slow
def test_limits_that_strike_at_the_very_end_of_runs_leave_no_lease_and_a_working_worker(site: Site) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    worker = site.start_worker(concurrency=4)
    tenants = [f"t{number}" for number in range(40)]
    for number in range(200):
        # A run takes some milliseconds, and its body is the smallest part of them.
        site.send("per_tenant", tenants[number % 40], 0, soft_time_limit=chance.uniform(0.0005, 0.008))
    worker.wait_for(r"per_tenant\[\S+\] received", 60, count=200)
    wait_until(lambda: is_idle(site), 60)
    struck_in_hooks = worker.count(
        r'celery_lease/_(task|run|store|renewer|recording)\.py", line \d+, in (?!execute)'
    )
    assert struck_in_hooks > 20
    names = [f"export:{tenant}" for tenant in tenants]
    wait_until(lambda: not any(site.held(name) for name in names), LEASE_SECONDS + 1)
    assert [name for name in names if "open_fence" in site.ledger(name)] == []
    longer = [site.send("per_tenant", f"longer{number}", LEASE_SECONDS * 1.5) for number in range(4)]
    assert ends(*longer) == ["SUCCESS"] * 4
    assert not re.findall("KeyError|lease lost|retaken|unexpected error", worker.log())


def is_idle(site: Site) -> bool:
    """Whether its worker answers that it has nothing to do."""
    inspect = site.app.control.inspect(timeout=1)
    states = [inspect.active(), inspect.reserved()]
    return all(states) and not any(tasks for state in states for tasks in (state or {}).values())
