"""The strip of a job's last ticks: what the schedule promised, slot by slot, and what was done about it.

A tick shows the best that was done in its slot: one that failed and was then repeated well did its work. But
what did not do its work is never shown as if it had: twelve skips are twelve amber ticks. Where several slots
have to share a tick, it shows the worst of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from celery_lease._expectations import Expectation
    from celery_lease._ledger import OpenRun, RunRecord

_DAY = timedelta(days=1)

#: At least so many slots are shown, if a day has fewer; and at most so many ticks.
_FEWEST, _MOST = 24, 96

#: Of a schedule that is due more often than once a minute, only the last ticks are shown.
_MINUTES = 1440

#: From the worst to the best, by colour.
_SEVERITY = ("bad", "skip", "warn", "now", "good", "none")


class Kind(NamedTuple):
    """How an outcome is shown: by a letter, a colour, and in words."""

    letter: str
    colour: str
    words: str


#: From the best to the worst: of several in one tick, the first is shown.
KINDS = {
    "ran": Kind("R", "good", "did its work"),
    "unguarded": Kind("G", "good", "ran without a lease (--no-lock)"),
    "running": Kind("▸", "now", "is running"),
    "retried": Kind("T", "warn", "will be tried again"),
    "dry_run": Kind("Y", "none", "was a dry run"),
    "lost": Kind("X", "bad", "lost its lease to another run"),
    "failed": Kind("F", "bad", "raised an error, or ran into a time limit"),
    "abandoned": Kind("A", "bad", "died with its process"),
    "skipped_lock_unavailable": Kind("U", "skip", "skipped: the lease store did not answer"),
    "skipped_locked": Kind("L", "skip", "skipped: another run held the lease"),
    "skipped_already_done": Kind("D", "none", "skipped: this slot had been done"),
    "expired": Kind("E", "warn", "expired before it started"),
    "broken": Kind("B", "none", "an operator took the lease away"),
    "missed": Kind("M", "bad", "left no trace at all"),
    "due": Kind("·", "none", "due; nothing has happened yet"),
    "unknown": Kind(" ", "none", "before the first record that is kept"),
}

_RANK = {outcome: rank for rank, outcome in enumerate(KINDS)}


class Happened(NamedTuple):
    """Something that happened for a tick."""

    at: datetime
    outcome: str
    seconds: float | None = None


@dataclass(frozen=True)
class Tick:
    """One cell of the strip.

    Attributes:
        at: the slot.
        outcome: what is shown.
        detail: more about it, such as how long it took, or how many others there were.
        mark: a label for the time axis, or "".
    """

    at: datetime
    outcome: str
    detail: str = ""
    mark: str = ""

    @property
    def kind(self) -> Kind:
        """How it is shown."""
        return kind_of(self.outcome)

    @property
    def title(self) -> str:
        """The tick in words."""
        return f"{self.at:%a %H:%M} {self.outcome}{f', {self.detail}' if self.detail else ''}"


class Stretch(NamedTuple):
    """So many ticks in a row with the same outcome."""

    first: datetime
    last: datetime
    ticks: int
    outcome: str


@dataclass(frozen=True)
class Strip:
    """Ticks, oldest first."""

    ticks: Sequence[Tick]

    @property
    def summary(self) -> list[tuple[Kind, str, int]]:
        """(kind, outcome, how many), the most frequent first."""
        counted = Counter(tick.outcome for tick in self.ticks if tick.outcome != "unknown")
        return [(kind_of(outcome), outcome, count) for outcome, count in counted.most_common()]

    @property
    def stretches(self) -> list[Stretch]:
        """The strip in words, as it can be read aloud."""
        rows = [list(group) for _, group in groupby(self.ticks, key=lambda tick: tick.outcome)]
        return [
            Stretch(row[0].at, row[-1].at, len(row), row[0].outcome)
            for row in rows
            if row[0].outcome != "unknown"
        ]


def kind_of(outcome: str) -> Kind:
    """How an outcome is shown; one from a newer version by its first letter."""
    return KINDS.get(outcome) or Kind(outcome[:1].upper(), "none", outcome)


def final(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records that count, given newest first: of those with the same fence, the last one."""
    seen: set[int] = set()
    kept = []
    for record in records:
        if record.fence is None or record.fence not in seen:
            kept.append(record)
        if record.fence is not None:
            seen.add(record.fence)
    return kept


def window(expectations: Sequence[Expectation], now: datetime) -> list[datetime]:
    """The slots to show: those of a day, or the last two dozen; none without a schedule."""
    reach = _DAY
    while True:
        found = sorted({slot for each in expectations for slot in each.slots(now - reach, now)})
        if len(found) > _MINUTES:
            return found[-_MOST:]
        if len(found) >= _FEWEST or reach > 64 * _DAY or not expectations:
            return found if reach == _DAY else found[-_FEWEST:]
        reach *= 4


def of_schedule(
    slots: Sequence[datetime],
    records: Sequence[RunRecord],
    open_run: OpenRun | None,
    known_since: datetime | None,
) -> Strip:
    """The strip of a scheduled job.

    Args:
        slots: from `window`.
        records: newest first, from the first slot on.
        open_run: if one is going on.
        known_since: what was before is not known.
    """
    happened = [_happened(record) for record in final(records)]
    if open_run is not None:
        happened.append(Happened(open_run.since, "running"))
    in_slot: dict[int, list[Happened]] = {}
    for each in happened:
        in_slot.setdefault(bisect_right(slots, each.at) - 1, []).append(each)
    ticks = []
    for number, slot in enumerate(slots):
        is_over = number + 1 < len(slots)
        ticks.append(_tick(slot, in_slot.get(number, []), is_over=is_over, known_since=known_since))
    together = -(-len(ticks) // _MOST)
    return Strip(_marked([_worst(ticks[i : i + together]) for i in range(0, len(ticks), together or 1)]))


def of_records(records: Sequence[RunRecord], open_run: OpenRun | None) -> Strip:
    """The strip of a job without a schedule: its last runs, newest records first given."""
    recent = [record for record in final(records) if record.outcome != "missed"][: _MOST // 2]
    ticks = [_tick(at, [each]) for each in map(_happened, reversed(recent)) for at in [each.at]]
    if open_run is not None:
        ticks.append(Tick(open_run.since, "running"))
    return Strip(_marked(ticks))


def _happened(record: RunRecord) -> Happened:
    return Happened(_moment(record), record.outcome, record.seconds)


def _moment(record: RunRecord) -> datetime:
    """The instant that a record is about: its slot, else its start, else its end."""
    slot = record.fields.get("slot", "")
    if slot.isdecimal():
        return datetime.fromtimestamp(int(slot), record.ended.tzinfo)
    return record.since or record.ended


def _tick(
    slot: datetime,
    inside: Sequence[Happened],
    *,
    is_over: bool = True,
    known_since: datetime | None = None,
) -> Tick:
    if inside:
        best = min(inside, key=lambda each: _RANK.get(each.outcome, len(_RANK)))
        return Tick(slot, best.outcome, _detail(best, inside))
    if known_since is None or slot < known_since:
        return Tick(slot, "unknown")
    return Tick(slot, "missed" if is_over else "due")


def _worst(ticks: Sequence[Tick]) -> Tick:
    """Several slots as one tick: the most frequent of what is worst among them."""
    if len(ticks) == 1:
        return ticks[0]
    counted = Counter(tick.outcome for tick in ticks)
    worst = min(counted, key=lambda outcome: (_SEVERITY.index(kind_of(outcome).colour), -counted[outcome]))
    return Tick(ticks[0].at, worst, ", ".join(f"{count} {outcome}" for outcome, count in counted.items()))


def _detail(best: Happened, inside: Sequence[Happened]) -> str:
    parts = []
    if best.seconds is not None:
        parts.append(f"took {best.seconds:.1f} s")
    others = Counter(each.outcome for each in inside)
    others[best.outcome] -= 1
    parts += [f"and {count} {outcome}" for outcome, count in others.items() if count > 0]
    return " ".join(parts)


def _marked(ticks: Sequence[Tick]) -> list[Tick]:
    """The same with labels for the time axis: about six, where the hour or the day changes."""
    every = max(2, len(ticks) // 6)  # a label is wider than a tick
    marked, last = [], -every
    for index, tick in enumerate(ticks):
        before = ticks[index - 1].at if index else None
        turns = before is None or before.hour != tick.at.hour or before.date() != tick.at.date()
        if turns and index - last >= every:
            is_new_day = before is None or before.date() != tick.at.date()
            words = f"{tick.at:%d %b}" if is_new_day and tick.at.hour == 0 else f"{tick.at:%H:%M}"
            marked.append(Tick(tick.at, tick.outcome, tick.detail, words))
            last = index
        else:
            marked.append(tick)
    return marked
