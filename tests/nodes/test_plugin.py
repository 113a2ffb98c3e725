"""The plugin as pytest sees it: which mode is taken, and what is left when a run is over."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from tests.nodes.test_container import is_gone
from tests.nodes.waiting import wait_until

ROOT = Path(__file__).parents[2]
NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
REDIS_ONLY = """
import pytest
from pytest_celery import CeleryBrokerCluster

@pytest.fixture
def celery_broker_cluster(celery_redis_broker):
    return CeleryBrokerCluster(celery_redis_broker)
"""
SHOWS_ITS_CLIENT = """
def test_client(docker_client):
    print("client:", type(docker_client).__module__)
"""
SHOWS_ITS_PROCESSES = (
    REDIS_ONLY
    + """
import os, pathlib, psutil, signal
from pytest_celery import sleep

def test_setup(celery_setup):
    assert celery_setup.ready(ping=True)
    running = sleep.s(60).apply_async()
    celery_setup.worker.wait_for_log(f"[{running.id}] received")
    children = psutil.Process().children(recursive=True)
    pathlib.Path("pids.new").write_text(" ".join(str(child.pid) for child in children))
    os.rename("pids.new", "pids")
    if os.environ.get("WAIT_TO_BE_KILLED"):
        signal.pause()
"""
)


def start_pytest(
    directory: Path, test: str, *options: str, environment: Mapping[str, str] = NO_ENGINE
) -> subprocess.Popen[str]:
    (directory / "test_it.py").write_text(test)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("CELERY_", "PYTEST_"))
    }
    inherited["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "tests.nodes.plugin", "-s", "-q", *options, "test_it.py"],
        cwd=directory,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_pytest(
    directory: Path, test: str, *options: str, environment: Mapping[str, str] = NO_ENGINE
) -> tuple[int, str]:
    with start_pytest(directory, test, *options, environment=environment) as process:
        output, _ = process.communicate(timeout=60)
        return process.returncode, output


def processes_shown(directory: Path) -> list[psutil.Process]:
    shown = directory / "pids"
    wait_until(shown.exists, seconds=30)
    return [psutil.Process(int(pid)) for pid in shown.read_text().split()]


def test_without_an_engine_auto_means_processes(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, SHOWS_ITS_CLIENT, "-W", "error")
    assert code == 0, output
    assert "client: tests.nodes.client" in output


def test_with_an_engine_auto_means_the_unmodified_client(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import docker, types\n"
        "docker.from_env = lambda: types.SimpleNamespace(close=lambda: print('closed'))\n"
    )
    code, output = run_pytest(tmp_path, SHOWS_ITS_CLIENT)
    assert code == 0, output
    assert "client: types" in output
    assert "closed" in output


def test_docker_mode_reports_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, SHOWS_ITS_CLIENT, "--celery-nodes=docker")
    assert code == 1
    assert "DockerException" in output


def test_the_mode_can_come_from_the_environment(tmp_path: Path) -> None:
    environment = {**NO_ENGINE, "CELERY_NODES": "docker"}
    code, output = run_pytest(tmp_path, SHOWS_ITS_CLIENT, environment=environment)
    assert code == 1
    assert "DockerException" in output


def test_brokers_are_collected_in_one_order_whatever_the_hash_seed(tmp_path: Path) -> None:
    test = "def test_order(celery_broker): ...\n"
    outputs = {
        run_pytest(tmp_path, test, "--collect-only", environment={"PYTHONHASHSEED": seed})[1].partition(
            "\n\n"
        )[0]
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert "celery_redis_broker" in outputs.pop()


def test_a_finished_run_leaves_no_process(tmp_path: Path) -> None:
    with start_pytest(tmp_path, SHOWS_ITS_PROCESSES) as run:
        processes = processes_shown(tmp_path)
        output, _ = run.communicate(timeout=60)
    assert run.returncode == 0, output
    assert len(processes) >= 5  # two servers, a worker with its pool, the reaper
    wait_until(lambda: all(map(is_gone, processes)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_no_process_even_in_the_middle_of_a_task(tmp_path: Path, number: int) -> None:
    environment = {**NO_ENGINE, "WAIT_TO_BE_KILLED": "1"}
    with start_pytest(tmp_path, SHOWS_ITS_PROCESSES, environment=environment) as run:
        processes = processes_shown(tmp_path)
        run.send_signal(number)
        run.wait(10)
        wait_until(lambda: all(map(is_gone, processes)))
