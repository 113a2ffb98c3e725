"""Evidence for the watchdog's rules, written down in minutes before and after a noon."""

from datetime import UTC, datetime, timedelta
from typing import Any

from celery.schedules import crontab, schedule

from celery_lease._expectations import Expectation
from celery_lease._ledger import Durations, JobState, OpenRun, RunRecord
from celery_lease._watchdog import Evidence, Finding, Limits, judge

NOON = datetime(2026, 9, 14, 12, tzinfo=UTC)
LIMITS = Limits(after_skips=3, lease_seconds=300)
QUARTERS = Expectation("curation", "curation", crontab(minute="*/15"), "curation", is_known=True)
EVERY_20_S = Expectation("quick", "quick", schedule(20), "quick", is_known=True)


def at(minutes: float) -> datetime:
    """So many minutes after noon."""
    return NOON + timedelta(minutes=minutes)


def state(**facts: Any) -> JobState:
    """A job that never ran, but for these facts."""
    nothing: dict[str, Any] = {
        "name": "curation",
        "last_ran": None,
        "last_worked": None,
        "last_started": None,
        "last_skipped": None,
        "streak": 0,
        "backlog": None,
        "totals": {},
        "judged": None,
        "open_run": None,
        "holder": None,
        "durations": Durations((), 0.0),
    }
    return JobState(**{**nothing, **facts})


def run(ended: float, outcome: str = "ran", took: float = 1, **fields: str) -> RunRecord:
    """The record of a run that ended so many minutes after noon and took so many minutes."""
    began = at(ended - took)
    fence = int(began.timestamp() * 1_000_000)
    return RunRecord(str(fence), outcome, at(ended), began, fence, {"worked": "1", **fields})


def skip(when: float, outcome: str = "skipped_locked", **fields: str) -> RunRecord:
    """The record of something that was no run, so many minutes after noon."""
    return RunRecord(str(when), outcome, at(when), None, None, fields)


def evidence(
    *records: RunRecord,
    expectation: Expectation | None = QUARTERS,
    first_seen: float = -10_000,
    is_all: bool = True,
    **facts: Any,
) -> Evidence:
    """What there is to judge `curation` by; records are given oldest first."""
    real = [record.ended for record in records if record.outcome == "ran"]
    facts.setdefault("last_ran", real[-1] if real else None)
    return Evidence(
        state(**facts), records[::-1], is_all, expectation, at(first_seen) if expectation else None
    )


def going_on(since: float, worker: str = "w@here") -> OpenRun:
    """A run that began so many minutes after noon."""
    return OpenRun(1, "one", worker, at(since))


def findings(given: Evidence, now: float, limits: Limits = LIMITS) -> dict[str, Finding]:
    """What is wrong, by rule, so many minutes after noon."""
    return {finding.rule: finding for finding in judge(given, limits, at(now))}
