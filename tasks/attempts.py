"""Attempts: paid calls, each reserved before it is made and settled after it.

A reservation is committed before the call begins, at the most that the call can cost. It counts as spent
until its true cost is known, so that a crash at any moment leaves the books at or above what the server will
charge.

The same question is told by its hash: ingredient, model, prompt, schema, knowledge and engine. One that has
been answered is never paid for again; its answer is there to be judged anew. One whose outcome nobody knows
is asked again by a later run, but not by a copy of the message that asked it, and not after `MOST_RUNS` runs.
"""

from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from sqlalchemy import ColumnElement, case, func, select, update
from sqlalchemy.orm import Session

from tasks.clock import day, month, now
from tasks.money import Budgets
from tasks.tables import AttemptRow, AttemptState, IngredientRow
from tasks.text import storable

#: After so many runs that asked about an ingredient and got nothing, it is left to a human.
MOST_RUNS = 3

_CRASHED = "crashed"


class Call(NamedTuple):
    """One call that is to be made.

    Attributes:
        ingredient_id: what it asks about.
        request_hash: what it asks, exactly.
        delivery: the message that the run came with.
        number: 1, or 2 for the one more try inside a run.
        most: micro-units that it can cost at most.
    """

    ingredient_id: int
    request_hash: str
    delivery: str
    number: int
    most: int


class Refused(StrEnum):
    """Why a call must not be made."""

    ASKED = "asked"  # the same message has asked it: this is a copy
    EXHAUSTED = "exhausted"
    BUDGET_DAY = "budget_day"
    BUDGET_MONTH = "budget_month"


class Answered(NamedTuple):
    """How this very request was answered before: the recorded reason, and the text."""

    reason: str
    text: str


class Settlement(NamedTuple):
    """How a call ended.

    Attributes:
        actual: micro-units; None where nobody knows what it cost: then the reserve stays spent.
        answer: what the model wrote; None if it was not asked to the end.
    """

    attempt_id: int
    state: AttemptState
    reason: str
    actual: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    answer: str | None = None


def request_hash(part_key: str, versions: str) -> str:
    """Return what tells one question from all others."""
    return sha256(f"{versions}\0{part_key}".encode(errors="replace")).hexdigest()


def reserve(session: Session, call: Call, budgets: Budgets, fence: int) -> int | Answered | Refused:
    """Reserve the money for a call and return the attempt's id; or the answer it had, or why it must not be.

    The fence that the transaction has passed keeps all others out, so that no two calls can share the rest of
    a budget.
    """
    instead = _answered(session, call) or _refusal(session, call, budgets)
    if instead:
        return instead
    started = now()
    session.get_one(IngredientRow, call.ingredient_id).tried_at = started
    attempt = AttemptRow(
        ingredient_id=call.ingredient_id,
        request_hash=call.request_hash,
        delivery=call.delivery,
        number=call.number,
        state=AttemptState.RESERVED.value,
        reserved=call.most,
        reason="",
        fence=fence,
        started_at=started,
    )
    session.add(attempt)
    session.flush()
    return attempt.id


def _refusal(session: Session, call: Call, budgets: Budgets) -> Refused | None:
    same = AttemptRow.request_hash == call.request_hash
    own = AttemptRow.delivery == call.delivery
    if session.scalar(select(AttemptRow.id).where(same, own, AttemptRow.number >= call.number).limit(1)):
        return Refused.ASKED
    taken_up = AttemptRow.state != AttemptState.REFUSED
    runs = select(func.count(AttemptRow.delivery.distinct())).where(same, ~own, taken_up)
    if session.scalars(runs).one() >= MOST_RUNS:
        return Refused.EXHAUSTED
    of_day, of_month = spent(session)
    if of_day + call.most > budgets.of_day:
        return Refused.BUDGET_DAY
    return Refused.BUDGET_MONTH if of_month + call.most > budgets.of_month else None


def _answered(session: Session, call: Call) -> Answered | None:
    query = (
        select(AttemptRow.reason, AttemptRow.answer)
        .where(AttemptRow.request_hash == call.request_hash, AttemptRow.answer.is_not(None))
        .order_by(AttemptRow.id)
        .limit(1)
    )
    found = session.execute(query).one_or_none()
    return Answered(found.reason, found.answer) if found else None


class Spent(NamedTuple):
    """What was spent, in micro-units: reserves count until they are settled."""

    of_day: int
    of_month: int


def spent(session: Session) -> Spent:
    """Return what was spent today and this month."""
    today = now()
    each: ColumnElement[int] = func.coalesce(AttemptRow.actual, AttemptRow.reserved)
    of_today = case((AttemptRow.started_at >= day(today), each), else_=0)
    totals = select(func.coalesce(func.sum(of_today), 0), func.coalesce(func.sum(each), 0))
    of_day, of_month = session.execute(totals.where(AttemptRow.started_at >= month(today))).one()
    return Spent(int(of_day), int(of_month))


def settle(session: Session, settlement: Settlement) -> None:
    """Write down how a call ended."""
    session.execute(
        update(AttemptRow)
        .where(AttemptRow.id == settlement.attempt_id)
        .values(
            state=settlement.state.value,
            reason=settlement.reason,
            actual=settlement.actual,
            tokens_in=settlement.tokens_in,
            tokens_out=settlement.tokens_out,
            answer=None if settlement.answer is None else storable(settlement.answer),
            settled_at=now(),
        )
    )


def close_open(session: Session) -> None:
    """Give up on what earlier runs left open: they can settle nothing any more, their reserves are spent."""
    session.execute(
        update(AttemptRow)
        .where(AttemptRow.state == AttemptState.RESERVED)
        .values(state=AttemptState.UNKNOWN.value, reason=_CRASHED, settled_at=now())
    )
