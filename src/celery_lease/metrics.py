"""Metrics of all jobs for Prometheus, read from their ledgers at scrape time.

    from prometheus_client import REGISTRY
    REGISTRY.register(LeaseCollector(app))       # `celery_lease.web` serves them at /metrics

| metric | type | meaning |
|---|---|---|
| `celery_lease_up` | gauge | 1 if the lease store answered, else 0, and then there is nothing else |
| `celery_lease_last_ran_timestamp_seconds` | gauge | when a run last did what it is for (a real run) |
| `celery_lease_last_worked_timestamp_seconds` | gauge | the same, with work to show for it |
| `celery_lease_last_started_timestamp_seconds` | gauge | when a run last got the lease |
| `celery_lease_runs_total` | counter | runs and skips, by `outcome` |
| `celery_lease_consecutive_skips` | gauge | skips since the last real run |
| `celery_lease_backlog` | gauge | what the last run left, as far as the job says |
| `celery_lease_held` | gauge | 1 while a run holds the lease, else 0 |
| `celery_lease_held_since_timestamp_seconds` | gauge | since when; absent while it is free |
| `celery_lease_run_duration_seconds` | histogram | how long the runs that reported their end took |

The labels are `job_name` (`job` belongs to the scraper) and `outcome`. A task with one lease per argument is
one job: the newest times, the sums, the longest streak.

What holds
    * The numbers come from the store and not from a process: every process that asks tells the same, and the
      time since the last real run grows while everything else is dead.
    * Counters and histogram are totals that the scripts keep, not counts of the records that happen to be
      kept. They start again only where a ledger is gone (90 days after the last run of a lease per argument).
    * Times of events, never ages: `time() - celery_lease_last_ran_timestamp_seconds` is right whenever it is
      asked. What never happened is absent, not 0.
    * The number of series does not depend on how much ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from celery_lease._errors import StoreUnavailable
from celery_lease._jobs import read_jobs
from celery_lease._ledger import DURATION_BOUNDS, Ledger
from celery_lease._store import store_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from celery import Celery
    from prometheus_client.metrics_core import Metric

    from celery_lease._ledger import JobState

__all__ = ["LeaseCollector"]

#: All are told from the start, also those that never happened: of a counter that appears with its first
#: event, Prometheus sees no increase.
_OUTCOMES = (
    *("ran", "failed", "retried", "skipped_locked", "skipped_lock_unavailable", "skipped_already_done"),
    *("lost", "abandoned", "expired", "missed", "unguarded"),
)

_PREFIX = "celery_lease_"
_JOB = ["job_name"]


class LeaseCollector(Collector):
    """Reads all ledgers at every scrape. Bounded by the store's own timeouts; never raises for a dead store.

    Args:
        app: whose leases; its tasks must have been imported.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app

    def describe(self) -> list[Metric]:
        """Nothing: a registry must not ask the store when a collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics, or `celery_lease_up` 0 alone."""
        try:
            jobs = self._read()
        except StoreUnavailable:
            yield up(0)
            return
        yield up(1)
        yield from _families(jobs)

    def _read(self) -> dict[str, list[JobState]]:
        ledger = Ledger(store_of(self._app))
        jobs = read_jobs(self._app, ledger.names())
        return {job.name: [ledger.state(lease) for lease in job.leases] for job in jobs if job.leases}


def up(value: int) -> Metric:
    """Whether the lease store answered."""
    return GaugeMetricFamily(f"{_PREFIX}up", "Whether the lease store answered this scrape.", value=value)


def _families(jobs: dict[str, list[JobState]]) -> Iterator[Metric]:
    yield _times("last_ran", "When a run last completed its work.", jobs, lambda state: state.last_ran)
    yield _times("last_worked", "When a run last had work to show.", jobs, lambda state: state.last_worked)
    yield _times("last_started", "When a run last got the lease.", jobs, lambda state: state.last_started)
    yield _totals(jobs)
    yield _gauge(
        "consecutive_skips",
        "Skips since the last real run.",
        {job: max(state.streak for state in states) for job, states in jobs.items()},
    )
    yield _gauge("backlog", "What the last run left to do.", _backlogs(jobs))
    held = {job: _held_since(states) for job, states in jobs.items()}
    yield _gauge(
        "held",
        "Whether a run holds the lease.",
        {job: int(any(state.holder is not None for state in states)) for job, states in jobs.items()},
    )
    yield _gauge("held_since_timestamp_seconds", "Since when a run holds the lease.", held)
    yield _durations(jobs)


def _gauge(name: str, help_: str, values: dict[str, Any]) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}{name}", help_, labels=_JOB)
    for job, value in values.items():
        if value is not None:
            family.add_metric([job], value)
    return family


def _times(name: str, help_: str, jobs: dict[str, list[JobState]], time_of: Any) -> Metric:
    times = {job: _newest(time_of(state) for state in states) for job, states in jobs.items()}
    return _gauge(f"{name}_timestamp_seconds", help_, times)


def _newest(times: Iterable[datetime | None]) -> float | None:
    return max((time.timestamp() for time in times if time), default=None)


def _totals(jobs: dict[str, list[JobState]]) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}runs", "Runs and skips, ever.", labels=[*_JOB, "outcome"])
    for job, states in jobs.items():
        for outcome in sorted({*_OUTCOMES, *(outcome for state in states for outcome in state.totals)}):
            family.add_metric([job, outcome], sum(state.totals.get(outcome, 0) for state in states))
    return family


def _backlogs(jobs: dict[str, list[JobState]]) -> dict[str, int | None]:
    known = {job: [s.backlog for s in states if s.backlog is not None] for job, states in jobs.items()}
    return {job: sum(backlogs) if backlogs else None for job, backlogs in known.items()}


def _held_since(states: Sequence[JobState]) -> float | None:
    """Of several leases that are held, the one that is held longest."""
    since = [state.open_run.since.timestamp() for state in states if state.holder and state.open_run]
    return min(since, default=None)


def _durations(jobs: dict[str, list[JobState]]) -> Metric:
    family = HistogramMetricFamily(
        f"{_PREFIX}run_duration_seconds", "How long runs held the lease.", labels=_JOB
    )
    bounds = [str(bound) for bound in DURATION_BOUNDS] + ["+Inf"]
    for job, states in jobs.items():
        total, buckets = 0, []
        for bound, *counts in zip(bounds, *(state.durations.counts for state in states), strict=True):
            total += sum(counts)
            buckets.append((bound, float(total)))
        family.add_metric([job], buckets, sum(state.durations.seconds for state in states))
    return family
