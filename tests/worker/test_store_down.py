"""The lease store, the result backend or the broker goes away, or stands still."""

import re
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from celery_lease import SKIPPED, Skipped
from tests.nodes.waiting import wait_until
from tests.support.servers import Server
from tests.support.site import Site, ends
from tests.support.workers import Worker

BOUND_SECONDS = 5


class Fault(NamedTuple):
    strike: Callable[[Server], None]
    end: Callable[[Server], None]


STOPPED = Fault(Server.stop, Server.start)
FROZEN = Fault(Server.freeze, Server.thaw)

faults = pytest.mark.parametrize("fault", [STOPPED, FROZEN], ids=["stopped", "frozen"])


class Three(NamedTuple):
    """Broker, result backend and lease store apart, and a worker with one pool process."""

    broker: Server
    backend: Server
    leases: Server
    site: Site
    worker: Worker

    def seconds_until_next_task(self) -> float:
        """How long the pool process is not free for a task that needs neither of the two stores."""
        began = time.monotonic()
        before = self.site.side.xlen("next")
        self.site.post("notes", "next")
        wait_until(lambda: self.site.side.xlen("next") > before, 30)
        return time.monotonic() - began

    def errors(self) -> list[str]:
        return re.findall(r"ERROR/\w+(?:-\d+)?\] (.*)", self.worker.log())


@pytest.fixture
def three(start_server: Callable[..., Server], start_site: Callable[..., Site], redis_url: str) -> Three:
    broker, backend, leases = (start_server() for _ in range(3))
    site = start_site(broker.url, backend=backend.url, leases=leases.url, side=redis_url)
    worker = site.start_worker(concurrency=1)
    assert ends(site.send("counts", 1, 0)) == ["SUCCESS"]
    return Three(broker, backend, leases, site, worker)


def assert_recovers(site: Site) -> None:
    """The next job is done within ten seconds, and nothing is left of what went wrong."""
    result = site.send("counts", 1, 0)
    assert ends(result, seconds=10) == ["SUCCESS"]
    assert site.held("counts") == {}


@faults
def test_without_the_lease_store_a_job_is_skipped_and_not_run(three: Three, fault: Fault) -> None:
    site = three.site
    fault.strike(three.leases)
    result = site.send("barrier")
    assert three.seconds_until_next_task() < BOUND_SECONDS
    assert ends(result, seconds=1) == [SKIPPED]
    skip = result.result
    assert isinstance(skip, Skipped)
    assert (skip.reason, skip.holder) == ("lock_unavailable", {})
    [line] = three.errors()
    assert re.match(rf"barrier\[{result.id}\] skipped: lock_unavailable, so the body did not run", line)
    fault.end(three.leases)
    assert_recovers(site)
    assert site.side.llen("gate:entered") == 0


def test_a_frozen_store_that_wakes_up_leaves_no_lease_that_nobody_has(three: Three) -> None:
    site = three.site
    three.leases.freeze()
    result = site.send("barrier")
    assert ends(result) == [SKIPPED]
    three.leases.thaw()
    wait_until(lambda: site.outcomes("barrier") == ["skipped_lock_unavailable"])
    assert site.held("barrier") == {}
    assert "open_fence" not in site.ledger("barrier")
    site.open()
    assert site.send("barrier").get(timeout=10) == "opened"
    assert site.outcomes("barrier") == ["skipped_lock_unavailable", "ran"]


@faults
def test_a_run_outlives_its_store_and_gives_the_lease_back_once_it_can(three: Three, fault: Fault) -> None:
    site = three.site
    running = site.occupy()
    fault.strike(three.leases)
    site.open()
    assert running.get(timeout=10) == "opened"
    assert three.seconds_until_next_task() < BOUND_SECONDS
    three.worker.wait_for("barrier: the release is not confirmed")
    fault.end(three.leases)
    wait_until(lambda: site.outcomes("barrier") == ["ran"], 10)
    assert site.held("barrier") == {}
    assert_recovers(site)


@faults
def test_without_the_result_backend_a_skip_is_an_error_line(three: Three, fault: Fault) -> None:
    site = three.site
    site.leases.hset(site.key("barrier"), mapping={"token": "f" * 32, "task_id": "elsewhere"})
    fault.strike(three.backend)
    began = time.monotonic()
    site.post("barrier")
    three.worker.wait_for(
        r"ERROR/.*barrier: the state SKIPPED could not be recorded .*this line is the record"
    )
    assert time.monotonic() - began < BOUND_SECONDS
    three.worker.wait_for("skipped: locked, held by task elsewhere")
    assert three.seconds_until_next_task() < BOUND_SECONDS
    fault.end(three.backend)
    assert_recovers(site)
    assert site.outcomes("barrier") == ["skipped_locked"]


def test_a_frozen_result_backend_holds_a_skip_up_no_longer_than_that_whatever_its_own_timeouts(
    three: Three,
) -> None:
    site = three.site
    three.worker.kill_tree()
    worker = site.start_worker(concurrency=1, PROBE_SOCKET_TIMEOUT="120")
    site.leases.hset(site.key("barrier"), mapping={"token": "f" * 32, "task_id": "elsewhere"})
    three.backend.freeze()
    began = time.monotonic()
    site.post("barrier")
    worker.wait_for(
        r"ERROR/.*barrier: the state SKIPPED could not be recorded in time; this line is the record"
    )
    assert three.seconds_until_next_task() < BOUND_SECONDS
    assert time.monotonic() - began < BOUND_SECONDS


@faults
def test_without_the_result_backend_a_job_still_runs(three: Three, fault: Fault) -> None:
    site = three.site
    fault.strike(three.backend)
    began = time.monotonic()
    site.post("barrier")
    site.entered()
    assert time.monotonic() - began < BOUND_SECONDS
    three.worker.wait_for("barrier: the state STARTED could not be recorded")
    site.open()
    wait_until(lambda: site.held("barrier") == {}, BOUND_SECONDS)
    fault.end(three.backend)
    assert_recovers(site)


@faults
def test_without_both_stores_a_trigger_still_ends_in_time(three: Three, fault: Fault) -> None:
    site = three.site
    fault.strike(three.leases)
    fault.strike(three.backend)
    began = time.monotonic()
    site.post("barrier")
    three.worker.wait_for(r"ERROR/.*skipped: lock_unavailable")
    three.worker.wait_for(r"ERROR/.*the state SKIPPED could not be recorded")
    assert time.monotonic() - began < BOUND_SECONDS
    assert three.seconds_until_next_task() < BOUND_SECONDS
    fault.end(three.leases)
    fault.end(three.backend)
    assert_recovers(site)
    wait_until(lambda: site.outcomes("barrier") == ["skipped_lock_unavailable"])


@faults
def test_a_run_neither_notices_nor_needs_the_broker(three: Three, fault: Fault) -> None:
    site = three.site
    running = site.occupy()
    token = site.held("barrier")["token"]
    fault.strike(three.broker)
    site.open()
    wait_until(lambda: site.outcomes("barrier") == ["ran"])
    assert site.held("barrier") == {}
    assert ends(running) == ["SUCCESS"]
    fault.end(three.broker)
    assert token
    assert_recovers(site)


@faults
def test_one_server_for_everything_goes_away_during_a_run_and_the_worker_recovers(
    start_server: Callable[..., Server], start_site: Callable[..., Site], redis_url: str, fault: Fault
) -> None:
    server = start_server(persistent=True)
    site = start_site(server.url, side=redis_url)
    worker = site.start_worker(concurrency=1)
    site.occupy()
    fault.strike(server)
    site.open()
    worker.wait_for("barrier: the release is not confirmed")
    fault.end(server)
    wait_until(lambda: site.outcomes("barrier") == ["ran"], 10)
    assert_recovers(site)


def test_a_message_that_waits_while_the_one_server_stands_still_is_run_afterwards(
    start_server: Callable[..., Server], start_site: Callable[..., Site], redis_url: str
) -> None:
    server = start_server()
    site = start_site(server.url, side=redis_url)
    worker = site.start_worker(concurrency=1)
    site.post("waits", "busy")
    site.entered("busy")
    waiting = site.post("barrier")
    worker.wait_for(rf"{waiting}\] received")
    server.freeze()
    site.open("busy")
    worker.wait_for(r"waits\[\S+\] succeeded")
    server.thaw()
    site.entered()
    site.open()
    wait_until(lambda: site.outcomes("barrier") == ["ran"])
    assert_recovers(site)


@faults
def test_work_that_was_done_stays_on_record_when_its_result_cannot_be_stored(
    three: Three, fault: Fault
) -> None:
    site = three.site
    site.occupy()
    fault.strike(three.backend)
    site.open()
    three.worker.wait_for("RuntimeWarning: Exception raised outside body")
    assert site.outcomes("barrier") == ["ran"]
    assert "open_fence" not in site.ledger("barrier")
    assert site.held("barrier") == {}
    fault.end(three.backend)
    assert_recovers(site)
    assert three.worker.is_alive()
