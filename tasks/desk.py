"""The desk of one pass: takes up what is due, has it judged, writes the verdict down, and counts."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from celery.utils.log import get_task_logger

from tasks.attempts import Settlement
from tasks.case import Effect, Finding
from tasks.engine import Decision, Verdict, decide, screen, unjudged, versions
from tasks.fence import Holder
from tasks.knowledge import Knowledge
from tasks.proposal import Question
from tasks.store import Due, Store

logger = get_task_logger("tasks.curation")


class Lease(Holder, Protocol):
    """What a pass needs of its lease: the fence for the store, and whether to go on."""

    def check(self) -> object:
        """Raise `LeaseLost` when the lease cannot be trusted any more."""


@dataclass
class Counts:
    """What a pass did.

    Attributes:
        asked: the ingredients it took up; each has a verdict in the end, or is deferred.
        verdicts: how many of each. A rejection is progress, too.
        deferred: how many are left for a later pass, by reason.
        spent: micro-units; what was reserved where nobody knows the cost.
        backlog: how many ingredients are due after it.
        stopped: why it ended before it was through.
        blocked: what a person has to change before another pass can do any better.
    """

    asked: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    deferred: Counter[str] = field(default_factory=Counter)
    spent: int = 0
    backlog: int = 0
    stopped: str = ""
    blocked: str = ""

    def to_result(self) -> dict[str, int | str]:
        """Return the counts as the task's result; `worked` counts the ingredients judged."""
        each = {verdict.value: self.verdicts[verdict] for verdict in Verdict}
        counts = {
            "worked": self.verdicts.total(),
            "asked": self.asked,
            **each,
            "deferred": self.deferred.total(),
            "spent": self.spent,
            "backlog": self.backlog,
        }
        return counts | ({"stopped": self.stopped} if self.stopped else {})


class Desk:
    """One pass. For the thread that made it."""

    def __init__(self, store: Store, knowledge: Knowledge, prompt: str, lease: Lease) -> None:
        self.store = store
        self.lease = lease
        self.counts = Counts()
        #: What the decisions are made with.
        self.versions = versions(knowledge, prompt).key
        self._knowledge = knowledge
        self._prompt = prompt

    def open(self, limit: int) -> list[Due]:
        """Shut older runs out, and take up to `limit` ingredients.

        Raises:
            StaleFence: a newer run has claimed.
        """
        self.store.claim(self.lease)
        items = self.store.due(self.versions, limit)
        self.counts.asked = len(items)
        return items

    def close(self) -> Counts:
        """Return what the pass did."""
        self.counts.backlog = self.store.backlog(self.versions)
        return self.counts

    def screened(self, item: Due) -> bool:
        """Whether the ingredient was left to a human without asking anybody."""
        refused = screen(item.part, self._knowledge, self._prompt)
        if refused is None:
            return False
        self._record(item, refused)
        return True

    def judge(self, item: Due, proposal: str, paid: Settlement | None = None) -> None:
        """Let the engine decide about a proposal."""
        decision = decide(question_about(item), proposal, self._knowledge, self._prompt)
        self._record(item, decision, proposal, paid)

    def reject(self, item: Due, reason: str, detail: str, text: str, paid: Settlement | None = None) -> None:
        """Reject an answer that holds no proposal."""
        why = Finding(reason, Effect.REJECT, detail)
        decision = unjudged(Verdict.REJECTED, why, self._knowledge, self._prompt)
        self._record(item, decision, text, paid)

    def leave_to_human(self, item: Due, reason: str, detail: str) -> None:
        """Ask no more about an ingredient."""
        why = Finding(reason, Effect.HUMAN, detail)
        self._record(item, unjudged(Verdict.NEEDS_HUMAN, why, self._knowledge, self._prompt))

    def defer(self, item: Due, reason: str, detail: str = "") -> None:
        """Leave an ingredient for a later pass."""
        self.counts.deferred[reason] += 1
        logger.warning("deferred: %s: %s%s", item.name, reason, f": {detail}" if detail else "")

    def _record(
        self, item: Due, decision: Decision, proposal: str = "", paid: Settlement | None = None
    ) -> None:
        self.store.record(item, decision, proposal, self.lease, paid)
        self.counts.verdicts[decision.verdict] += 1
        if decision.verdict is not Verdict.ACCEPTED:
            logger.warning("%s: %s: %s", decision.verdict, item.name, decision.reason)


def question_about(item: Due) -> Question:
    """Return the question that is asked about an ingredient."""
    return Question(str(item.id), item.part, item.earlier)
