"""Jobs that run far longer than their lease stay exclusive from begin to end."""

import time
from typing import Any

import pytest

from celery_lease import SKIPPED
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends

LEASE_SECONDS = 3
SECONDS = 30


@pytest.mark.slow
def test_ten_leases_long_every_trigger_is_skipped_and_the_lease_never_runs_out(site: Site) -> None:
    site.start_worker(concurrency=4)
    jobs = ["sleep", "burn"]
    runs = [site.send(job, SECONDS) for job in jobs]
    wait_until(lambda: all(site.held(job) for job in jobs))
    began = time.monotonic()
    owners = [site.held(job)["token"] for job in jobs]
    skips: list[Any] = []
    samples: list[int] = []
    while (elapsed := time.monotonic() - began) < SECONDS - 0.5:
        if elapsed > len(skips) / len(jobs):
            skips += [site.send(job, 0) for job in jobs]
        samples += [site.leases.pttl(site.key(job)) for job in jobs]
        time.sleep(0.05)
    assert [site.held(job)["token"] for job in jobs] == owners
    assert len(samples) > 500
    assert min(samples) > 0
    assert max(samples) <= LEASE_SECONDS * 1000
    assert len(skips) >= 2 * (SECONDS - 1)
    assert set(ends(*skips)) == {SKIPPED}
    assert ends(*runs) == ["SUCCESS", "SUCCESS"]
    for job in jobs:
        assert site.total(job, "ran") == 1
        assert site.total(job, "skipped_locked") == len(skips) / len(jobs)
    assert [entry["at"] for entry in site.bodies()] == ["begin", "end"]


def test_a_thread_that_burns_the_processor_keeps_its_lease(site: Site) -> None:
    site.start_worker("-P", "threads", concurrency=2)
    result = site.send("burn", 3 * LEASE_SECONDS)
    wait_until(lambda: site.held("burn"))
    token = site.held("burn")["token"]
    end = time.monotonic() + 3 * LEASE_SECONDS - 0.5
    while time.monotonic() < end:
        assert site.held("burn").get("token") == token
        time.sleep(0.05)
    assert ends(result) == ["SUCCESS"]
    assert site.outcomes("burn") == ["ran"]


def test_a_worker_that_starts_touches_no_lease(site: Site) -> None:
    site.start_worker()
    first = site.occupy()
    before = site.held("barrier")
    site.start_worker()
    after = site.held("barrier")
    assert before.pop("renewed") <= after.pop("renewed")
    assert after == before
    assert ends(*[site.send("barrier") for _ in range(4)]) == [SKIPPED] * 4
    site.open()
    assert ends(first) == ["SUCCESS"]
