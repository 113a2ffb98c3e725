"""Months with answers in them, for tests of the rewards."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count

from tasks.rehearsal import Result
from tasks.rewards import settle_due
from tasks.settlement import Terms
from tasks.store import Store
from tasks.tables import AnswerRow, IngredientRow, IngredientState, LabelRow
from tests.app.conftest import Rows
from tests.app.passes import FakeLease

TERMS = Terms(100_000, "EUR")
_numbers = count(1)


def at(text: str) -> datetime:
    """A moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def answered(store: Store, moment: str, weights: Mapping[str, int]) -> None:
    """Let so many ingredients that each contributor was first to need be answered at a moment."""
    answered_at = at(moment).isoformat(timespec="seconds")
    with store.writing(None) as session:
        for contributor, weight in weights.items():
            ref = str(next(_numbers))
            label = LabelRow(
                ref=ref,
                language="en",
                product="",
                contributor=contributor,
                ingredients="x",
                loaded_at=answered_at,
            )
            session.add(label)
            session.flush()
            ingredients = [
                IngredientRow(
                    name=f"{ref} {number}",
                    part="{}",
                    label_id=label.id,
                    contributor=contributor,
                    state=IngredientState.ANSWERED,
                    attempts=1,
                    added_at=answered_at,
                )
                for number in range(weight)
            ]
            session.add_all(ingredients)
            session.flush()
            session.add_all(
                AnswerRow(
                    ingredient_id=ingredient.id,
                    state="avoid",
                    fodmap="fructan",
                    gluten="none",
                    lactose="none",
                    reason="",
                    proposal="",
                    decision="",
                    fence=1,
                    answered_at=answered_at,
                    decided_at=answered_at,
                )
                for ingredient in ingredients
            )


def settle(store: Store, moment: str, terms: Terms = TERMS, fence: int = 1) -> Result:
    """Run the job as of a moment."""
    return settle_due(store, FakeLease(fence, "rewards"), at(moment), terms)


def payouts(rows: Rows) -> list[tuple[str, str, int, int]]:
    """Month, contributor, weight, amount."""
    found = rows("SELECT period, contributor, weight, amount FROM payout")
    return sorted((period, name, weight, amount) for period, name, weight, amount in found)


def ledger(rows: Rows, txn: str) -> dict[str, int]:
    """The lines of a transaction."""
    found = rows("SELECT txn, account, amount FROM ledger_entry")
    return {account: amount for each, account, amount in found if each == txn}


def assert_adds_up(rows: Rows) -> list[str]:
    """Check everything that is settled against itself; return the months."""
    settled = sorted(rows("SELECT period, pool, carried FROM settlement"))
    paid = payouts(rows)
    outbox: dict[str, int] = dict(rows("SELECT key, amount FROM payout_outbox"))
    for period, pool, carried in settled:
        lines, mine = ledger(rows, f"settle:{period}"), [each for each in paid if each[0] == period]
        assert sum(lines.values()) == 0
        assert -lines.get("pool", 0) == pool
        if mine:
            assert sum(amount for *_, amount in mine) == pool + carried
            assert lines.get("carried", 0) == -carried
        else:
            assert (carried, lines.get("carried", 0)) == (0, pool)
    assert outbox == {f"{period}:{name}": amount for period, name, _, amount in paid if amount}
    assert {(period, name) for period, name, *_ in paid} <= {
        (period, name) for period, name in rows("SELECT period, contributor FROM counted_answer")
    }
    periods = [period for period, *_ in settled]
    assert len(rows("SELECT DISTINCT txn FROM ledger_entry")) <= len(periods)
    counted = rows("SELECT period, contributor, count(*) FROM counted_answer GROUP BY period, contributor")
    weights = {(period, name): weight for period, name, weight, _ in paid}
    assert {(period, name): n for period, name, n in counted if name not in {"", "anonymous"}} == weights
    return periods
