"""A time limit that could end a leased job while it still waits for a dead holder is refused."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from celery import Celery

from celery_lease import LeasedTask, LeaseError
from tests.support.workers import ROOT


def bind(conf: Mapping[str, Any] | None = None, **options: Any) -> Any:
    app = Celery("refusals", set_as_current=False)
    app.conf.update(conf or {})

    @app.task(base=LeasedTask, name="nightly", lazy=False, shared=False, **options)
    def nightly() -> None:
        """Do nothing."""

    return nightly


@pytest.mark.parametrize("field", ["time_limit", "soft_time_limit"])
def test_a_limit_shorter_than_the_grace_and_five_seconds_is_refused_by_name(field: str) -> None:
    with pytest.raises(LeaseError) as refused:
        bind(None, **{field: 14.9})
    for part in (f"{field}=14.9", "'nightly'", "15 s or more", f"task_{field}"):
        assert part in str(refused.value)


@pytest.mark.parametrize("field", ["time_limit", "soft_time_limit"])
def test_so_is_one_that_is_meant_for_all_tasks(field: str) -> None:
    with pytest.raises(LeaseError, match=f"{field}=10 of task 'nightly'"):
        bind({f"task_{field}": 10})


def test_a_limit_of_just_that_length_is_taken() -> None:
    task = bind(time_limit=15, soft_time_limit=15)
    assert (task.time_limit, task.soft_time_limit) == (15, 15)


def test_a_shorter_lease_in_tests_has_a_shorter_grace() -> None:
    assert bind({"lease_seconds": 3}, time_limit=8).time_limit == 8
    with pytest.raises(LeaseError, match="give it 8 s or more"):
        bind({"lease_seconds": 3}, time_limit=7)


def test_no_limit_is_no_short_limit() -> None:
    assert bind().time_limit is None


def test_a_worker_does_not_start_with_a_limit_that_is_refused(redis_url: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "tests.startup.jobs", "worker"],
        cwd=ROOT,
        env={
            "PYTHONPATH": str(ROOT),
            "STARTUP_BROKER": redis_url,
            "STARTUP_CONF": "{}",
            "STARTUP_OPTIONS": json.dumps({"time_limit": 5}),
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode != 0
    assert "time_limit=5 of task 'nightly' is too short" in ended.stderr
