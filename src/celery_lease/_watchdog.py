"""The watchdog's rules: what the schedule promises, against what the ledger says was done.

Pure: nothing here reads a clock, a store or a configuration. `watchdog.py` gathers and acts.

| rule | when |
|---|---|
| `skips` | so many skips in a row as `lease_alert_after_skips` says, `already_done` apart |
| `overdue` | no real run for two intervals: from absence alone, whatever did not happen |
| `idle` | the last three real runs did no work, and there is a backlog |
| `abandoned` | a run that nobody reported the end of |
| `lost` | a run that another owner was seen beside |
| `capped` | a message that died with its worker too often and was given up |
| `overrunning` | a run past its hard time limit, or far beyond every run before it |
| `missed` | a slot of the schedule that left no trace at all |
| `unregistered` | a task in the schedule that no worker has announced |
| `unreadable` | the watchdog itself failed at a job (`watchdog.py`) |

An event (`abandoned`, `lost`, `capped`, `missed`) is over with the next real run, but not before one
interval has passed. A job that has never run counts from when it was first seen in the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from celery_lease._errors import describe_holder
from celery_lease._ledger import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from celery_lease._expectations import Expectation
    from celery_lease._ledger import JobState, RunRecord

#: An event without a schedule that says otherwise is shown for so long.
_EVENT_LASTS = timedelta(hours=1)

#: What may pass between a slot and its first trace, at most a quarter of the interval.
_TOLERANCE = timedelta(minutes=1)

#: So many real runs in a row without work, while there is a backlog, are worth an alert.
_IDLE_RUNS = 3

#: A run is far beyond its history when it takes so many times as long as the longest of so many runs.
_TIMES_AS_LONG = 3
_RUNS_TO_COMPARE = 5

#: After a long outage only so many slots are written down as missed, of so many days at most.
_MOST_MISSED = 100
_LOOKS_BACK = timedelta(days=7)

_REAL = ("ran", "unguarded")
_EVENTS = {
    "abandoned": "a run was abandoned: nobody reported its end",
    "lost": "a run lost its lease to another owner and may have overlapped with it",
    "missed": "a slot of the schedule left no trace",
}


class Finding(NamedTuple):
    """Something that is wrong.

    Attributes:
        job: the lease's name, or the entry's where no lease is known.
        rule: see the table above.
        what: one sentence with the facts, without a full stop.
    """

    job: str
    rule: str
    what: str


@dataclass(frozen=True)
class Evidence:
    """What there is to judge one job by.

    Attributes:
        state: of its ledger.
        records: its last run records, newest first.
        is_all: whether these are all that it has.
        expectation: its entry in the schedule; None for a lease that no entry takes.
        first_seen: when that entry was first seen in the schedule.
    """

    state: JobState
    records: Sequence[RunRecord]
    is_all: bool = True
    expectation: Expectation | None = None
    first_seen: datetime | None = None


class Limits(NamedTuple):
    """What the settings say."""

    after_skips: int
    lease_seconds: float


def judge(evidence: Evidence, limits: Limits, now: datetime) -> list[Finding]:
    """All that is wrong with one job."""
    name = evidence.state.name
    said = {
        "skips": _skips(evidence.state, limits),
        "overdue": _overdue(evidence, now),
        "idle": _idle(evidence),
        "capped": _capped(evidence, now),
        "overrunning": _overrunning(evidence, limits, now),
        **{outcome: _event(evidence, outcome, now) for outcome in _EVENTS},
    }
    return [Finding(name, rule, what) for rule, what in said.items() if what]


def unregistered(
    expectation: Expectation, registered: Collection[str], first_seen: datetime, now: datetime
) -> Finding | None:
    """Whether the workers know the task of an entry. Without any announcement nothing can be said."""
    settled = first_seen + _tolerance(expectation.interval(now) or _EVENT_LASTS) * 2
    if not registered or expectation.task in registered or now < settled:
        return None
    return Finding(
        expectation.lease or expectation.entry,
        "unregistered",
        f"the schedule's entry {expectation.entry!r} sends the task {expectation.task!r}, which no worker "
        "has registered, so its messages are thrown away",
    )


def missed_slots(evidence: Evidence, now: datetime) -> tuple[datetime | None, list[datetime]]:
    """Up to where the schedule can be judged by now, and the slots since the last time without a trace."""
    expectation, first_seen = evidence.expectation, evidence.first_seen
    if expectation is None or first_seen is None:
        return None, []
    after = max(first_seen, evidence.state.judged or first_seen, now - _LOOKS_BACK)
    due = expectation.slots(after, now)[-_MOST_MISSED - 1 :]
    judged, missed = None, []
    for slot, following in pairwise(due):
        late = _tolerance(following - slot)
        if now < following + late:
            break
        judged = slot
        if not _left_a_trace(evidence, slot, slot - late, following + late):
            missed.append(slot)
    return judged, missed


def _left_a_trace(evidence: Evidence, slot: datetime, start: datetime, end: datetime) -> bool:
    """Whether anything is known of a slot: it is named by a record, or something happened in its time."""
    if evidence.state.open_run is not None and evidence.state.open_run.since < end:
        return True
    epoch = str(int(slot.timestamp()))
    for record in evidence.records:
        if record.outcome == "missed":
            continue
        if record.fields.get("slot") == epoch or (
            (record.since or record.ended) < end and record.ended >= start
        ):
            return True
    return not evidence.is_all and evidence.records[-1].ended > start


def _skips(state: JobState, limits: Limits) -> str:
    if state.streak < limits.after_skips:
        return ""
    said = f"{state.streak} skips in a row, and no work in any of them"
    if state.holder is not None:
        said += f"; held by {describe_holder(state.holder)}{_connection(state)}"
    return said + _last_real_run(state)


def _connection(state: JobState) -> str:
    words = {"1": ", whose process is connected", "0": ", whose process is not connected"}
    return words.get(str((state.holder or {}).get("connected")), "")


def _last_real_run(state: JobState) -> str:
    return f"; last real run: {_utc(state.last_ran) if state.last_ran else 'never'}"


def _overdue(evidence: Evidence, now: datetime) -> str:
    expectation, first_seen, state = evidence.expectation, evidence.first_seen, evidence.state
    if expectation is None or first_seen is None:
        return ""
    last = max(state.last_ran or first_seen, first_seen)
    first = expectation.next_slot(last)
    second = expectation.next_slot(first) if first else None
    if first is None or second is None or now < second + _allowance(evidence, second - first):
        return ""
    if state.last_ran is None:
        return f"no real run ever, and the schedule has been there since {_utc(first_seen)}"
    return f"no real run since {_utc(state.last_ran)}, and {_utc(first)} and {_utc(second)} were due"


def _allowance(evidence: Evidence, interval: timedelta) -> timedelta:
    """How long after its slot a run of this job usually ends: the longest of the last ones, and a little."""
    return min(max(_durations(evidence)[:_RUNS_TO_COMPARE], default=timedelta()), interval) + _tolerance(
        interval
    )


def _idle(evidence: Evidence) -> str:
    backlog = evidence.state.backlog or 0
    last = [record for record in evidence.records if record.outcome in _REAL][:_IDLE_RUNS]
    if backlog <= 0 or len(last) < _IDLE_RUNS or any(record.fields.get("worked") != "0" for record in last):
        return ""
    worked = evidence.state.last_worked
    since = f"since {_utc(worked)}" if worked else "ever"
    return f"the last {_IDLE_RUNS} runs did no work, and {backlog} are left; no work {since}"


def _capped(evidence: Evidence, now: datetime) -> str:
    record = next((r for r in evidence.records if r.fields.get("error") == "delivery cap"), None)
    if record is None or _is_over(evidence, record, now):
        return ""
    return (
        f"a message died with its worker {record.fields.get('deaths', 'too many')} times and was given up "
        f"at {_utc(record.ended)} (task {record.fields.get('task_id') or '?'})"
    )


def _overrunning(evidence: Evidence, limits: Limits, now: datetime) -> str:
    run, expectation = evidence.state.open_run, evidence.expectation
    if run is None or run.worker.startswith(TERMINAL):
        return ""  # at a terminal sits somebody who watches
    lasts = now - run.since
    said = f"a run has been going on for {_span(lasts)}, since {_utc(run.since)} on {run.worker or '?'}"
    hard_limit = expectation.hard_limit if expectation else None
    if hard_limit and lasts > timedelta(seconds=hard_limit) + _TOLERANCE:
        return f"{said}: past its hard time limit of {_span(timedelta(seconds=hard_limit))}"
    before = _durations(evidence)
    if len(before) < _RUNS_TO_COMPARE:
        return ""
    if lasts > max(_TIMES_AS_LONG * max(before), timedelta(seconds=limits.lease_seconds)):
        return f"{said}: the longest of the last {len(before)} took {_span(max(before))}"
    return ""


def _durations(evidence: Evidence) -> list[timedelta]:
    """Of the last real runs of workers, newest first."""
    return [
        timedelta(seconds=record.seconds)
        for record in evidence.records
        if record.outcome in _REAL
        and record.seconds is not None
        and not record.fields.get("worker", "").startswith(TERMINAL)
    ]


def _event(evidence: Evidence, outcome: str, now: datetime) -> str:
    record = next(_final(evidence.records, outcome), None)
    if record is None or _is_over(evidence, record, now):
        return ""
    when = record.fields.get("slot") if outcome == "missed" else None
    at = datetime.fromtimestamp(int(when), now.tzinfo) if when else record.ended
    task = record.fields.get("task_id")
    who = f" (task {task} on {record.fields.get('worker') or '?'})" if task else ""
    return f"{_EVENTS[outcome]}, {_utc(at)}{who}{_last_real_run(evidence.state)}"


def _final(records: Sequence[RunRecord], outcome: str) -> Iterator[RunRecord]:
    """The records with an outcome, but those of runs that reported by themselves later."""
    later: set[int] = set()
    for record in records:
        if record.outcome == outcome and record.fence not in later:
            yield record
        if record.fence is not None:
            later.add(record.fence)


def _is_over(evidence: Evidence, record: RunRecord, now: datetime) -> bool:
    expectation, last_ran = evidence.expectation, evidence.state.last_ran
    lasts = min(expectation.interval(now) or _EVENT_LASTS, _EVENT_LASTS) if expectation else _EVENT_LASTS
    if now < record.ended + lasts:
        return False
    return expectation is None or (last_ran is not None and last_ran > record.ended)


def _tolerance(interval: timedelta) -> timedelta:
    return min(_TOLERANCE, interval / 4)


def _utc(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def _span(length: timedelta) -> str:
    """A length of time in its two largest units."""
    seconds = round(length.total_seconds())
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    parts = []
    for unit, size in units:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
