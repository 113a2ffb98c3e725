"""Leased jobs on real worker nodes, through pytest-celery."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from celery.result import AsyncResult
from pytest_celery import RESULT_TIMEOUT, CeleryTestSetup

from celery_lease import SKIPPED, Skipped
from tests.integration.conftest import LEASE_SECONDS
from tests.integration.jobs import patient, quick

if TYPE_CHECKING:
    from redis import Redis

    from tests.integration.barrier import Barrier

PATIENT_LEASE, QUICK_LEASE = "cron:{patient}", "cron:{quick}"


def assert_skipped_at_once(result: AsyncResult[object]) -> None:
    started = time.monotonic()
    with pytest.raises(Skipped):
        result.get(timeout=RESULT_TIMEOUT)
    assert time.monotonic() - started < 1
    assert result.state == SKIPPED


def run_as_soon_as_possible(barrier: Barrier) -> tuple[AsyncResult[str], int]:
    """Trigger the job again whenever a trigger was skipped, as a schedule does."""
    while True:
        result = patient.delay()
        while not result.ready():
            fence = barrier.arrival(seconds=0.1)
            if fence is not None:
                return result, fence
        assert result.state == SKIPPED


def test_once_a_result_is_visible_its_lease_is_gone(celery_setup: CeleryTestSetup, store: Redis) -> None:
    assert quick.delay(21).get(timeout=RESULT_TIMEOUT) == 42
    assert store.exists(QUICK_LEASE) == 0


def test_a_second_trigger_is_skipped_and_says_so(
    celery_setup: CeleryTestSetup, store: Redis, barrier: Barrier
) -> None:
    first = patient.delay()
    barrier.wait_for_arrival()
    assert store.hgetall(PATIENT_LEASE)
    second = patient.delay()
    assert_skipped_at_once(second)
    assert_skipped_at_once(AsyncResult(second.id, app=celery_setup.app))
    barrier.open()
    assert first.get(timeout=RESULT_TIMEOUT) == "done"
    assert first.state == "SUCCESS"
    assert store.exists(PATIENT_LEASE) == 0


def test_a_killed_worker_does_not_block_its_job_for_longer_than_the_lease(
    celery_setup: CeleryTestSetup, barrier: Barrier
) -> None:
    patient.delay()
    lost_fence = barrier.wait_for_arrival()
    celery_setup.worker.kill()
    killed = time.monotonic()
    celery_setup.worker.restart()
    restarted = time.monotonic()
    result, fence = run_as_soon_as_possible(barrier)
    assert time.monotonic() < max(restarted, killed + LEASE_SECONDS) + 1
    assert fence > lost_fence
    barrier.open()
    assert result.get(timeout=RESULT_TIMEOUT) == "done"


def test_a_broker_restart_neither_ends_a_run_nor_frees_its_lease(
    celery_setup: CeleryTestSetup, barrier: Barrier
) -> None:
    running = patient.delay()
    barrier.wait_for_arrival()
    celery_setup.broker.restart(force=True)
    with pytest.raises(Skipped):
        patient.delay().get(timeout=RESULT_TIMEOUT)
    barrier.open()
    assert running.get(timeout=RESULT_TIMEOUT) == "done"
    assert quick.delay(4).get(timeout=RESULT_TIMEOUT) == 8
