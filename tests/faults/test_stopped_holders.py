"""A holder that stood still past its lease wakes up as a stranger: it knows, and it can do no harm."""

import os
import signal
from collections.abc import Callable

from tests.faults.stage import LEASES, Stage
from tests.nodes.waiting import wait_until
from tests.support.site import ends

LEASE_SECONDS = 3
NAMES = [f"job{number}" for number in range(LEASES)]


def test_a_woken_run_learns_that_its_lease_is_lost_and_touches_nothing_of_its_successor(
    set_up: Callable[..., Stage],
) -> None:
    stage = set_up(lease_seconds=LEASE_SECONDS)
    stage.start_worker("stopped")
    stage.start_worker("others")
    first = [stage.send(name, 150, gate="first", queue="stopped") for name in NAMES]
    pids = [stage.entered("first") for _ in NAMES]
    fences = [stage.body_of(trigger).fence for trigger in first]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    second = [
        stage.send_until_entered(name, 150, gate="second", queue="others", seconds=LEASE_SECONDS + 3)
        for name in NAMES
    ]
    for _ in NAMES:
        stage.entered("second")
    tokens = [stage.site.held(name)["token"] for name in NAMES]
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    for fence in fences:
        wait_until(lambda fence=fence: stage.of("sample", fence=fence, said="lost"), 3)  # type: ignore[misc]
        wait_until(lambda fence=fence: stage.of("wrote", fence=fence, said="refused"), 3)  # type: ignore[misc]
    stage.open("first")
    assert set(ends(*first)) == {"SUCCESS"}, "losing the lease does not fail a body that goes on"
    for name, fence, token in zip(NAMES, fences, tokens, strict=True):
        assert stage.site.held(name)["token"] == token
        assert [event.said for event in stage.of("released", fence=fence)] == ["lost"]
        assert stage.of("renewed", fence=fence)[-1].said == "lost"
    stage.open("second")
    assert set(ends(*second)) == {"SUCCESS"}
    stage.assert_promises_kept()
