"""What a month comes to: who gets what for which answers, and the ledger lines that say so.

Nothing here reads or writes: the same answers and the same terms give the same settlement, to the last unit.
`tasks.accounts` keeps it, `tasks.rewards` is the job.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from tasks.periods import Period
from tasks.split import split

#: Where the money of each month comes from. It goes ever further below zero.
POOL = "pool"
#: What months without a contributor left to the next one that has some.
CARRIED = "carried"

# A label without a name on it earns nothing: there is nobody to pay.
_NOBODY = frozenset({"", "anonymous"})


class Terms(NamedTuple):
    """What a month is worth: minor units of a currency."""

    pool: int
    currency: str


class Counted(NamedTuple):
    """An accepted answer, whose labels were first to need it, and the month in which it was given."""

    ingredient_id: int
    contributor: str
    answered_in: Period


class Share(NamedTuple):
    """What a contributor gets for a month."""

    contributor: str
    weight: int
    amount: int


class Adjustment(NamedTuple):
    """Answers that were written only after their month was settled; part of the contributor's weight."""

    original: Period
    contributor: str
    weight: int


class Line(NamedTuple):
    """A line of the ledger; the lines of one transaction sum to zero."""

    account: str
    amount: int


@dataclass(frozen=True)
class Settlement:
    """One month, settled.

    Attributes:
        pool: what the month itself is worth.
        carried: what it takes over from months that had nobody to pay.
        answers: those it counts. Each answer is counted in one month only.
    """

    period: Period
    pool: int
    carried: int
    currency: str
    answers: Sequence[Counted]

    @property
    def txn(self) -> str:
        """The transaction in the ledger."""
        return f"settle:{self.period}"

    @cached_property
    def weights(self) -> Mapping[str, int]:
        """How many answers count for each contributor."""
        return _weights(self.answers)

    @cached_property
    def shares(self) -> list[Share]:
        """What each contributor gets, in the order of their names."""
        amounts = split(self.pool + self.carried, self.weights, salt=str(self.period))
        return [Share(name, self.weights[name], amounts[name]) for name in sorted(amounts)]

    @cached_property
    def adjustments(self) -> list[Adjustment]:
        """What is counted late, by month and contributor."""
        late = Counter(
            (answer.answered_in, answer.contributor)
            for answer in self.answers
            if answer.answered_in != self.period and _is_somebody(answer.contributor)
        )
        return [Adjustment(*key, late[key]) for key in sorted(late)]

    @cached_property
    def lines(self) -> list[Line]:
        """The transaction; a month that is worth nothing has none."""
        if self.shares:
            to = {account_of(share.contributor): share.amount for share in self.shares}
        else:
            to = {CARRIED: self.pool + self.carried}
        total = Counter({POOL: -self.pool})
        total.update({CARRIED: -self.carried})
        total.update(to)
        return [Line(account, amount) for account, amount in sorted(total.items()) if amount]

    @cached_property
    def input_hash(self) -> str:
        """SHA-256 of everything that the settlement follows from: equal inputs, equal hash."""
        answers = sorted(
            (each.ingredient_id, each.contributor, str(each.answered_in)) for each in self.answers
        )
        inputs = [str(self.period), self.pool, self.carried, self.currency, answers]
        return sha256(json.dumps(inputs, separators=(",", ":")).encode()).hexdigest()


def account_of(contributor: str) -> str:
    """Return the ledger's account of a contributor; its balance is what was awarded."""
    return f"contributor:{contributor}"


def drafts(
    periods: Iterable[Period], answers: Sequence[Counted], balance: int, terms: Terms
) -> list[Settlement]:
    """Return what months in a row come to, oldest first, each with what the ones before it leave.

    Args:
        periods: the months.
        answers: those that are not counted yet. A month takes what was given in it and what is late.
        balance: what is carried over into the first month.
        terms: for each month.
    """
    found = []
    for period in periods:
        now = [answer for answer in answers if answer.answered_in <= period]
        answers = [answer for answer in answers if answer.answered_in > period]
        carried = balance if _weights(now) else 0
        settlement = Settlement(period, terms.pool, carried, terms.currency, now)
        balance += dict(settlement.lines).get(CARRIED, 0)
        found.append(settlement)
    return found


def _weights(answers: Iterable[Counted]) -> Mapping[str, int]:
    return Counter(answer.contributor for answer in answers if _is_somebody(answer.contributor))


def _is_somebody(contributor: str) -> bool:
    return contributor.casefold() not in _NOBODY
