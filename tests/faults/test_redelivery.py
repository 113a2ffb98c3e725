"""The broker sends a message again whose worker it believes dead: the work is done once all the same."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from celery_lease._task import PARKED_HEADER
from tests.faults.stage import Stage
from tests.nodes.waiting import wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.site import Site, ends

pytestmark = pytest.mark.slow

VISIBILITY_SECONDS = 3

#: Late acknowledgement, and a broker that looks every second for messages that nobody has acknowledged.
LATE: dict[str, Any] = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "broker_transport_options": {
        "visibility_timeout": VISIBILITY_SECONDS,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
}


def copies(stage: Stage, name: str, answer: str) -> int:
    """How many copies of a message have met its live original, or its end."""
    return len(stage.of("refused", name=name, said=answer))


def test_a_run_three_times_as_long_as_the_visibility_timeout_is_run_once(
    set_up: Callable[..., Stage],
) -> None:
    stage = set_up(**LATE)
    stage.start_worker("queue")
    trigger = stage.send("job", 3 * VISIBILITY_SECONDS, queue="queue")
    assert ends(trigger, seconds=30) == ["SUCCESS"]
    assert copies(stage, "job", "live") > 0
    wait_until(lambda: copies(stage, "job", "finished"), 20)
    assert len(stage.of("entered", name="job")) == 1
    assert stage.site.outcomes("job") == ["ran"]
    stage.assert_promises_kept()


def test_copies_that_come_too_late_neither_revoke_a_run_that_began_in_time_nor_its_retry(
    start_site: Callable[..., Site], redis_url: str
) -> None:
    site = start_site(redis_url, conf=LATE)
    worker = site.start_worker()
    result = site.send("retry", 1, 0, 2 * VISIBILITY_SECONDS, expires=VISIBILITY_SECONDS - 1)
    assert ends(result, seconds=30) == ["SUCCESS"]
    assert site.outcomes("retry") == ["retried", "ran"]
    assert worker.count(rf"\[{result.id}\] received") > 2
    assert worker.count("revoked") == 0


def test_a_copy_of_what_nobody_carried_out_in_time_expires(
    start_site: Callable[..., Site], redis_url: str
) -> None:
    site = start_site(redis_url, conf=LATE)
    sent = time.monotonic()
    result = site.send("barrier", expires=1, headers={PARKED_HEADER: "1"})
    wait_until(lambda: time.monotonic() - sent > 1.1)
    site.start_worker()
    assert ends(result) == ["REVOKED"]
    assert site.outcomes("barrier") == ["expired"]
    assert site.held("barrier") == {}


def kill_process(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def kill_worker(pid: int) -> None:
    os.killpg(os.getpgid(pid), signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_process, kill_worker])
def test_an_original_that_is_killed_after_it_met_its_copy_is_done_by_the_copy(
    set_up: Callable[..., Stage], kill: Callable[[int], None]
) -> None:
    stage = set_up(**LATE)
    workers = [stage.start_worker("queue") for _ in range(2)]
    trigger = stage.send("job", queue="queue")
    pid = stage.entered("job")
    # The original, the broker's copy of it, and that copy as it was parked: only now is it safe with a
    # worker, or on the broker's list of the unacknowledged. On its way, a kill could lose any message.
    wait_until(lambda: sum(worker.count(rf"\[{trigger.id}\] received") for worker in workers) >= 3, 20)
    kill(pid)
    stage.entered("job", 40)
    stage.open("job")
    wait_until(lambda: trigger.state == "SUCCESS", 20)
    assert stage.site.outcomes("job") == ["abandoned", "ran"]
    stage.assert_promises_kept()


def test_a_copy_that_cannot_ask_the_store_whether_its_original_lives_is_no_outcome(
    set_up: Callable[..., Stage], start_proxy: Callable[[Server], Proxy]
) -> None:
    stage = set_up(**LATE)
    stage.start_worker("queue", concurrency=1)
    trigger = stage.send("job", queue="queue")
    stage.entered("job")
    proxy = start_proxy(stage.store)
    proxy.cut()
    with stage.site.states() as states:
        other = stage.start_worker("queue", concurrency=1, PROBE_LEASE_URL=proxy.url)
        other.wait_for(rf"{trigger.id}.*parked", 20)
        proxy.heal()
        wait_until(lambda: copies(stage, "job", "live"), 20)
        stage.open("job")
        assert ends(trigger) == ["SUCCESS"]
        wait_until(lambda: copies(stage, "job", "finished"), 20)
        assert [state for _, state in states()] == ["SUCCESS"]
    assert stage.site.outcomes("job") == ["ran"]
    stage.assert_promises_kept()


def test_a_message_that_waited_in_a_busy_worker_and_was_done_elsewhere_is_not_done_again(
    set_up: Callable[..., Stage],
) -> None:
    stage = set_up(**LATE | {"worker_prefetch_multiplier": 4})
    stage.start_worker("queue", concurrency=1)
    busy = stage.send("other", queue="queue")
    stage.entered("other")
    waiting = stage.send("job", 0.1, queue="queue")
    stage.start_worker("queue", concurrency=1)
    assert ends(waiting, seconds=20) == ["SUCCESS"]
    stage.open("other")
    assert ends(busy, seconds=20) == ["SUCCESS"]
    marker = [stage.send("marker", 0, queue="queue") for _ in range(4)]
    ends(*marker)
    assert len(stage.of("entered", name="job")) == 1
    stage.assert_promises_kept()


def test_a_message_that_kills_its_worker_every_time_ends_as_a_failure(set_up: Callable[..., Stage]) -> None:
    stage = set_up(lease_seconds=1, lease_delivery_cap=3, **LATE)
    stage.start_worker("queue")
    trigger = stage.send("job", job="kills_itself", queue="queue")
    wait_until(lambda: stage.site.total("job", "failed") == 1, 40)
    assert stage.site.outcomes("job") == ["abandoned"] * 3 + ["failed"]
    wait_until(lambda: trigger.state == "FAILURE", 10)
    assert "3 times" in str(trigger.result)
    assert len(stage.of("entered", name="job")) == 3
    stage.assert_promises_kept()
