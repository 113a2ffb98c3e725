"""The fixtures that put `ProcessClient` in Docker's place, and one that gives tests a stable order."""

import contextlib
import gc
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import docker
import pytest
from docker.errors import DockerException
from pytest_celery import CeleryTestBackend, CeleryTestBroker, CeleryWorkerContainer
from pytest_celery.defaults import ALL_CELERY_BACKENDS, ALL_CELERY_BROKERS
from pytest_docker_tools.wrappers import container as container_wrapper

from tests.nodes import session_processes
from tests.nodes.client import ProcessClient


@pytest.fixture(scope="session")
def docker_client(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a Docker client: the real one, untouched, or the one that starts processes."""
    engine = _engine(pytestconfig.getoption("--celery-nodes"))
    if engine is not None:
        yield engine
        engine.close()
        return
    client = ProcessClient(tmp_path_factory.mktemp("nodes"))
    with pytest.MonkeyPatch.context() as patch:
        # A test run inside a container would use the nodes' own addresses and inner ports; local
        # processes have only their published ones.
        patch.setattr(container_wrapper, "tests_inside_container", lambda: False)
        yield client
    client.close()


def _engine(mode: str) -> Any:
    if mode == "process":
        return None
    if mode == "docker":
        return docker.from_env()
    with warnings.catch_warnings():
        # A refused connection leaves its socket to the garbage collector, which would warn in the
        # middle of whatever test runs then.
        warnings.simplefilter("ignore", ResourceWarning)
        with contextlib.suppress(DockerException):
            return docker.from_env()
        gc.collect()
    return None


@pytest.fixture
def default_worker_utils_module(
    docker_client: Any, default_worker_container_cls: type[CeleryWorkerContainer]
) -> ModuleType:
    """Choose how a worker lists its processes: those of its container, or of its session."""
    if isinstance(docker_client, ProcessClient):
        return session_processes
    module: ModuleType = default_worker_container_cls.utils_module()
    return module


# pytest-celery keeps its vendors in sets. Their order follows the hash seed, and pytest-xdist refuses
# workers that collect the same tests in different orders.


@pytest.fixture(params=sorted(ALL_CELERY_BROKERS))
def celery_broker(request: pytest.FixtureRequest) -> Iterator[CeleryTestBroker]:
    """Yield each supported broker, in alphabetical order."""
    broker = request.getfixturevalue(request.param)
    yield broker
    broker.teardown()


@pytest.fixture(params=sorted(ALL_CELERY_BACKENDS))
def celery_backend(request: pytest.FixtureRequest) -> Iterator[CeleryTestBackend]:
    """Yield each supported result backend, in alphabetical order."""
    backend = request.getfixturevalue(request.param)
    yield backend
    backend.teardown()
