"""What the pages show, put together from the ledgers. Nothing here knows HTML."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from celery_lease._errors import describe_holder
from celery_lease._jobs import BEAT, Job, read_jobs
from celery_lease.web import _strip
from celery_lease.web._plot import Plot, draw

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from celery import Celery

    from celery_lease._ledger import JobState, Ledger, OpenRun, RunRecord
    from celery_lease._watchdog import Finding
    from celery_lease.web._strip import Strip

#: Durations are drawn of so many runs.
_DRAWN = 200


@dataclass(frozen=True)
class Row:
    """One job.

    Attributes:
        name: as in `Job`.
        leases: how many it has.
        schedule: in words, or "" when nothing schedules it.
        last_ran: its last real run.
        last_worked: the last one with work to show.
        streak: skips in a row.
        backlog: as far as it says.
        holder: who holds the lease, or None; `{}` when unknown.
        connected: "1", "0", or "" when that cannot be told.
        next_due: of the schedule.
        strip: its last ticks.
        wrong: what the watchdog found.
    """

    name: str
    leases: int
    schedule: str
    last_ran: datetime | None
    last_worked: datetime | None
    streak: int
    backlog: int | None
    holder: Mapping[str, Any] | None
    connected: str
    next_due: datetime | None
    strip: Strip
    wrong: Sequence[Finding]

    @property
    def held_by(self) -> str:
        """The holder in one clause."""
        return describe_holder(self.holder) if self.holder is not None else ""


class Board(NamedTuple):
    """The status page."""

    rows: Sequence[Row]
    elsewhere: Sequence[Finding]
    """Findings about what has no row, such as a schedule entry whose task nobody knows."""
    scheduler: str
    """The active scheduler, in words; "" when no scheduler takes part in leases."""
    now: datetime


class JobPage(NamedTuple):
    """The page of one job."""

    row: Row
    records: Sequence[RunRecord]
    is_all: bool
    totals: Mapping[str, int]
    plot: Plot | None
    now: datetime


def read_board(app: Celery, ledger: Ledger, findings: Sequence[Finding]) -> Board:
    """Read all jobs; raises `StoreUnavailable`."""
    now, names = datetime.now(UTC), ledger.names()
    jobs = [job for job in read_jobs(app, names) if job.name != BEAT]
    rows = [_row(ledger, job, findings, now) for job in jobs]
    shown = {lease for job in jobs for lease in (job.name, *job.leases)}
    elsewhere = [finding for finding in findings if finding.job not in shown]
    rows.sort(key=lambda row: not row.wrong)  # by name otherwise
    return Board(rows, elsewhere, _scheduler(ledger) if BEAT in names else "", now)


def read_job_page(
    app: Celery, ledger: Ledger, name: str, findings: Sequence[Finding], limit: int
) -> JobPage | None:
    """Read one job; None if there is no such job. Raises `StoreUnavailable`."""
    now = datetime.now(UTC)
    job = next((each for each in read_jobs(app, ledger.names()) if each.name == name), None)
    if job is None:
        return None
    records = _history(ledger, job, limit + 1)
    states = [ledger.state(lease) for lease in job.leases]
    totals: dict[str, int] = {}
    for state in states:
        for outcome, count in state.totals.items():
            totals[outcome] = totals.get(outcome, 0) + count
    # How long a run took that nobody reported the end of is not known.
    ended = [each for each in _strip.final(_history(ledger, job, _DRAWN)) if each.outcome != "abandoned"]
    drawn = [record for record in ended if record.seconds is not None]
    return JobPage(
        _row(ledger, job, findings, now),
        records[:limit],
        len(records) <= limit,
        dict(sorted(totals.items(), key=lambda total: -total[1])),
        draw(drawn),
        now,
    )


def _history(ledger: Ledger, job: Job, limit: int) -> list[RunRecord]:
    records = [record for lease in job.leases for record in ledger.history(lease, limit)]
    return sorted(records, key=lambda record: record.ended, reverse=True)[:limit]


def _row(ledger: Ledger, job: Job, findings: Sequence[Finding], now: datetime) -> Row:
    states = [ledger.state(lease) for lease in job.leases]
    holding = next((state for state in states if state.holder is not None), None)
    holder = holding.holder if holding else None
    backlogs = [state.backlog for state in states if state.backlog is not None]
    due = [slot for each in job.expectations if (slot := each.next_slot(now))]
    return Row(
        name=job.name,
        leases=len(job.leases),
        schedule=", ".join(_in_words(each.schedule) for each in job.expectations),
        last_ran=_newest(state.last_ran for state in states),
        last_worked=_newest(state.last_worked for state in states),
        streak=max((state.streak for state in states), default=0),
        backlog=sum(backlogs) if backlogs else None,
        holder=holder,
        connected=str((holder or {}).get("connected", "")),
        next_due=min(due, default=None),
        strip=_read_strip(ledger, job, states, now),
        wrong=[finding for finding in findings if finding.job in (job.name, *job.leases)],
    )


def _newest(times: Any) -> datetime | None:
    return max((time for time in times if time), default=None)


def _read_strip(ledger: Ledger, job: Job, states: Sequence[JobState], now: datetime) -> Strip:
    open_run = _going_on(states)
    slots = _strip.window(job.expectations, now)
    if not slots:
        return _strip.of_records(_history(ledger, job, _DRAWN), open_run)
    records = [record for lease in job.leases for record in ledger.history(lease, since=slots[0])]
    records.sort(key=lambda record: record.ended, reverse=True)
    known = [since for lease in job.leases if (since := ledger.known_since(lease))]
    return _strip.of_schedule(slots, records, open_run, min(known, default=None))


def _going_on(states: Sequence[JobState]) -> OpenRun | None:
    """The open run, if its lease is held: else nobody is there to report its end."""
    held = (state.open_run for state in states if state.open_run and state.holder)
    return next(held, None)


def _scheduler(ledger: Ledger) -> str:
    holder = ledger.state(BEAT).holder
    return f"active: {describe_holder(holder)}" if holder is not None else "none is active"


def _in_words(schedule: Any) -> str:
    said = str(schedule)
    return said.removeprefix("<").removesuffix(">").replace("crontab: ", "").removesuffix(" (m/h/dM/MY/d)")
