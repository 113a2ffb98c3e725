"""The messages go through RabbitMQ; the leases stay in Redis, beside the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pytest_celery import RESULT_TIMEOUT, CeleryBrokerCluster, CeleryTestSetup, RabbitMQTestBroker

from celery_lease import Skipped
from tests.integration.jobs import patient

if TYPE_CHECKING:
    from redis import Redis

    from tests.integration.barrier import Barrier


@pytest.fixture
def celery_broker_cluster(celery_rabbitmq_broker: RabbitMQTestBroker) -> CeleryBrokerCluster:
    return CeleryBrokerCluster(celery_rabbitmq_broker)


def test_the_broker_makes_no_difference_to_a_skip(
    celery_setup: CeleryTestSetup, store: Redis, barrier: Barrier
) -> None:
    first = patient.delay()
    barrier.wait_for_arrival()
    with pytest.raises(Skipped):
        patient.delay().get(timeout=RESULT_TIMEOUT)
    barrier.open()
    assert first.get(timeout=RESULT_TIMEOUT) == "done"
    assert store.exists("cron:{patient}") == 0
