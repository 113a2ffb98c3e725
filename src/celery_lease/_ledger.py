"""Reading what the scripts wrote down: run records, counters, the open run, the holder.

The ledger observes; nothing here decides who runs. Everything that shows jobs to people or machines (the
CLI, the status page, metrics, the watchdog) reads it through `Ledger`, so that all of them tell the same.

Outcomes that are no end of a run under a lease: `skipped_…`, `expired` (the message was too old), `missed`
(a slot without a trace, written by the watchdog), `unguarded` and `dry_run` (`lease run`), `broken` (an
operator took the lease away; the run itself ends as `lost` or `abandoned`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery_lease._store import Store

#: A run at somebody's terminal has this in its worker's place, and its host behind it.
TERMINAL = "terminal@"

_TOTAL = "total:"

#: Upper bounds, in seconds, of the histogram of durations that release.lua counts in.
DURATION_BOUNDS = tuple(2.0**power for power in range(-2, 15))


@dataclass(frozen=True)
class RunRecord:
    """Immutable facts of one run, or of one skip.

    Attributes:
        id: of the record in its stream; grows.
        outcome: a word of the table of outcomes, such as `ran` or `skipped_locked`.
        ended: when it was recorded, UTC, by the store's clock.
        since: when the lease was granted; None for a skip.
        fence: of the run; None for a skip. Of several records with one fence, the last one counts.
        fields: everything else: task, task_id, worker, host, pid, retries, slot, worked, backlog, error,
            held_by, held_since, amends, unguarded, by.
    """

    id: str
    outcome: str
    ended: datetime
    since: datetime | None
    fence: int | None
    fields: Mapping[str, str]

    @property
    def seconds(self) -> float | None:
        """How long the lease was held; None for a skip."""
        return (self.ended - self.since).total_seconds() if self.since else None


class Durations(NamedTuple):
    """How long runs took, all that ever ended by themselves.

    Attributes:
        counts: for each of `DURATION_BOUNDS`, and one more for longer runs: runs up to it and above the
            one before.
        seconds: all of them together.
    """

    counts: tuple[int, ...]
    seconds: float


class OpenRun(NamedTuple):
    """The run that is going on, or that nobody reported the end of."""

    fence: int
    task_id: str
    worker: str
    since: datetime


@dataclass(frozen=True)
class JobState:
    """What the ledger knows of one job now.

    Attributes:
        name: the lease's name.
        last_ran: when a run last completed its body under its lease (a real run).
        last_worked: the same, with work to show for it.
        last_started: when a lease was last granted.
        last_skipped: when a run was last skipped, `already_done` apart.
        streak: skips in a row since the last real run.
        backlog: what the last run left; None if none ever said.
        totals: outcome → how often, ever.
        judged: up to which slot the watchdog has looked for traces; None before the first.
        open_run: see `OpenRun`; None while nothing is going on.
        holder: as `Skipped.holder`, with `fence`, `token_prefix` and, where the store can tell,
            `connected` ("1" or "0": whether its process is there); `{}` for an unknown holder, such as an
            old string lock; None while the lease is free.
        durations: see `Durations`.
    """

    name: str
    last_ran: datetime | None
    last_worked: datetime | None
    last_started: datetime | None
    last_skipped: datetime | None
    streak: int
    backlog: int | None
    totals: Mapping[str, int]
    judged: datetime | None
    open_run: OpenRun | None
    holder: Mapping[str, Any] | None
    durations: Durations


class Alert(NamedTuple):
    """Something that is wrong, as the watchdog last saw it.

    Attributes:
        job: the lease's name, or the schedule's entry where no lease is known.
        rule: which of the watchdog's rules, such as `skips` or `overdue`.
        what: one sentence with the facts.
        since: when it was found.
        said: when it was last sent, or logged where there is nowhere to send it; None before.
    """

    job: str
    rule: str
    what: str
    since: datetime
    said: datetime | None


class Ledger:
    """The ledgers of one store's jobs. Every call raises `StoreUnavailable` within the store's bound."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> list[str]:
        """All leases that ever had a run or a skip, sorted; those of arguments among them."""
        return self._store.names()

    def state(self, name: str) -> JobState:
        """The job's counters, its open run and its holder."""
        fields = self._store.ledger(name)
        return JobState(
            name=name,
            last_ran=_time(fields.get("last_ran")),
            last_worked=_time(fields.get("last_worked")),
            last_started=_time(fields.get("last_started")),
            last_skipped=_time(fields.get("last_skipped")),
            streak=int(fields.get("streak", 0)),
            backlog=int(fields["backlog"]) if fields.get("backlog") else None,
            totals={key.removeprefix(_TOTAL): int(n) for key, n in fields.items() if key.startswith(_TOTAL)},
            judged=_of_epoch_ms(1000 * int(fields["judged"])) if fields.get("judged") else None,
            open_run=_open_run(fields),
            holder=self._store.peek(name),
            durations=_durations(fields),
        )

    def history(
        self, name: str, limit: int | None = None, *, since: datetime | None = None
    ) -> list[RunRecord]:
        """The job's run records, newest first, at most `limit`, recorded at `since` or later."""
        since_ms = None if since is None else int(since.timestamp() * 1000)
        return [_record(id_, fields) for id_, fields in self._store.records(name, limit, since_ms)]

    def known_since(self, name: str) -> datetime | None:
        """When the oldest run record that is kept was written; what was before is not known."""
        oldest = self._store.oldest_record(name)
        return oldest and _record(*oldest).ended

    def alerts(self) -> list[Alert]:
        """What is wrong, as the watchdog last saw it, the oldest first."""
        found = [_alert(key, json.loads(state)) for key, state in self._store.alerts().items()]
        return sorted((alert for alert in found if alert), key=lambda alert: (alert.since, alert.job))


def alert_key(job: str, rule: str) -> str:
    """The name of an alert in the store."""
    return f"{rule} {job}"


def alert_of(key: str) -> tuple[str, str]:
    """The job and the rule of an alert."""
    rule, _, job = key.partition(" ")
    return job, rule


def _alert(key: str, state: Mapping[str, Any]) -> Alert | None:
    if state.get("resolved"):
        return None
    said = _of_epoch_ms(state["said"]) if state["said"] else None
    return Alert(*alert_of(key), what=state["what"], since=_of_epoch_ms(state["opened"]), said=said)


def _of_epoch_ms(millis: float) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)


def _record(id_: str, fields: Mapping[str, str]) -> RunRecord:
    rest = dict(fields)
    outcome, ended, since = rest.pop("outcome"), rest.pop("ended"), rest.pop("since", "")
    fence = rest.pop("fence", "")
    return RunRecord(
        id=id_,
        outcome=outcome,
        ended=datetime.fromisoformat(ended),
        since=_time(since),
        fence=int(fence) if fence else None,
        fields=rest,
    )


def _open_run(fields: Mapping[str, str]) -> OpenRun | None:
    if "open_fence" not in fields:
        return None
    since = datetime.fromisoformat(fields["open_since"])
    return OpenRun(int(fields["open_fence"]), fields["open_task_id"], fields["open_worker"], since)


def _durations(fields: Mapping[str, str]) -> Durations:
    buckets = [f"took:{bound:g}" for bound in DURATION_BOUNDS] + ["took:+Inf"]
    counts = tuple(int(fields.get(bucket, 0)) for bucket in buckets)
    return Durations(counts, int(fields.get("took_ms", 0)) / 1000)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
