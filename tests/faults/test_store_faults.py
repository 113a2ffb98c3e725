"""What can befall the lease store while a job runs, and a trigger comes in at the worst moment."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from celery_lease import SKIPPED
from tests.faults.stage import Stage
from tests.nodes.ports import free_port
from tests.nodes.waiting import wait_until
from tests.support.site import ends

pytestmark = pytest.mark.slow

LEASE_SECONDS = 10
FAULT_SECONDS = 2
ENDS_SECONDS = 20

Fault = Callable[[Stage], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def restarted(stage: Stage) -> Iterator[None]:
    stage.store.stop()
    yield
    stage.store.start()


@contextlib.contextmanager
def crashed(stage: Stage) -> Iterator[None]:
    os.kill(stage.store.pid, signal.SIGKILL)
    yield
    stage.store.close()
    stage.store.start()


@contextlib.contextmanager
def frozen(stage: Stage) -> Iterator[None]:
    stage.store.freeze()
    yield
    stage.store.thaw()


@contextlib.contextmanager
def paused(stage: Stage) -> Iterator[None]:
    stage.site.leases.client_pause(FAULT_SECONDS * 1000)
    yield


@contextlib.contextmanager
def read_only(stage: Stage) -> Iterator[None]:
    stage.site.leases.replicaof("127.0.0.1", str(free_port()))
    yield
    stage.site.leases.replicaof("NO", "ONE")


@contextlib.contextmanager
def out_of_memory(stage: Stage) -> Iterator[None]:
    stage.site.leases.config_set("maxmemory", "1")
    yield
    stage.site.leases.config_set("maxmemory", "0")


@contextlib.contextmanager
def without_scripts(stage: Stage) -> Iterator[None]:
    stage.site.leases.script_flush()
    yield


@contextlib.contextmanager
def without_subscribers(stage: Stage) -> Iterator[None]:
    stage.site.leases.client_kill_filter(_type="pubsub", skipme=True)
    yield


@contextlib.contextmanager
def without_clients(stage: Stage) -> Iterator[None]:
    stage.site.leases.client_kill_filter(_type="normal", skipme=True)
    yield


@contextlib.contextmanager
def flushed(stage: Stage) -> Iterator[None]:
    stage.lose_data(stage.site.leases.flushall)
    yield


@contextlib.contextmanager
def deleted(stage: Stage) -> Iterator[None]:
    stage.lose_data(lambda: stage.site.leases.delete(stage.site.key("job")), "job")
    yield


@contextlib.contextmanager
def restarted_empty(stage: Stage) -> Iterator[None]:
    stage.lose_data(stage.store.stop)
    yield
    stage.store.start()


def befall(stage: Stage, fault: Fault) -> tuple[str, str, int]:
    """How a running job and a trigger in the midst of the fault ended, and under which fence the job ran."""
    stage.start_worker("queue")
    holder = stage.send("job", queue="queue")
    stage.entered("job")
    with fault(stage):
        trigger = stage.send("job", 0.1, queue="queue")
        time.sleep(FAULT_SECONDS)
    healed = time.monotonic()
    fence = stage.body_of(holder).fence
    for kind in ("renewed", "sample", "wrote"):  # it has heard from the store, and acts upon that
        wait_until(partial(stage.happened_after, healed, kind, fence), LEASE_SECONDS)
        healed = time.monotonic()
    # It may still be asking a store that was silent; the lease is not to be free before it was told.
    wait_until(trigger.ready, ENDS_SECONDS)
    stage.open("job")
    job_ended, trigger_ended = ends(holder, trigger)
    stage.run_once_more("job", queue="queue")
    stage.assert_promises_kept()
    return job_ended, trigger_ended, fence


@pytest.mark.parametrize(
    "fault",
    [
        restarted,
        crashed,
        frozen,
        paused,
        read_only,
        out_of_memory,
        without_scripts,
        without_subscribers,
        without_clients,
    ],
)
def test_a_run_keeps_its_lease_over_a_store_that_keeps_its_data(
    set_up: Callable[..., Stage], fault: Fault
) -> None:
    stage = set_up("--appendfsync", "always", lease_seconds=LEASE_SECONDS, persistent=True)
    job, trigger, fence = befall(stage, fault)
    assert (job, trigger) == ("SUCCESS", SKIPPED)
    assert {each.said for each in stage.of("sample", fence=fence)} == {"trusted"}
    assert {each.said for each in stage.of("wrote", fence=fence)} == {"accepted"}
    assert stage.site.total("job", "ran") == 2
    assert stage.site.total("job", "lost") == 0


@pytest.mark.parametrize("fault", [flushed, deleted, restarted_empty])
def test_over_a_loss_of_data_fences_keep_overlapping_runs_apart(
    set_up: Callable[..., Stage], fault: Fault
) -> None:
    stage = set_up(lease_seconds=LEASE_SECONDS)
    job, trigger, fence = befall(stage, fault)
    assert job == "SUCCESS"
    if trigger == "SUCCESS":  # it came in before the job took its lease again
        assert stage.of("sample", fence=fence)[-1].said == "lost"
        assert stage.of("wrote", fence=fence)[-1].said == "refused"
    else:
        assert trigger == SKIPPED
        assert stage.of("wrote", fence=fence)[-1].said == "accepted"
