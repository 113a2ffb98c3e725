"""What became of one run: the ledger's word first, then the result backend's, then the trigger's own note.

Celery says PENDING of every id that it does not know. Here an id is known because it was triggered, because
its job's ledger has it, or because its result is stored; any other is nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from celery.backends.base import DisabledBackend
from celery.backends.rpc import RPCBackend
from celery.states import FAILURE, PENDING, REVOKED, STARTED, SUCCESS

from celery_lease._errors import Skipped
from celery_lease._ledger import Ledger
from celery_lease._states import SKIPPED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery import Celery

    from celery_lease._ledger import RunRecord
    from celery_lease._store import Store

#: outcome → HTTP status of `?wait`. An outcome that does not end a run is accepted, as a queued one is.
STATUS = {
    "ran": 200,
    "unguarded": 200,
    "retried": 202,
    "skipped_locked": 409,
    "skipped_already_done": 409,
    "skipped_lock_unavailable": 503,
    "expired": 410,
    "failed": 500,
    "lost": 500,
    "abandoned": 500,
}

#: Outcomes that another attempt under the same id may follow.
_MAY_BE_FOLLOWED = frozenset({"retried", "abandoned"})

#: How long a result may lag behind the ledger.
_LAG = timedelta(seconds=5)

#: The clocks of this machine and of the store may differ by so much.
_CLOCKS = timedelta(minutes=2)

_HIDDEN = frozenset({"token_prefix", "alive", "gone_since", "gone_seen", "parked", "parked_by", "connected"})

#: So many records of a job are looked through for a run that nobody triggered here.
_RECENT = 200


@dataclass(frozen=True)
class Trace:
    """What the lease store knows of a run.

    Attributes:
        note: of the trigger: job, lease, sent and expires (UTC epoch seconds), stores_result.
        record: the newest of the ledger.
        holder: who holds the job's lease now.
    """

    note: Mapping[str, Any] | None = None
    record: RunRecord | None = None
    holder: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Seen:
    """A run, as it is to be shown.

    Attributes:
        job: the task's name; None where nobody remembers it.
        id: of the run.
        state: `queued`, `running`, `waiting` (for its next attempt) or `ended`.
        outcome: a word of the table of outcomes; None while there is none.
        reason: of a skip its reason, of a failure the exception's type.
        holder: who runs it, or who held the lease when it was skipped.
        result: what the job returned.
        terminal: whether all of this stays as it is. The result may come a moment after the end.
    """

    job: str | None
    id: str
    state: str
    outcome: str | None = None
    reason: str | None = None
    holder: Mapping[str, Any] | None = None
    result: Any = None
    terminal: bool = False

    def as_members(self) -> dict[str, Any]:
        """For an answer about the trigger."""
        return {
            "job": self.job,
            "id": self.id,
            "outcome": self.outcome,
            "reason": self.reason,
            "holder": self.holder,
            "result": self.result,
        }


def read_trace(store: Store, run_id: str, job: str | None = None) -> Trace:
    """Ask the lease store; raises `StoreUnavailable`.

    Args:
        store: the lease store.
        run_id: the run's id.
        job: whose ledger to look into if the run was not triggered here.
    """
    note, ledger = store.trigger(run_id), Ledger(store)
    if note is not None:
        lease, since = note["lease"], datetime.fromtimestamp(note["sent"], UTC) - _CLOCKS
        records = ledger.history(lease, since=since)
    elif job is not None:
        lease, records = job, ledger.history(job, _RECENT)
    else:
        return Trace()
    mine = (record for record in records if record.fields.get("task_id") == run_id)
    return Trace(note, next(mine, None), shown_holder(store.peek(lease)))


def shown_holder(holder: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The holder without what is for the scripts, and for the CLI's `break`."""
    return holder if holder is None else {key: holder[key] for key in holder if key not in _HIDDEN}


def reads_results(app: Celery) -> bool:
    """Whether the app's result backend can be asked about runs that others sent."""
    return not isinstance(app.backend, DisabledBackend | RPCBackend)


def read_meta(app: Celery, run_id: str) -> dict[str, Any] | None:
    """Ask the result backend; None when it knows nothing."""
    meta: dict[str, Any] = app.backend.get_task_meta(run_id, cache=False)
    return None if meta["status"] == PENDING else meta


def judge(run_id: str, trace: Trace, meta: Mapping[str, Any] | None) -> Seen | None:
    """Put together what the two know; None when it is nothing."""
    note, record, holder = trace.note, trace.record, trace.holder
    job = _job(trace, meta)
    if holder and holder.get("task_id") == run_id:
        return Seen(job, run_id, "running", holder=holder)
    if meta is not None and meta["status"] in (SUCCESS, FAILURE, REVOKED, SKIPPED):
        return _ended(job, run_id, record, meta)
    if record is not None and record.outcome in _MAY_BE_FOLLOWED:
        return Seen(job, run_id, "waiting", record.outcome)
    if record is not None:
        waits_for_result = note is not None and note["stores_result"] and _is_recent(record)
        return _ended(job, run_id, record, None, terminal=not waits_for_result)
    return _under_way(job, run_id, note, meta)


def _is_recent(record: RunRecord) -> bool:
    return datetime.now(UTC) - record.ended < _LAG


def _under_way(
    job: str | None, run_id: str, note: Mapping[str, Any] | None, meta: Mapping[str, Any] | None
) -> Seen | None:
    """A run that has not come to any end."""
    if meta is not None:
        return Seen(job, run_id, "running" if meta["status"] == STARTED else "waiting")
    if note is None:
        return None
    if time.time() > note["expires"]:
        return Seen(job, run_id, "ended", "expired", terminal=True)
    return Seen(job, run_id, "queued")


def _job(trace: Trace, meta: Mapping[str, Any] | None) -> str | None:
    known = [
        trace.note and trace.note["job"],
        trace.record and trace.record.fields.get("task"),
        job_of(meta),
    ]
    return next((str(name) for name in known if name), None)


def job_of(meta: Mapping[str, Any] | None) -> str | None:
    """The job that a stored result names."""
    if meta is None:
        return None
    if isinstance(meta.get("result"), Skipped):
        return str(meta["result"].name)
    return meta.get("name")


def _ended(
    job: str | None,
    run_id: str,
    record: RunRecord | None,
    meta: Mapping[str, Any] | None,
    *,
    terminal: bool = True,
) -> Seen:
    outcome = record.outcome if record else _outcome(meta or {})
    return Seen(
        job,
        run_id,
        "ended",
        outcome,
        reason=_reason(outcome, record, meta),
        holder=_held_by(record, meta) if outcome == "skipped_locked" else None,
        result=meta["result"] if meta and meta["status"] == SUCCESS else None,
        terminal=terminal,
    )


def _outcome(meta: Mapping[str, Any]) -> str:
    """The outcome that a stored state stands for, where the ledger has no record of it any more."""
    status, result = meta["status"], meta["result"]
    if status == SUCCESS:
        return "ran"
    if isinstance(result, Skipped):
        return f"skipped_{result.reason}"
    if status == REVOKED:
        return "expired" if "expired" in str(result) else "abandoned"
    return {"LeaseLost": "lost", "StaleFence": "lost", "WorkerLostError": "abandoned"}.get(
        type(result).__name__, "failed"
    )


def _reason(outcome: str, record: RunRecord | None, meta: Mapping[str, Any] | None) -> str | None:
    if outcome.startswith("skipped_"):
        return outcome.removeprefix("skipped_")
    # The type alone: an exception's text may hold a secret.
    if record and record.fields.get("error"):
        return record.fields["error"]
    result = (meta or {}).get("result")
    return type(result).__name__ if isinstance(result, BaseException) else None


def _held_by(record: RunRecord | None, meta: Mapping[str, Any] | None) -> dict[str, Any]:
    result = (meta or {}).get("result")
    if isinstance(result, Skipped):
        return shown_holder(result.holder) or {}
    fields = record.fields if record else {}
    held = {"task_id": fields.get("held_by"), "since": fields.get("held_since")}
    return {key: value for key, value in held.items() if value}
