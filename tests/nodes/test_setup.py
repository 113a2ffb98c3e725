"""pytest-celery's own promises, kept by local processes."""

import pytest
from pytest_celery import (
    RESULT_TIMEOUT,
    CeleryBrokerCluster,
    CeleryTestSetup,
    RedisContainer,
    RedisTestBroker,
    ping,
)
from pytest_celery.vendors.worker.tasks import add, sleep
from pytest_docker_tools import container, fxtr

from tests.nodes.client import ProcessClient


@pytest.fixture
def celery_broker_cluster(celery_redis_broker: RedisTestBroker) -> CeleryBrokerCluster:
    return CeleryBrokerCluster(celery_redis_broker)


@pytest.fixture(autouse=True)
def _on_processes(docker_client: object) -> None:
    if not isinstance(docker_client, ProcessClient):
        pytest.skip("an engine answers: these are promises of local processes")


def test_a_task_runs_on_the_node_and_its_log_is_readable(celery_setup: CeleryTestSetup) -> None:
    assert celery_setup.ready(ping=True, control=True, docker=True)
    assert add.s(40, 2).apply_async().get(timeout=RESULT_TIMEOUT) == 42
    celery_setup.worker.assert_log_exists(f"Task {add.name}")
    processes = celery_setup.worker.get_running_processes_info(["pid", "cmdline"])
    assert len(processes) >= 2
    assert all("worker" in process["cmdline"] for process in processes)


def test_a_killed_worker_answers_again_after_its_restart(celery_setup: CeleryTestSetup) -> None:
    worker = celery_setup.worker
    worker.kill()
    assert worker.container.status == "exited"
    waiting = add.s(1, 2).apply_async()
    worker.restart()
    assert worker.container.status == "running"
    assert waiting.get(timeout=RESULT_TIMEOUT) == 3
    assert worker.logs().count(" ready.") == 2
    assert worker.hostname() in worker.logs()


def test_sigterm_lets_the_worker_finish_its_task(celery_setup: CeleryTestSetup) -> None:
    running = sleep.s(1).apply_async()
    celery_setup.worker.wait_for_log("received")
    celery_setup.worker.kill("SIGTERM")
    assert running.get(timeout=RESULT_TIMEOUT) is True
    celery_setup.worker.assert_log_exists("Warm shutdown")


def test_a_worker_reconnects_after_its_broker_restarted(celery_setup: CeleryTestSetup) -> None:
    assert isinstance(celery_setup.broker.container, RedisContainer)
    celery_setup.broker.restart(force=True)
    assert ping.s().apply_async().get(timeout=RESULT_TIMEOUT) == "pong"


a_container_of_the_test = container(
    image="valkey/valkey:8.1",
    ports=fxtr("default_redis_broker_ports"),
    wrapper_class=RedisContainer,
)


def test_a_container_that_the_test_defines_itself_runs_as_well(
    a_container_of_the_test: RedisContainer,
) -> None:
    client = a_container_of_the_test.client
    assert client is not None
    assert client.ping()
    client.close()
