"""Whoever dies or stands still with a lease: the job can run again within one lease, and only then."""

import os
import signal
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from celery_lease import SKIPPED
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends
from tests.support.workers import Process, Worker

LEASE_SECONDS = 3

HOLD = """
import time
from celery_lease import hold
from tests.support.probe import app
with hold("barrier", app=app):
    print("the lease is held", flush=True)
    time.sleep(60)
"""


def kill_child(site: Site, worker: Worker) -> None:
    os.kill(int(site.held("barrier")["pid"]), signal.SIGKILL)


def kill_tree(site: Site, worker: Worker) -> None:
    worker.kill_tree()


def assert_runs_again(site: Site, dead: dict[str, str], seconds: float, **options: str) -> None:
    """Another run gets the lease within `seconds` from now, and closes the dead one in the ledger."""
    began = time.monotonic()
    second = site.run_as_soon_as_possible("barrier", "second", seconds=seconds + 5, **options)
    site.entered("second")
    assert time.monotonic() - began < seconds
    held = site.held("barrier")
    assert held["task_id"] == second.id
    assert int(held["fence"]) > int(dead["fence"])
    [record] = [record for record in site.records("barrier") if record["outcome"] == "abandoned"]
    assert (record["task_id"], record["fence"]) == (dead.get("task_id", ""), dead["fence"])
    site.open("second")
    assert second.get(timeout=10) == "opened"
    assert site.outcomes("barrier")[-1] == "ran"
    assert site.total("barrier", "abandoned") == 1


@pytest.mark.parametrize(("lease_seconds", "runnable_after"), [(3, 4), (300, 12)])
@pytest.mark.parametrize("kill", [kill_child, kill_tree])
def test_a_killed_run_blocks_its_job_for_no_longer_than_the_lease_or_the_grace(
    site: Site, kill: Callable[[Site, Worker], None], lease_seconds: int, runnable_after: float
) -> None:
    site.environment["PROBE_LEASE_SECONDS"] = str(lease_seconds)
    holder = site.start_worker("-Q", "one")
    site.start_worker("-Q", "two")
    site.send("barrier", queue="one")
    site.entered()
    held = site.held("barrier")
    kill(site, holder)
    assert_runs_again(site, held, runnable_after, queue="two")


def test_a_killed_run_does_not_look_alive_through_a_child_that_it_forked(site: Site) -> None:
    site.environment["PROBE_LEASE_SECONDS"] = "300"
    holder = site.start_worker("-Q", "one")
    site.start_worker("-Q", "two")
    site.send("leaves_child", queue="one")
    pid = site.entered()
    [child] = psutil.Process(pid).children()
    held = site.held("barrier")
    kill_child(site, holder)
    assert_runs_again(site, held, 12, queue="two")
    assert child.is_running()


def test_a_killed_script_in_a_terminal_blocks_its_job_for_at_most_one_lease(
    site: Site, start_process: Callable[..., Process]
) -> None:
    site.start_worker()
    script = start_process(sys.executable, "-c", HOLD, **site.environment)
    script.wait_for("the lease is held")
    assert ends(site.send("barrier")) == [SKIPPED]
    held = site.held("barrier")
    script.signal(signal.SIGKILL)
    assert_runs_again(site, held, LEASE_SECONDS + 1)


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


def test_a_run_that_stood_still_past_its_lease_finds_out_and_harms_nobody(site: Site) -> None:
    one = site.start_worker("-Q", "one")
    site.start_worker("-Q", "two")
    with site.events("task-lease-lost") as lost:
        first = site.send("barrier", "first", queue="one")
        child = site.entered("first")
        first_fence = site.held("barrier")["fence"]
        os.kill(child, signal.SIGSTOP)
        second = site.run_as_soon_as_possible("barrier", "second", seconds=LEASE_SECONDS + 1, queue="two")
        site.entered("second")
        held = site.held("barrier")
        os.kill(child, signal.SIGCONT)
        wait_until(lost)
        site.open("first")
        assert first.get(timeout=10) == "opened", "losing the lease does not fail a body that goes on"
        [event] = lost()
        assert (event["uuid"], event["lease"], event["fence"]) == (first.id, "barrier", first_fence)
    after = site.held("barrier")
    assert after["token"] == held["token"]
    assert after["task_id"] == second.id
    assert one.count("lease lost") == 1
    assert site.total("barrier", "lost") == 1
    site.open("second")
    assert second.get(timeout=10) == "opened"
    assert site.outcomes("barrier")[-2:] == ["lost", "ran"]
    assert ends(site.send("plain", 1, queue="one")) == ["SUCCESS"], "the worker stays up"
    assert child in one.children()
