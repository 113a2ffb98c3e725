"""The accounts: settled months in the database, and what the next ones are made of.

What is settled is never changed: the database itself refuses it. Each answer, each month, each payout and
each ledger line of a transaction has a unique key, so that whatever is tried twice is there once.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from tasks.clock import now
from tasks.database import insert_once
from tasks.periods import Period, closed
from tasks.settlement import CARRIED, Counted, Settlement, Terms, drafts
from tasks.tables import (
    AnswerRow,
    CountedAnswerRow,
    IngredientRow,
    LedgerEntryRow,
    PayoutOutboxRow,
    PayoutRow,
    SettlementRow,
)


class Unbalanced(Exception):  # noqa: N818  # named like the outcomes it sits beside
    """What was written does not add up; the transaction is rolled back."""


def first_unsettled(session: Session) -> Period | None:
    """Return the month after the last settled one; before there is one, the month of the first answer."""
    last = session.scalar(select(func.max(SettlementRow.period)))
    if last is not None:
        return Period.parse(last).next
    first = session.scalar(select(func.min(AnswerRow.answered_at)))
    return Period.of(first) if first is not None else None


def due(session: Session, at: datetime) -> list[Period]:
    """Return the months that are closed at a moment and not settled, oldest first."""
    first = first_unsettled(session)
    return closed(first, at) if first else []


def drafted(session: Session, periods: Sequence[Period], terms: Terms) -> list[Settlement]:
    """Return what unsettled months in a row come to, by what is known now."""
    if not periods:
        return []
    answers = _uncounted(session, periods[-1])
    return drafts(periods, answers, _balance(session, terms.currency), terms)


def keep(session: Session, settlement: Settlement, fence: int) -> bool:
    """Write a settlement down; False, and nothing is written, if its month has been settled meanwhile.

    Raises:
        Unbalanced: see there.
    """
    if not _begun(session, settlement, fence):
        return False
    _write(session, settlement)
    _check(session, settlement)
    return True


def _begun(session: Session, settlement: Settlement, fence: int) -> bool:
    """Claim the month. Of two that try at once the second waits here for the first, and then has lost."""
    row = {
        "period": str(settlement.period),
        "pool": settlement.pool,
        "carried": settlement.carried,
        "currency": settlement.currency,
        "input_hash": settlement.input_hash,
        "fence": fence,
        "settled_at": now(),
    }
    return insert_once(session, SettlementRow, row)


def _write(session: Session, settlement: Settlement) -> None:
    period, currency, created_at = str(settlement.period), settlement.currency, now()
    _insert(
        session,
        CountedAnswerRow,
        [
            {
                "ingredient_id": answer.ingredient_id,
                "period": period,
                "answered_in": str(answer.answered_in),
                "contributor": answer.contributor,
            }
            for answer in settlement.answers
        ],
    )
    _insert(session, PayoutRow, [{"period": period, **share._asdict()} for share in settlement.shares])
    _insert(
        session,
        LedgerEntryRow,
        [{"txn": settlement.txn, "currency": currency, **line._asdict()} for line in settlement.lines],
    )
    _insert(
        session,
        PayoutOutboxRow,
        [
            {
                "key": f"{period}:{share.contributor}",
                "period": period,
                "contributor": share.contributor,
                "amount": share.amount,
                "currency": currency,
                "created_at": created_at,
            }
            for share in settlement.shares
            if share.amount
        ],
    )


def _insert(session: Session, table: Any, rows: list[dict[str, Any]]) -> None:
    if rows:
        session.execute(insert(table), rows)


def _check(session: Session, settlement: Settlement) -> None:
    """Ask the database, and not the program, whether it adds up."""
    paid = session.scalar(
        select(func.coalesce(func.sum(PayoutRow.amount), 0)).where(PayoutRow.period == str(settlement.period))
    )
    total = session.scalar(
        select(func.coalesce(func.sum(LedgerEntryRow.amount), 0)).where(LedgerEntryRow.txn == settlement.txn)
    )
    expected = settlement.pool + settlement.carried if settlement.shares else 0
    if paid != expected or total != 0:
        raise Unbalanced(
            f"{settlement.period}: payouts of {paid} from {expected}, ledger lines that sum to {total}"
        )


def _uncounted(session: Session, until: Period) -> list[Counted]:
    """The answers that no month has counted, up to the end of one, in a fixed order."""
    query = (
        select(AnswerRow.ingredient_id, IngredientRow.contributor, AnswerRow.answered_at)
        .join(IngredientRow, IngredientRow.id == AnswerRow.ingredient_id)
        .outerjoin(CountedAnswerRow, CountedAnswerRow.ingredient_id == AnswerRow.ingredient_id)
        .where(CountedAnswerRow.ingredient_id.is_(None), AnswerRow.answered_at < until.ends.isoformat())
        .order_by(AnswerRow.ingredient_id)
    )
    return [Counted(number, name, Period.of(at)) for number, name, at in session.execute(query)]


def _balance(session: Session, currency: str) -> int:
    """What is carried over in a currency. What is in another one stays until months are worth that again."""
    query = select(func.coalesce(func.sum(LedgerEntryRow.amount), 0)).where(
        LedgerEntryRow.account == CARRIED, LedgerEntryRow.currency == currency
    )
    return int(session.scalar(query) or 0)
