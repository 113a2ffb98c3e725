"""The store: labels, the queue of ingredients, attempts, answers and rejections.

A run claims its fence when it starts, and each of its writing transactions passes it first (`tasks.fence`):
a run that lost its lease and goes on changes nothing. SQLite or PostgreSQL (`tasks.database`).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, text
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from tasks import attempts
from tasks.attempts import Answered, Call, Refused, Settlement, Spent
from tasks.clock import now
from tasks.database import opened
from tasks.engine import Answer, Decision, Verdict
from tasks.facts import Facts, State
from tasks.fence import Holder, claim, pass_fence
from tasks.ingredients import Part
from tasks.labels import Label
from tasks.money import Budgets
from tasks.proposal import MalformedProposal, read
from tasks.tables import AnswerRow, IngredientRow, IngredientState, LabelRow, RejectionRow
from tasks.text import storable

# A number that nothing else in this database takes an advisory lock with.
_LOADING_LOCK = 0x7A5C_0002


class Added(NamedTuple):
    """What loading one label changed."""

    label: str  # "new", "changed" or "unchanged"
    ingredients: int  # how many ingredients it holds
    queued: int  # how many of them nobody had needed before


class Due(NamedTuple):
    """An ingredient that is to be asked about."""

    id: int
    name: str
    part: Part
    earlier: tuple[Facts, ...]


class Curated(NamedTuple):
    """An answer, for people."""

    ingredient: str
    state: str
    reason: str


class Store:
    """The database of the application. Not for sharing across a fork: open it where it is used."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = engine.execution_options(writes=True)

    @classmethod
    @contextmanager
    def open(cls, url: str, *, read_only: bool = False) -> Iterator[Self]:
        """Open the database at `url`, make it or bring it up to date, and close it at the end.

        Raises:
            DatabaseError: this program cannot use it; or it is not there and may only be read.
        """
        with opened(url, read_only=read_only) as engine:
            yield cls(engine)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Begin a transaction that only reads."""
        with Session(self._engine) as session:
            yield session

    @contextmanager
    def writing(self, holder: Holder | None) -> Iterator[Session]:
        """Begin a writing transaction: committed at the end, rolled back as a whole after an exception.

        Args:
            holder: the run that writes; None for what no job does, such as a person.

        Raises:
            StaleFence: a newer run has claimed; nothing is written.
        """
        with Session(self._writing) as session, session.begin():
            if holder is not None:
                pass_fence(session, holder)
            yield session

    # --- labels ---------------------------------------------------------------------------------------------

    def add_label(self, label: Label, parts: Sequence[Part]) -> Added:
        """Add a label and queue the ingredients that nobody needed before.

        Loading the same label again changes nothing. A label that comes again with another text replaces the
        old text; ingredients that were queued for it stay.
        """
        each = {part.key: part for whole in parts for part in whole.walk()}
        with self.writing(None) as session:
            _one_loader_at_a_time(session)
            row, what = _label_row(session, label)
            known = set(session.scalars(select(IngredientRow.name).where(IngredientRow.name.in_(each))))
            new = [part for key, part in each.items() if key not in known]
            session.add_all(_queued(part, row) for part in new)
            return Added(what, len(each), len(new))

    # --- the queue ------------------------------------------------------------------------------------------

    def due(self, versions: str, limit: int) -> list[Due]:
        """Return up to `limit` ingredients to ask about, those that were never asked about first.

        What was rejected, left to a human or answered with "unknown" is due again when the versions change:
        only then can the outcome be another one. Where asking came to nothing, the one that was tried least
        recently comes first: no ingredient can stand in the way of all the others.
        """
        tried_at = func.coalesce(IngredientRow.tried_at, "")
        never_asked_first = (IngredientRow.asked.is_not(None), tried_at, IngredientRow.id)
        query = _due(select(IngredientRow), versions).order_by(*never_asked_first).limit(limit)
        with self.reading() as session:
            return [
                Due(
                    row.id,
                    row.name,
                    Part.from_json(json.loads(row.part)),
                    _earlier(session, row.id, versions),
                )
                for row in session.scalars(query)
            ]

    def backlog(self, versions: str) -> int:
        """Return how many ingredients are due."""
        with self.reading() as session:
            return int(session.scalars(_due(select(func.count(IngredientRow.id)), versions)).one())

    def claim(self, holder: Holder) -> None:
        """Make `holder` the only run that may write; the runs before it are refused from here on.

        Raises:
            StaleFence: a newer run has claimed already.
        """
        with self.writing(None) as session:
            claim(session, holder)
            attempts.close_open(session)

    # --- paid calls -----------------------------------------------------------------------------------------

    def reserve(self, call: Call, budgets: Budgets, holder: Holder) -> int | Answered | Refused:
        """Reserve the money for a call, in a transaction of its own (`tasks.attempts.reserve`).

        Raises:
            StaleFence: a newer run has claimed.
        """
        with self.writing(holder) as session:
            return attempts.reserve(session, call, budgets, holder.fence)

    def settle(self, settlement: Settlement, holder: Holder) -> None:
        """Write down how a call ended that brought nothing to judge.

        Raises:
            StaleFence: a newer run has claimed; the reserve stays spent.
        """
        with self.writing(holder) as session:
            attempts.settle(session, settlement)

    def spent(self) -> Spent:
        """Return what was spent today and this month."""
        with self.reading() as session:
            return attempts.spent(session)

    # --- answers --------------------------------------------------------------------------------------------

    def record(
        self, item: Due, decision: Decision, proposal: str, holder: Holder, paid: Settlement | None = None
    ) -> None:
        """Write what was decided about an ingredient and what it cost, in one transaction under the fence.

        A person may have settled the ingredient meanwhile; that stands, and only the cost is written.

        Raises:
            StaleFence: a newer run has claimed; nothing is written.
        """
        with self.writing(holder) as session:
            if paid is not None:
                attempts.settle(session, paid)
            ingredient = session.get_one(IngredientRow, item.id, with_for_update=True)
            if ingredient.state != IngredientState.SETTLED:
                _decide(session, ingredient, decision, storable(proposal), holder.fence)

    def answers(self, limit: int | None = None) -> list[Curated]:
        """Return the answers, in the order in which their ingredients were first needed."""
        query = (
            select(IngredientRow.name, AnswerRow.state, AnswerRow.reason)
            .join(AnswerRow, AnswerRow.ingredient_id == IngredientRow.id)
            .order_by(IngredientRow.id)
            .limit(limit)
        )
        with self.reading() as session:
            return [Curated(*row) for row in session.execute(query)]


_STATE_AFTER = {
    Verdict.ACCEPTED: IngredientState.ANSWERED,
    Verdict.REJECTED: IngredientState.REJECTED,
    Verdict.NEEDS_HUMAN: IngredientState.NEEDS_HUMAN,
}


def _one_loader_at_a_time(session: Session) -> None:
    """Two loaders of overlapping labels would wait for each other's rows, or both add the same one."""
    if session.connection().dialect.name == "postgresql":  # SQLite has one writer in any case
        session.execute(text(f"SELECT pg_advisory_xact_lock({_LOADING_LOCK})"))


def _decide(
    session: Session, ingredient: IngredientRow, decision: Decision, proposal: str, fence: int
) -> None:
    ingredient.attempts += 1
    ingredient.asked = decision.versions.key
    ingredient.state = _STATE_AFTER[decision.verdict]
    common: dict[str, Any] = {
        "ingredient_id": ingredient.id,
        "proposal": proposal,
        "decision": storable(decision.to_text()),
        "fence": fence,
    }
    if decision.answer is None:
        session.add(_rejection(common, decision))
    else:
        session.merge(answer_row(session.get(AnswerRow, ingredient.id), common, decision.answer))


def _label_fields(label: Label) -> dict[str, str]:
    return {
        "language": label.language,
        "product": label.product,
        "contributor": label.contributor,
        "ingredients": label.ingredients,
    }


def _label_row(session: Session, label: Label) -> tuple[LabelRow, str]:
    """The row of a label, made or brought up to date, and which of it."""
    fields = _label_fields(label)
    row = session.scalars(select(LabelRow).where(LabelRow.ref == label.id)).one_or_none()
    if row is None:
        row = LabelRow(ref=label.id, loaded_at=now(), **fields)
        session.add(row)
        session.flush()
        return row, "new"
    changed = {name: value for name, value in fields.items() if getattr(row, name) != value}
    for name, value in changed.items():
        setattr(row, name, value)
    return row, "changed" if changed else "unchanged"


def _queued(part: Part, label: LabelRow) -> IngredientRow:
    return IngredientRow(
        name=part.key,
        part=json.dumps(part.to_json(), ensure_ascii=False),
        label_id=label.id,
        contributor=label.contributor,
        state=IngredientState.OPEN.value,
        attempts=0,
        added_at=now(),
    )


def _earlier(session: Session, ingredient_id: int, versions: str) -> tuple[Facts, ...]:
    """What proposals of the same versions said before, as far as they could be read."""
    query = select(RejectionRow.proposal).where(
        RejectionRow.ingredient_id == ingredient_id, RejectionRow.asked == versions
    )
    return tuple(facts for text in session.scalars(query) if (facts := _claimed(text)))


def answer_row(first: AnswerRow | None, common: dict[str, Any], answer: Answer) -> AnswerRow:
    """Return the row of an answer; the moment of the first one stays."""
    decided_at = now()
    return AnswerRow(
        **common,
        state=answer.state.value,
        fodmap=";".join(sorted(answer.facts.fodmap)),
        gluten=answer.facts.gluten.value,
        lactose=answer.facts.lactose.value,
        e_number=answer.e_number,
        reason=answer.reason,
        answered_at=first.answered_at if first else decided_at,
        decided_at=decided_at,
    )


def _rejection(common: dict[str, Any], decision: Decision) -> RejectionRow:
    return RejectionRow(
        **common,
        verdict=decision.verdict.value,
        rules=" ".join(decision.rules),
        reason=storable(decision.reason),
        asked=decision.versions.key,
        rejected_at=now(),
    )


def _claimed(proposal: str) -> Facts | None:
    """The facts in a stored proposal; None for one that could not be read, or was never made."""
    try:
        return read(proposal).facts
    except MalformedProposal:
        return None


def _due(query: Select[Any], versions: str) -> Select[Any]:
    return query.outerjoin(AnswerRow, AnswerRow.ingredient_id == IngredientRow.id).where(_is_due(versions))


def _is_due(versions: str) -> ColumnElement[bool]:
    unanswered = IngredientRow.state.in_((IngredientState.REJECTED, IngredientState.NEEDS_HUMAN))
    answered_unknown = and_(
        IngredientRow.state == IngredientState.ANSWERED, AnswerRow.state == State.UNKNOWN.value
    )
    unsettled = or_(unanswered, answered_unknown)
    return or_(IngredientRow.state == IngredientState.OPEN, and_(unsettled, IngredientRow.asked != versions))
