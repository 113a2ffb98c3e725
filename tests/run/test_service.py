from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from celery import Celery

from tasks.running.service import Running, Service
from tests.nodes.waiting import wait_until

if TYPE_CHECKING:
    from celery.result import AsyncResult

ROOT = Path(__file__).parents[2]
Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def begin(*command: str, grace_seconds: float = 5, **env: str) -> Running:
        service = Service(name="it", command=list(command), grace_seconds=grace_seconds)
        running = Running(service, {**os.environ, **env}, log=tmp_path / f"{len(started)}.log")
        started.append(running)
        return running

    yield begin
    for running in started:
        running.stop(hurry=lambda: True)


@pytest.fixture
def worker(start: Start, redis_url: str) -> Running:
    command = [sys.executable, "-m", "celery", "-A", "tests.run.naps", "worker", "-c", "1"]
    return start(*command, grace_seconds=20, PYTHONPATH=str(ROOT), REDIS_URL=redis_url)


@pytest.fixture
def naps(redis_url: str) -> Celery:
    return Celery("naps", broker=redis_url, backend=redis_url, set_as_current=False)


def lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def running_nap(naps: Celery, seconds: float) -> AsyncResult[str]:
    """A task that a worker has begun."""
    sent = naps.send_task("nap", [seconds])
    wait_until(lambda: sent.state == "STARTED", 30)
    return sent


def test_a_running_task_finishes_before_its_worker_is_stopped(worker: Running, naps: Celery) -> None:
    sent = running_nap(naps, 2)
    worker.stop(hurry=lambda: False)
    assert worker.exit_code == 0
    assert sent.state == "SUCCESS"


def test_in_a_hurry_a_running_task_is_ended_with_its_worker(worker: Running, naps: Celery) -> None:
    sent = running_nap(naps, 60)
    children = psutil.Process(worker.pid).children()
    assert children
    begun = time.monotonic()
    worker.stop(hurry=lambda: True)
    assert time.monotonic() - begun < 10
    assert sent.state == "STARTED"
    wait_until(lambda: not any(lives(child) for child in children))


def test_a_command_that_cannot_be_started_has_ended_with_the_reason_in_its_log(start: Start) -> None:
    running = start("no-such-command-anywhere")
    wait_until(lambda: running.exit_code is not None)
    assert running.exit_code == 1
    assert (
        "no-such-command-anywhere" in running.log.read_text()
        or "FileNotFoundError" in running.log.read_text()
    )


def test_an_exit_code_is_what_a_shell_would_say(start: Start) -> None:
    by_itself = start("sh", "-c", "exit 3")
    by_signal = start("sh", "-c", "kill -KILL $$")
    wait_until(lambda: by_itself.exit_code is not None and by_signal.exit_code is not None)
    assert (by_itself.exit_code, by_signal.exit_code) == (3, 137)


def test_a_service_that_ignores_its_end_is_killed_with_its_children(start: Start) -> None:
    running = start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done", grace_seconds=0.2)
    wait_until(lambda: "ready" in running.log.read_text())
    running.stop(hurry=lambda: False)
    assert running.exit_code == 137
