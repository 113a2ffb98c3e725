"""Splitting an amount in proportion to weights, to the last minor unit."""

from collections.abc import Mapping
from hashlib import sha256


def split(amount: int, weights: Mapping[str, int], salt: str) -> dict[str, int]:
    """Split `amount` by largest remainder: the shares sum to it, each within one unit of its true value.

    Everybody gets the whole units of the true share; the units left over go to the largest fractions. Equal
    fractions are put in order by a hash over `salt` and the name, so that the same few names do not get the
    odd unit of every month. The result depends on nothing else, such as the order of `weights`.

    Args:
        amount: minor units, from 0.
        weights: whole numbers from 0. A weight of 0 has no share, and is not in the result.
        salt: what this split is of, such as the month.

    Raises:
        ValueError: the amount or a weight is negative.
    """
    if amount < 0 or any(weight < 0 for weight in weights.values()):
        raise ValueError(f"an amount of {amount} by weights from {min(weights.values(), default=0)}: below 0")
    counted = {name: weight for name, weight in weights.items() if weight}
    total = sum(counted.values())
    shares = {name: amount * weight // total for name, weight in counted.items()}

    def largest_fraction_first(name: str) -> tuple[int, str, str]:
        tie = sha256(f"{salt}:{name}".encode()).hexdigest()
        return -(amount * counted[name] % total), tie, name

    left = amount - sum(shares.values()) if shares else 0
    for name in sorted(counted, key=largest_fraction_first)[:left]:
        shares[name] += 1
    return shares
