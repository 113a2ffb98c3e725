"""The statement of one month: what was settled, or what it would come to by what is known now."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tasks import accounts
from tasks.periods import Period
from tasks.settlement import Adjustment, Counted, Line, Settlement, Share, Terms
from tasks.store import Store
from tasks.tables import CountedAnswerRow, LedgerEntryRow, PayoutRow, SettlementRow


class Status(StrEnum):
    """Where a month is, in the order in which it gets there."""

    EMPTY = "nothing in it"  # nobody answered anything yet, or the first answer is of a later month
    AHEAD = "not begun"
    OPEN = "open"
    GRACE = "in grace"  # over, and waiting for what is written late
    DUE = "due"  # the next run settles it
    SETTLED = "settled"


@dataclass(frozen=True)
class Statement:
    """One month.

    Attributes:
        closes_at: from when on it may be settled.
        pool: what the month is worth.
        carried: what it takes over.
        shares: of the contributors; a forecast unless it is settled. So are the next two.
        adjustments: answers of earlier months that it counts.
        counted_later: answers of this month that a later one counts, which is their `original` here.
        lines: of the ledger.
        settled_at: when, by which fence, and from what; empty unless it is settled.
        sound: whether the rows that are kept are what their inputs come to.
    """

    period: Period
    status: Status
    closes_at: datetime
    currency: str
    pool: int = 0
    carried: int = 0
    shares: Sequence[Share] = ()
    adjustments: Sequence[Adjustment] = ()
    counted_later: Sequence[Adjustment] = ()
    lines: Sequence[Line] = ()
    settled_at: str = ""
    fence: int = 0
    input_hash: str = ""
    sound: bool = True


def statement(store: Store, period: Period, terms: Terms, at: datetime) -> Statement:
    """Return the statement of a month as it stands at a moment.

    Args:
        store: where from.
        period: the month.
        terms: for months that are not settled; settled ones have their own.
        at: the moment.
    """
    with store.reading() as session:
        row = session.get(SettlementRow, str(period))
        if row is not None:
            return _settled(session, row)
        return _forecast(session, period, terms, at)


def _forecast(session: Session, period: Period, terms: Terms, at: datetime) -> Statement:
    first = accounts.first_unsettled(session)
    status = _status(period, first, at)
    if first is None or status in {Status.EMPTY, Status.AHEAD}:
        return Statement(period, status, period.closes, terms.currency)
    months = [first]
    while months[-1] < period:
        months.append(months[-1].next)
    draft = accounts.drafted(session, months, terms)[-1]
    return Statement(
        period,
        status,
        period.closes,
        draft.currency,
        draft.pool,
        draft.carried,
        draft.shares,
        draft.adjustments,
        lines=draft.lines,
    )


def _status(period: Period, first: Period | None, at: datetime) -> Status:
    if period.begins > at:
        return Status.AHEAD
    if first is None or period < first:
        return Status.EMPTY
    if period.ends > at:
        return Status.OPEN
    return Status.GRACE if period.closes > at else Status.DUE


def _settled(session: Session, row: SettlementRow) -> Statement:
    period = Period.parse(row.period)
    again = Settlement(period, row.pool, row.carried, row.currency, _answers(session, row.period))
    shares, lines = _shares(session, row.period), _lines(session, again.txn)
    same = (again.input_hash, again.shares, again.lines) == (row.input_hash, shares, lines)
    return Statement(
        period,
        Status.SETTLED,
        period.closes,
        row.currency,
        row.pool,
        row.carried,
        shares,
        again.adjustments,
        _counted_later(session, period),
        lines,
        row.settled_at,
        row.fence,
        row.input_hash,
        same,
    )


def _answers(session: Session, period: str) -> list[Counted]:
    query = select(CountedAnswerRow).where(CountedAnswerRow.period == period)
    return [
        Counted(row.ingredient_id, row.contributor, Period.parse(row.answered_in))
        for row in session.scalars(query)
    ]


# Sorted here and not by the database, which may have an order of its own for letters.


def _shares(session: Session, period: str) -> list[Share]:
    rows = session.scalars(select(PayoutRow).where(PayoutRow.period == period))
    return sorted(Share(row.contributor, row.weight, row.amount) for row in rows)


def _lines(session: Session, txn: str) -> list[Line]:
    rows = session.scalars(select(LedgerEntryRow).where(LedgerEntryRow.txn == txn))
    return sorted(Line(row.account, row.amount) for row in rows)


def _counted_later(session: Session, period: Period) -> list[Adjustment]:
    counted = CountedAnswerRow
    query = (
        select(counted.period, counted.contributor, func.count())
        .where(counted.answered_in == str(period), counted.period != str(period))
        .group_by(counted.period, counted.contributor)
    )
    return sorted(Adjustment(Period.parse(later), name, n) for later, name, n in session.execute(query))
