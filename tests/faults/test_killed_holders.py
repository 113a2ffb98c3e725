"""However a holder dies, its job runs again within the grace and a little, at the default lease of 300 s."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from celery.result import AsyncResult

from tests.faults.memory import memory_limit
from tests.faults.stage import LEASES, RUNS_AGAIN_SECONDS, Stage
from tests.nodes.waiting import wait_until
from tests.support.workers import Process, Worker

pytestmark = pytest.mark.slow

NAMES = [f"job{number}" for number in range(LEASES)]


def is_alive(pid: int) -> bool:
    """A process whose parent has not yet taken note of its death is dead all the same."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_all_run_again(stage: Stage, pids: list[int], outcome: str = "abandoned") -> None:
    """Trigger every job once its holder is dead: the very next trigger runs, and in time."""
    wait_until(lambda: not any(map(is_alive, pids)), 60)
    dead = {event.name: event.fence for event in stage.of("entered")}
    triggers = [stage.send(name, gate="again", queue="rescue") for name in NAMES]
    for _ in NAMES:
        stage.entered("again")
    for name, trigger in zip(NAMES, triggers, strict=True):
        assert stage.delay_of(trigger, dead[name]) < RUNS_AGAIN_SECONDS
    stage.open("again")
    for trigger in triggers:
        assert trigger.get(timeout=10) > min(dead.values())
    for name in NAMES:
        assert stage.site.outcomes(name) == [outcome, "ran"]
    stage.assert_promises_kept()


def start(
    stage: Stage, job: str = "works", **options: Any
) -> tuple[Worker, list[AsyncResult[Any]], list[int]]:
    """A worker whose every pool process holds a lease, and another one that has none yet."""
    worker = stage.start_worker("doomed")
    stage.start_worker("rescue", "-P", "threads")
    triggers = [stage.send(name, job=job, queue="doomed", **options) for name in NAMES]
    return worker, triggers, [stage.entered(name) for name in NAMES]


@pytest.mark.parametrize("job", ["works", "leaves_a_child"])
def test_a_killed_pool_process(set_up: Callable[..., Stage], job: str) -> None:
    stage = set_up()
    _, _, pids = start(stage, job)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert_all_run_again(stage, pids)


def test_a_killed_worker_with_all_its_processes(set_up: Callable[..., Stage]) -> None:
    stage = set_up()
    worker, _, pids = start(stage)
    worker.kill_tree()
    assert_all_run_again(stage, pids)


def test_a_run_that_an_operator_terminates(set_up: Callable[..., Stage]) -> None:
    stage = set_up()
    _, triggers, pids = start(stage)
    for trigger in triggers:
        stage.site.app.control.revoke(trigger.id, terminate=True, signal="SIGKILL")
    assert_all_run_again(stage, pids)
    assert {trigger.state for trigger in triggers} == {"REVOKED"}


@pytest.mark.parametrize(("job", "outcome"), [("works", "failed"), ("hears_nothing", "abandoned")])
def test_a_run_past_its_hard_time_limit(set_up: Callable[..., Stage], job: str, outcome: str) -> None:
    """The pool asks first, with SIGTERM: a run that hears it reports its end by itself."""
    stage = set_up()
    _, triggers, pids = start(stage, job, time_limit=3)
    assert_all_run_again(stage, pids, outcome)
    assert {trigger.state for trigger in triggers} == {"FAILURE"}


def test_a_run_that_takes_all_memory(set_up: Callable[..., Stage]) -> None:
    stage = set_up()
    with memory_limit(megabytes=32) as limit:
        _, _, pids = start(stage, "eats")
        for pid in pids:
            limit.put(pid)
        for name in NAMES:
            stage.open(name)
        assert_all_run_again(stage, pids)
        assert limit.kills() == len(NAMES)


@pytest.mark.parametrize("options", [[], ["--forks"]])
def test_a_killed_script_in_a_terminal(
    set_up: Callable[..., Stage], start_process: Callable[..., Process], options: list[str]
) -> None:
    stage = set_up()
    stage.start_worker("rescue", "-P", "threads")
    script = start_process(
        sys.executable, "-m", "tests.faults.script", *options, *NAMES, **stage.site.environment
    )
    for name in NAMES:
        stage.entered(name)
    script.signal(signal.SIGKILL)
    assert_all_run_again(stage, [script.pid])
