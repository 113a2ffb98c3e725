"""A holder on another machine: its kernel tells of its death, unless the whole machine is gone."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.faults.namespaces import Namespace, other_machine
from tests.faults.stage import LEASES, RUNS_AGAIN_SECONDS, Stage
from tests.nodes.waiting import wait_until
from tests.support.servers import Server
from tests.support.site import ALONE, Site
from tests.support.workers import Process

pytestmark = pytest.mark.slow

NAMES = [f"far{number}" for number in range(LEASES)]


@pytest.fixture
def far() -> Iterator[Namespace]:
    with other_machine() as namespace:
        yield namespace


@pytest.fixture
def server(start_server: Callable[..., Server], far: Namespace) -> Server:
    return start_server("--bind", f"127.0.0.1 {far.here}", "--protected-mode", "no")


def start_far_worker(stage: Stage, far: Namespace, start_process: Callable[..., Process]) -> Process:
    """A worker there, which reaches everything here."""
    environment = {
        name: value.replace("127.0.0.1", far.here) for name, value in stage.site.environment.items()
    }
    argv = [*far.prefix, sys.executable, "-m", "celery", "-A", "tests.faults.jobs", "worker", "-l", "INFO"]
    argv += ["-n", "far@%h", "-Q", "far", "-c", str(LEASES), *ALONE]
    worker = start_process(*argv, **environment)
    worker.wait_for(r"ready\.", 30)
    return worker


def set_up(
    start_site: Callable[..., Site], server: Server, directory: Path, *, lease_seconds: float
) -> Stage:
    return Stage(start_site(server.url), server, directory / "stage", lease_seconds=lease_seconds)


def test_a_killed_worker_there_delays_its_jobs_by_the_grace_only(
    start_site: Callable[..., Site],
    server: Server,
    far: Namespace,
    start_process: Callable[..., Process],
    tmp_path: Path,
) -> None:
    stage = set_up(start_site, server, tmp_path, lease_seconds=300)
    stage.start_worker("here", "-P", "threads")
    worker = start_far_worker(stage, far, start_process)
    dead = [stage.send(name, queue="far") for name in NAMES]
    pids = [stage.entered(name) for name in NAMES]
    worker.kill_tree()
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))
    triggers = [stage.send(name, gate="again", queue="here") for name in NAMES]
    for _ in NAMES:
        stage.entered("again")
    for before, after in zip(dead, triggers, strict=True):
        assert stage.delay_of(after, stage.body_of(before).fence) < RUNS_AGAIN_SECONDS
    stage.open("again")
    for trigger in triggers:
        trigger.get(timeout=10)
    stage.assert_promises_kept()


def test_a_machine_that_vanishes_delays_its_jobs_by_a_lease(
    start_site: Callable[..., Site],
    server: Server,
    far: Namespace,
    start_process: Callable[..., Process],
    tmp_path: Path,
) -> None:
    lease_seconds = 3
    stage = set_up(start_site, server, tmp_path, lease_seconds=lease_seconds)
    stage.start_worker("here")
    worker = start_far_worker(stage, far, start_process)
    dead = stage.send("far", queue="far")
    pid = stage.entered("far")
    far.cut()
    vanished = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    worker.kill_tree()
    body = stage.run_once_more("far", queue="here", seconds=lease_seconds + 2)
    assert body.fence > stage.body_of(dead).fence
    assert body.at - vanished < lease_seconds + 1
    stage.assert_promises_kept()
