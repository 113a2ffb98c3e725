"""What asking costs, and how much may be spent; whole micro-units of one currency, never a fraction."""

from typing import NamedTuple

# Prices are given for so many tokens, as providers print them.
_TOKENS_PRICED = 1_000_000


class Prices(NamedTuple):
    """What a million tokens cost, in micro-units; 0 for a server that costs nothing."""

    tokens_in: int
    tokens_out: int

    def cost(self, tokens_in: int, tokens_out: int) -> int:
        """Return what one call costs, rounded up."""
        return -(-(tokens_in * self.tokens_in + tokens_out * self.tokens_out) // _TOKENS_PRICED)


class Budgets(NamedTuple):
    """How much may be spent, in micro-units. No call is begun that could go beyond one of them."""

    of_pass: int
    of_day: int
    of_month: int
