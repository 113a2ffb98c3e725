"""A setup of pytest-celery with leased jobs: a broker, a result backend that holds the leases, a worker.

Nothing here knows whether its nodes are containers or processes.
"""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from celery import Celery
from pytest_celery import CeleryBrokerCluster, CeleryTestSetup, RedisContainer, RedisTestBroker
from pytest_docker_tools import build
from redis import Redis

from tests.integration import jobs
from tests.integration.barrier import Barrier
from tests.nodes.ports import free_port

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 3

# As in docker-compose.yml.
SERVER_IMAGE = "valkey/valkey:8.1.10-alpine"
SERVER_COMMAND = ["valkey-server", *RedisContainer.command()[1:]]

# The image that is deployed is the image that is tested.
celery_base_worker_image = build(
    path=str(ROOT), dockerfile="deploy/Dockerfile", tag="celery-lease/tests:local"
)


@pytest.fixture
def default_redis_broker_image() -> str:
    return SERVER_IMAGE


@pytest.fixture
def default_redis_broker_ports() -> dict[str, int]:
    # Docker gives a restarted container another random port, and the test's client would lose it.
    return {"6379/tcp": free_port()}


@pytest.fixture
def default_redis_broker_command() -> list[str]:
    return SERVER_COMMAND


@pytest.fixture
def default_redis_backend_image() -> str:
    return SERVER_IMAGE


@pytest.fixture
def default_redis_backend_command() -> list[str]:
    return SERVER_COMMAND


@pytest.fixture
def celery_broker_cluster(celery_redis_broker: RedisTestBroker) -> CeleryBrokerCluster:
    return CeleryBrokerCluster(celery_redis_broker)


@pytest.fixture
def default_worker_tasks(default_worker_tasks: set[ModuleType]) -> set[ModuleType]:
    return {*default_worker_tasks, jobs}


@pytest.fixture
def celery_setup_app(celery_setup_app: Celery) -> Celery:
    # Only what is changed after the app was configured is handed on to the workers.
    celery_setup_app.conf.lease_seconds = LEASE_SECONDS
    return celery_setup_app


@pytest.fixture
def store(celery_setup: CeleryTestSetup) -> Iterator[Redis]:
    """Connect to the server that holds results and leases."""
    url = celery_setup.backend.config()["host_url"]
    # No limit on one answer: the barrier's reads block.
    with Redis.from_url(url, decode_responses=True, socket_timeout=None) as client:
        yield client


@pytest.fixture
def barrier(store: Redis) -> Barrier:
    return Barrier(store)
