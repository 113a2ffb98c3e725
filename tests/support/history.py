"""What a fault run left behind, and whether it kept the promises.

A history is a list of events, each written by whoever was there: the triggering test, the body that
asked its lease, the process that called the store. All of them run on one machine, whose monotonic
clock they share. A moment is known as an interval, from before to after the call that it lies in, and
is judged only where the intervals leave no doubt.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class Event(NamedTuple):
    """Something that happened to the lease `name` at some moment between `at` and `until`.

    =========  =================================================================================
    kind       meaning of `said`
    =========  =================================================================================
    sent       a trigger was sent
    granted    an acquire was answered with a grant; `at` is when it was asked
    refused    an acquire was refused: the answer
    renewed    a renewal was answered: the answer
    released   a release was answered: the outcome
    entered    a body began
    sample     a body asked its lease: trusted, suspect or lost
    left       a body ended by itself: returned or raised
    wrote      a body tried a fenced write: accepted or refused; `number` is its place in the data
    recorded   a record in the ledger: the outcome; `number` is its place in the ledger
    state      what Celery says about a trigger in the end
    data_lost  the store lost its data, or the lease's key was deleted; an empty name means all of it
    =========  =================================================================================
    """

    kind: str
    name: str
    at: float = 0.0
    until: float = 0.0
    task_id: str = ""
    fence: int = 0
    token: str = ""
    said: str = ""
    number: int = 0


class Violation(NamedTuple):
    """A promise that was not kept."""

    promise: str
    name: str
    what: str


#: Two runs of one name never trust their leases at once, while the store keeps its data.
ONE_HOLDER = "one holder"
#: A later grant has a higher fence, whatever the store lost.
FENCES_GROW = "fences grow"
#: A lease that was granted anew is not renewed by its old holder.
OLD_TERM_IS_OVER = "an old term is over"
#: A write under an older fence never lands after one under a newer.
NO_STALE_WRITE = "no stale write"
#: Every trigger ends in a recorded outcome.
NO_TRIGGER_LOST = "no trigger lost"
#: No trigger ends in two.
ONE_OUTCOME = "one outcome"
#: `ran` is recorded only of a body that came to its end.
TRUE_RECORD = "true record"

#: Ends of a run that another attempt at the same trigger may follow.
_MAY_BE_FOLLOWED = frozenset({"abandoned", "lost", "retried"})
#: Celery states in which a trigger that never had a lease may end without a record: its worker died
#: before the lease, or with a skip that the store could not be told.
_ENDS_WITHOUT_RECORD = frozenset({"SKIPPED", "REVOKED", "FAILURE"})


class Reader:
    """Reads the files of a directory as they grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        """The events so far. A line that a kill cut short does not count."""
        for path in sorted(self._directory.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                lines = file.read().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith(b"\n")]
            self._read[path] = self._read.get(path, 0) + sum(map(len, whole))
            self._events += [Event(**json.loads(line)) for line in whole]
        return self._events


def judge(events: Iterable[Event]) -> list[Violation]:
    """The promises that were not kept; none for a good history."""
    by_name: dict[str, list[Event]] = defaultdict(list)
    losses: list[Event] = []
    for event in events:
        if event.kind == "data_lost":
            losses.append(event)
        else:
            by_name[event.name].append(event)
    return [
        violation
        for name, happened in sorted(by_name.items())
        for violation in _Judge(name, happened, [loss for loss in losses if loss.name in ("", name)]).all()
    ]


class _Term(NamedTuple):
    """One grant, as far as it left traces: not granted before `at`, certainly granted at `until`."""

    fence: int
    token: str
    at: float
    until: float


class _Judge:
    """Judges one name."""

    def __init__(self, name: str, events: list[Event], losses: list[Event]) -> None:
        self._name = name
        self._events = events
        self._losses = losses
        self._terms = sorted(self._find_terms(), key=lambda term: term.fence)

    def all(self) -> Iterator[Violation]:
        for promise, broken in (
            (ONE_HOLDER, self._trust_in_old_terms()),
            (FENCES_GROW, self._fences_that_went_back()),
            (OLD_TERM_IS_OVER, self._renewals_of_old_terms()),
            (NO_STALE_WRITE, self._stale_writes()),
            (NO_TRIGGER_LOST, self._triggers_without_an_outcome()),
            (ONE_OUTCOME, self._triggers_with_two_outcomes()),
            (TRUE_RECORD, self._untrue_records()),
        ):
            for what in broken:
                yield Violation(promise, self._name, what)

    def _of(self, *kinds: str) -> list[Event]:
        return [event for event in self._events if event.kind in kinds]

    def _find_terms(self) -> Iterator[_Term]:
        traces: dict[tuple[int, str], list[Event]] = defaultdict(list)
        for event in self._of("granted", "entered", "sample"):
            traces[event.fence, event.token].append(event)
        for (fence, token), events in traces.items():
            first = min(events, key=lambda event: event.until)
            yield _Term(fence, token, first.at, first.until)

    def _successor(self, fence: int) -> _Term | None:
        """The first later term that ended this one's right, with no loss of data to excuse both."""
        own = min((term for term in self._terms if term.fence == fence), key=lambda term: term.until)
        later = [
            term
            for term in self._terms
            if term.fence > fence
            and not any(loss.until >= own.at and loss.at <= term.until for loss in self._losses)
        ]
        return min(later, key=lambda term: term.until, default=None)

    def _trust_in_old_terms(self) -> Iterator[str]:
        for fence in {term.fence for term in self._terms}:
            successor = self._successor(fence)
            if successor is None:
                continue
            trusting = [
                event
                for event in self._of("sample")
                if event.fence == fence and event.said == "trusted" and event.at > successor.until
            ]
            if trusting:
                late = trusting[-1].at - successor.until
                yield (
                    f"fence {fence} was trusted {len(trusting)} times after fence {successor.fence} had "
                    f"been granted, the last time {late:.3f} s after"
                )

    def _fences_that_went_back(self) -> Iterator[str]:
        for term in self._terms:
            for other in self._terms:
                if term.token == other.token:
                    continue
                if term.fence == other.fence and term.token < other.token:
                    yield f"fence {term.fence} was granted twice"
                if term.fence < other.fence and other.until < term.at:
                    yield f"fence {term.fence} was granted after fence {other.fence}"

    def _renewals_of_old_terms(self) -> Iterator[str]:
        for event in self._of("renewed"):
            if event.said not in ("renewed", "retaken") or event.fence not in {t.fence for t in self._terms}:
                continue
            successor = self._successor(event.fence)
            if successor is not None and event.at > successor.until:
                yield f"fence {event.fence} was {event.said} after fence {successor.fence} had been granted"

    def _stale_writes(self) -> Iterator[str]:
        newest: Event | None = None
        accepted = [event for event in self._of("wrote") if event.said == "accepted"]
        for event in sorted(accepted, key=lambda event: event.number):
            if newest is not None and event.fence < newest.fence:
                yield f"write {event.number} by fence {event.fence} landed after one by {newest.fence}"
            elif newest is not None and event.fence == newest.fence and event.token != newest.token:
                yield f"write {event.number} by fence {event.fence} landed under another token"
            else:
                newest = event

    def _outcomes(self) -> dict[str, list[str]]:
        """The final outcomes of each trigger."""
        records: dict[str, list[Event]] = defaultdict(list)
        for record in sorted(self._of("recorded"), key=lambda event: event.number):
            records[record.task_id].append(record)
        return {trigger.task_id: _final_outcomes(records[trigger.task_id]) for trigger in self._of("sent")}

    def _triggers_without_an_outcome(self) -> Iterator[str]:
        states = {event.task_id: event.said for event in self._of("state")}
        outcomes = self._outcomes()
        for trigger in self._of("sent"):
            state = states.get(trigger.task_id, "")
            if not outcomes[trigger.task_id] and not self._may_end_without_record(trigger, state):
                yield f"trigger {trigger.task_id} has no outcome (Celery says {state or 'nothing'})"

    def _triggers_with_two_outcomes(self) -> Iterator[str]:
        for task_id, outcomes in self._outcomes().items():
            if len(outcomes) > 1:
                yield f"trigger {task_id} ended more than once: {', '.join(outcomes)}"

    def _may_end_without_record(self, trigger: Event, state: str) -> bool:
        was_lost = any(loss.until >= trigger.at for loss in self._losses)
        had_a_lease = any(event.task_id == trigger.task_id for event in self._of("granted", "entered"))
        return (state in _ENDS_WITHOUT_RECORD and not had_a_lease) or (was_lost and bool(state))

    def _untrue_records(self) -> Iterator[str]:
        entered = {event.fence for event in self._of("entered")}
        returned = {event.fence for event in self._of("left") if event.said == "returned"}
        for record in self._of("recorded"):
            if record.said == "ran" and record.fence in entered - returned:
                yield f"fence {record.fence} is recorded as ran, and its body did not return"


def _final_outcomes(records: list[Event]) -> list[str]:
    """The outcomes of one trigger that nothing followed.

    Of a run, its last record counts: it may have been closed as abandoned and then report by itself. An
    attempt that came to nothing may be followed by another one.
    """
    by_fence = {record.fence: record.said for record in records if record.fence}
    skips = [record.said for record in records if not record.fence]
    newest = max(by_fence, default=0)
    return skips + [
        said
        for fence, said in by_fence.items()
        if said not in _MAY_BE_FOLLOWED or (fence == newest and not skips and said != "retried")
    ]
