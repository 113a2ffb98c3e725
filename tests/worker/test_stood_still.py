"""A run that stood still past its lease, as its worker and the one after it see it."""

import os
import signal

from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends

LEASE_SECONDS = 3


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
