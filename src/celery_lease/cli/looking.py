"""`ls`, `show`, `history` and `watch`: what the ledger says, and nothing else."""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from celery_lease._errors import StoreUnavailable, describe_holder
from celery_lease._expectations import Expectation, leased, read_expectations
from celery_lease._ledger import Alert, JobState, Ledger, RunRecord
from celery_lease._store import store_of
from celery_lease.cli.output import FAILED, Cell, Output, ago, command, span, utc

if TYPE_CHECKING:
    from celery import Celery

_COLOURS = {
    "ran": "green",
    "unguarded": "green",
    "failed": "red",
    "lost": "red",
    "abandoned": "red",
    "missed": "red",
    "skipped_locked": "yellow",
    "skipped_lock_unavailable": "yellow",
    "expired": "yellow",
    "broken": "yellow",
}


@dataclass(frozen=True)
class Row:
    """One job, as `ls` shows it."""

    state: JobState
    expectation: Expectation | None
    alerts: list[Alert]

    def next_due(self, now: datetime) -> datetime | None:
        """Its next slot; None if it is not in the schedule."""
        return self.expectation.next_slot(now) if self.expectation else None

    def as_json(self, now: datetime) -> dict[str, Any]:
        """For machines."""
        state = self.state
        return {
            "job": state.name,
            "last_ran": state.last_ran,
            "last_worked": state.last_worked,
            "last_started": state.last_started,
            "last_skipped": state.last_skipped,
            "streak": state.streak,
            "backlog": state.backlog,
            "next_due": self.next_due(now),
            "holder": state.holder,
            "open_run": state.open_run and state.open_run._asdict(),
            "totals": dict(state.totals),
            "alerts": [alert._asdict() for alert in self.alerts],
        }

    def cells(self, now: datetime) -> list[Cell | str]:
        """For people."""
        state, due = self.state, self.next_due(now)
        return [
            Cell(state.name, "red" if self.alerts else None),
            ago(state.last_ran, now),
            Cell(str(state.streak), "yellow" if state.streak else None),
            "" if state.backlog is None else str(state.backlog),
            f"in {span(due - now)}" if due else "",
            _held(state.holder, now),
        ]


@command("ls")
def ls(app: Celery, output: Output) -> None:
    """Show every job: its last real run, skips in a row, what is left, who holds it."""
    _print(_rows(app), output, datetime.now(UTC))


@command("watch")
@click.option("--every", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds.")
def watch(app: Celery, output: Output, every: float) -> None:
    """Show what `ls` shows, kept up to date until Ctrl-C."""
    try:
        while True:
            try:
                rows = _rows(app)
            except StoreUnavailable as error:
                _clear(output)
                output.line(f"the lease store does not answer ({error})", "red", err=True)
            else:
                _clear(output)
                now = datetime.now(UTC)
                if not output.as_json:
                    output.line(f"{utc(now)}, every {every:g} s; Ctrl-C ends it")
                _print(rows, output, now)
            time.sleep(every)
    except KeyboardInterrupt:
        return


@command("show")
@click.argument("name")
def show(app: Celery, output: Output, name: str) -> None:
    """Show one job in full. NAME is its lease's, as in `ls`."""
    row, now = _row(app, output, name), datetime.now(UTC)
    store = store_of(app)
    records = Ledger(store).history(name, 5)
    key = store.keys(name).lease
    if output.as_json:
        output.json({"key": key, **row.as_json(now), "records": [record_json(record) for record in records]})
        return
    for label, said, colour in _facts(row, key, now):
        output.line(f"{label:<16}{said}", colour)
    if records:
        output.line()
        _print_records(records, output)


@command("history")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="So many at most.")
def history(app: Celery, output: Output, name: str, limit: int) -> None:
    """Show a job's run records, newest first. NAME is its lease's, as in `ls`."""
    _row(app, output, name)
    records = Ledger(store_of(app)).history(name, limit)
    if output.as_json:
        output.json([record_json(record) for record in records])
    elif records:
        _print_records(records, output)
    else:
        output.line(f"{name} has no run records yet")


def record_json(record: RunRecord) -> dict[str, Any]:
    """A run record, for machines."""
    return {
        "id": record.id,
        "outcome": record.outcome,
        "ended": record.ended,
        "since": record.since,
        "seconds": record.seconds,
        "fence": record.fence,
        **record.fields,
    }


def _rows(app: Celery, only: str | None = None) -> list[Row]:
    ledger, by_lease = Ledger(store_of(app)), leased(read_expectations(app))
    names = sorted({*ledger.names(), *by_lease}) if only is None else [only]
    alerts = ledger.alerts()
    return [
        Row(ledger.state(name), by_lease.get(name), [alert for alert in alerts if alert.job == name])
        for name in names
    ]


def _row(app: Celery, output: Output, name: str) -> Row:
    known = {*Ledger(store_of(app)).names(), *leased(read_expectations(app))}
    row = _rows(app, name)[0]
    if name not in known and row.state.holder is None:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known)) or 'none'}"
        output.stop(FAILED, "unknown_job", f"no run and no schedule entry of {name!r} is known{hint}")
    return row


def _print(rows: list[Row], output: Output, now: datetime) -> None:
    if output.as_json:
        output.json([row.as_json(now) for row in rows])
        return
    if not rows:
        output.line("no job has run yet, and none is in the schedule")
        return
    output.table(
        ["job", "last real run", "skips", "left", "next", "held by"], [row.cells(now) for row in rows]
    )
    for alert in (alert for row in rows for alert in row.alerts):
        output.line(f"{alert.job}: {alert.rule}: {alert.what}", "red")


def _clear(output: Output) -> None:
    if not output.as_json:
        click.clear()  # does nothing where there is no terminal


def _held(holder: Any, now: datetime) -> Cell | str:
    if holder is None:
        return ""
    if not holder:
        return Cell("an unknown holder", "red")
    since = datetime.fromisoformat(holder["since"])
    said = f"{holder.get('worker') or holder.get('host', '?')}, {span(now - since)}"
    if holder.get("connected") == "0":
        return Cell(f"{said}, gone", "red")
    return said


def connection_in_words(holder: Any) -> str:
    """Whether the holder's process is there, as far as the store can tell."""
    words = {"1": "its process is connected", "0": "its process is not connected"}
    return words.get(holder.get("connected"), "whether its process lives cannot be told")


def _facts(row: Row, key: str, now: datetime) -> list[tuple[str, str, str | None]]:
    state, due = row.state, row.next_due(now)
    facts: list[tuple[str, str, str | None]] = [("key", key, None)]
    if state.holder is None:
        facts.append(("held by", "nobody", None))
    else:
        facts.append(("held by", describe_holder(state.holder), None))
    if state.holder:
        token = f"token {state.holder.get('token_prefix', '?')}…, fence {state.holder.get('fence', '?')}"
        facts.append(("", f"{token}; {connection_in_words(state.holder)}", None))
    facts += [
        ("last real run", f"{utc(state.last_ran)} ({ago(state.last_ran, now)})", None),
        ("last work done", utc(state.last_worked), None),
        ("skips in a row", str(state.streak), "yellow" if state.streak else None),
        ("left", "the job does not say" if state.backlog is None else str(state.backlog), None),
        ("ever", ", ".join(f"{word} {n}" for word, n in sorted(state.totals.items())) or "nothing", None),
        ("next due", f"{utc(due)} (in {span(due - now)})" if due else "not in the schedule", None),
    ]
    return facts + [("alert", f"{alert.rule}: {alert.what}", "red") for alert in row.alerts]


def _print_records(records: list[RunRecord], output: Output) -> None:
    output.table(
        ["recorded", "outcome", "took", "worked", "left", "details"],
        [
            [
                f"{record.ended:%Y-%m-%d %H:%M:%S}",
                Cell(record.outcome, _COLOURS.get(record.outcome)),
                "" if record.seconds is None else f"{record.seconds:.1f} s",
                "" if record.fence is None else record.fields.get("worked", ""),
                record.fields.get("backlog", ""),
                _details(record),
            ]
            for record in records
        ],
    )


def _details(record: RunRecord) -> str:
    fields = record.fields
    parts = [
        fields.get("error", ""),
        f"held by {fields['held_by'] or 'a run outside Celery'}" if "held_by" in fields else "",
        f"slot {datetime.fromtimestamp(int(fields['slot']), UTC):%H:%M:%S}" if fields.get("slot") else "",
        f"by {fields['by']}" if fields.get("by") else "",
        fields.get("worker", ""),
    ]
    return ", ".join(part for part in parts if part)
