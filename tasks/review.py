"""What is left to a human: the list of it, and a person's word on each.

A person's word is final: nobody is asked about a settled ingredient again, whatever changes. It is kept like
any other verdict, with who gave it.
"""

import json
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from tasks.clock import now
from tasks.engine import Answer, Verdict, reason_for
from tasks.facts import Facts, state_of
from tasks.proposal import MalformedProposal, Proposal, read
from tasks.store import Store, answer_row
from tasks.tables import AnswerRow, IngredientRow, IngredientState, RejectionRow
from tasks.text import storable

# A human holds no lease. Fences of runs begin above.
_NO_FENCE = 0


class Open(NamedTuple):
    """An ingredient that waits for a human: why, and what was proposed for it, if anything."""

    id: int
    ingredient: str
    reason: str
    proposed: str


class NotOpen(Exception):  # noqa: N818  # named like the outcomes it sits beside
    """The ingredient cannot be settled so. The message says why and what to do instead."""


def waiting(store: Store, limit: int | None = None) -> list[Open]:
    """Return what waits, the longest waiting first."""
    query = (
        select(IngredientRow)
        .where(IngredientRow.state == IngredientState.NEEDS_HUMAN)
        .order_by(IngredientRow.id)
        .limit(limit)
    )
    with store.reading() as session:
        return [_open(session, row) for row in session.scalars(query)]


def accept(store: Store, ingredient_id: int, by: str) -> Answer:
    """Make what was proposed the answer, uncapped.

    Raises:
        NotOpen: it does not wait for a human, or nothing was proposed for it.
    """
    with store.writing(None) as session:
        row = _must_wait(session, ingredient_id)
        proposal = _proposal(_last(session, row))
        if proposal is None:
            raise NotOpen(f"nothing was proposed for {row.name!r}; give the answer yourself: review answer")
        answer = _answer(proposal.facts, proposal.e_number)
        _settle(session, row, answer, proposal.to_text(), by)
        return answer


def answer(store: Store, ingredient_id: int, facts: Facts, e_number: str | None, by: str) -> Answer:
    """Give the answer.

    Raises:
        NotOpen: it does not wait for a human.
    """
    with store.writing(None) as session:
        row = _must_wait(session, ingredient_id)
        given = _answer(facts, e_number)
        _settle(session, row, given, "", by)
        return given


def reject(store: Store, ingredient_id: int, why: str, by: str) -> None:
    """Leave the ingredient without an answer, for good.

    Raises:
        NotOpen: it does not wait for a human.
    """
    with store.writing(None) as session:
        row = _must_wait(session, ingredient_id)
        last = _last(session, row)
        row.state = IngredientState.SETTLED
        session.add(
            RejectionRow(
                ingredient_id=row.id,
                verdict=Verdict.REJECTED.value,
                rules="human",
                reason=storable(f"{by}: {why}" if why else f"by {by}"),
                proposal=last.proposal if last else "",
                decision=_decision(Verdict.REJECTED, by),
                asked=row.asked or "",
                fence=_NO_FENCE,
                rejected_at=now(),
            )
        )


def _must_wait(session: Session, ingredient_id: int) -> IngredientRow:
    row = session.get(IngredientRow, ingredient_id, with_for_update=True)
    if row is None:
        raise NotOpen(f"there is no ingredient {ingredient_id}; `review` lists those that wait")
    if row.state != IngredientState.NEEDS_HUMAN:
        raise NotOpen(f"{row.name!r} does not wait for a human: it is {row.state}")
    return row


def _last(session: Session, row: IngredientRow) -> RejectionRow | None:
    """What was last said against it."""
    query = select(RejectionRow).where(RejectionRow.ingredient_id == row.id).order_by(RejectionRow.id.desc())
    return session.scalars(query.limit(1)).one_or_none()


def _proposal(rejection: RejectionRow | None) -> Proposal | None:
    try:
        return read(rejection.proposal) if rejection else None
    except MalformedProposal:
        return None


def _open(session: Session, row: IngredientRow) -> Open:
    last = _last(session, row)
    proposal = _proposal(last)
    facts = proposal.facts if proposal else None
    proposed = (
        f"fodmap {', '.join(sorted(facts.fodmap))}; gluten {facts.gluten}; lactose {facts.lactose}"
        if facts
        else ""
    )
    return Open(row.id, row.name, last.reason if last else "", proposed)


def _answer(facts: Facts, e_number: str | None) -> Answer:
    # What only matters from a larger serve is a matter of the knowledge: a person says what is in it.
    return Answer(facts, e_number, state_of(facts, portion=False), reason_for(facts, portion=False))


def _settle(session: Session, row: IngredientRow, given: Answer, proposal: str, by: str) -> None:
    row.state = IngredientState.SETTLED
    common: dict[str, Any] = {
        "ingredient_id": row.id,
        "proposal": proposal,
        "decision": _decision(Verdict.ACCEPTED, by),
        "fence": _NO_FENCE,
    }
    session.merge(answer_row(session.get(AnswerRow, row.id), common, given))


def _decision(verdict: Verdict, by: str) -> str:
    return json.dumps({"verdict": verdict, "by": storable(by)}, ensure_ascii=False, sort_keys=True)
