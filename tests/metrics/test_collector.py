"""The metrics come from the store at scrape time: the same for everybody, whoever else is dead."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from prometheus_client import CollectorRegistry, generate_latest

from celery_lease._ledger import DURATION_BOUNDS, Ledger
from celery_lease._store import Store
from celery_lease.metrics import LeaseCollector
from tests.support.leases import Job

NAMES = {
    "celery_lease_up",
    "celery_lease_last_ran_timestamp_seconds",
    "celery_lease_last_worked_timestamp_seconds",
    "celery_lease_last_started_timestamp_seconds",
    "celery_lease_runs",
    "celery_lease_consecutive_skips",
    "celery_lease_backlog",
    "celery_lease_held",
    "celery_lease_held_since_timestamp_seconds",
    "celery_lease_run_duration_seconds",
}


def samples(app: Celery) -> dict[str, float]:
    """Sample with its labels → value."""
    registry = CollectorRegistry()
    registry.register(LeaseCollector(app))
    lines = generate_latest(registry).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {sample: float(value) for sample, value in pairs}


def test_the_names_are_those_of_the_contract(app: Celery, job: Job) -> None:
    assert {family.name for family in LeaseCollector(app).collect()} == NAMES


def test_what_never_happened_is_absent_and_not_zero(app: Celery, job: Job) -> None:
    job.run("failed")
    seen = samples(app)
    assert 'celery_lease_last_ran_timestamp_seconds{job_name="harvest"}' not in seen
    assert 'celery_lease_backlog{job_name="harvest"}' not in seen
    assert seen['celery_lease_runs_total{job_name="harvest",outcome="failed"}'] == 1
    assert seen['celery_lease_last_started_timestamp_seconds{job_name="harvest"}'] > 1.7e9


def test_outcomes_that_may_happen_are_there_before_they_do(app: Celery, job: Job) -> None:
    job.run()
    assert samples(app)['celery_lease_runs_total{job_name="harvest",outcome="abandoned"}'] == 0


def test_a_real_run_moves_its_time_and_a_skip_only_the_streak(app: Celery, job: Job) -> None:
    job.run(worked=3, backlog=7)
    before = samples(app)
    assert before['celery_lease_backlog{job_name="harvest"}'] == 7
    holder = job.acquire()
    job.refused()
    after = samples(app)
    moved = 'celery_lease_last_{}_timestamp_seconds{{job_name="harvest"}}'.format
    assert after[moved("ran")] == before[moved("ran")] == before[moved("worked")]
    assert after[moved("started")] > before[moved("started")]
    assert after['celery_lease_consecutive_skips{job_name="harvest"}'] == 1
    assert after['celery_lease_held{job_name="harvest"}'] == 1
    assert after['celery_lease_held_since_timestamp_seconds{job_name="harvest"}'] == after[moved("started")]
    job.release(*holder)
    released = samples(app)
    assert released['celery_lease_held{job_name="harvest"}'] == 0
    assert 'celery_lease_held_since_timestamp_seconds{job_name="harvest"}' not in released


def test_the_histogram_counts_every_run_that_reported_its_end(app: Celery, job: Job) -> None:
    for _ in range(3):
        job.run()
    holder = job.acquire()
    time.sleep(0.6)  # its length is what is measured
    job.release(*holder, "failed")
    seen = samples(app)

    def bucket(bound: str) -> float:
        return seen[f'celery_lease_run_duration_seconds_bucket{{job_name="harvest",le="{bound}"}}']

    assert (bucket("0.25"), bucket("0.5"), bucket("1.0"), bucket("16384.0"), bucket("+Inf")) == (
        3,
        3,
        4,
        4,
        4,
    )
    assert seen['celery_lease_run_duration_seconds_count{job_name="harvest"}'] == 4
    assert 0.6 <= seen['celery_lease_run_duration_seconds_sum{job_name="harvest"}'] < 1.2


def test_a_release_that_is_repeated_is_counted_once(app: Celery, job: Job) -> None:
    holder = job.acquire()
    for _ in range(3):
        job.release(*holder)
    assert samples(app)['celery_lease_run_duration_seconds_count{job_name="harvest"}'] == 1


def test_leases_of_arguments_are_one_job_under_the_tasks_name(
    app: Celery, start_job: Callable[..., Job]
) -> None:
    for tenant, runs in (("acme", 1), ("globex", 2), ("initech", 3)):
        job = start_job(f"report:{tenant}", per_argument=True)
        for _ in range(runs):
            job.run(backlog=runs)
    job.acquire()
    for _ in range(2):
        job.refused()
    seen = samples(app)
    assert {sample.split('job_name="')[1].split('"')[0] for sample in seen if "job_name" in sample} == {
        "report"
    }
    assert seen['celery_lease_runs_total{job_name="report",outcome="ran"}'] == 6
    assert seen['celery_lease_consecutive_skips{job_name="report"}'] == 2
    assert seen['celery_lease_backlog{job_name="report"}'] == 6
    assert seen['celery_lease_run_duration_seconds_count{job_name="report"}'] == 6


def test_a_thousand_runs_are_no_more_series_than_one(app: Celery, job: Job) -> None:
    job.run()
    one = samples(app).keys()
    for number in range(1000):
        about = {"task_id": str(number), "worker": f"worker{number}@host"}
        job.release(*job.acquire(holder=about), "ran" if number % 3 else "failed")
    thousand = samples(app)
    assert thousand.keys() == one
    assert thousand['celery_lease_run_duration_seconds_count{job_name="harvest"}'] == 1001


def test_registering_asks_nobody() -> None:
    app = Celery("nowhere", broker="redis://127.0.0.1:1/0", set_as_current=False)
    CollectorRegistry(auto_describe=True).register(LeaseCollector(app))


def test_without_a_store_there_is_one_metric_that_says_so() -> None:
    app: Any = Celery("nowhere", broker="redis://127.0.0.1:1/0", set_as_current=False)
    assert samples(app) == {"celery_lease_up": 0.0}


def test_every_length_of_a_run_has_its_bucket(job: Job, store: Store) -> None:
    lengths = (0.1, 0.2, 0.3, 0.9, 1.1, 16383, 16385, 10**6)
    for seconds in lengths:
        claim, grant = job.acquire()
        # A fence is the store's clock at the grant, in microseconds.
        job.release(claim, grant._replace(fence=grant.fence - round(seconds * 1e6)))
    durations = Ledger(store).state("harvest").durations
    expected = [0] * (len(DURATION_BOUNDS) + 1)
    for seconds in lengths:
        expected[next((i for i, bound in enumerate(DURATION_BOUNDS) if seconds <= bound), -1)] += 1
    assert list(durations.counts) == expected
    assert durations.seconds == pytest.approx(sum(lengths), rel=1e-4)
