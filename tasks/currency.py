"""Amounts of a currency, for people. What is stored and reckoned with are whole minor units."""

from iso4217 import Currency


class NoCurrency(ValueError):  # noqa: N818  # says what is wrong, as its message does
    """The code is none that amounts can be kept in."""


def exponent(code: str) -> int:
    """Return how many digits of a minor unit there are after the point: 2 for EUR, 0 for JPY, 3 for KWD.

    Raises:
        NoCurrency: ISO 4217 has no such code, or, as for gold (XAU), no minor unit of it.
    """
    try:
        digits = Currency(code).exponent
    except ValueError:
        raise NoCurrency(f"ISO 4217 has no currency {code}") from None
    if digits is None:
        raise NoCurrency(f"ISO 4217 has no minor unit of {code}")
    return int(digits)


def shown(amount: int, code: str) -> str:
    """Return `1234567` minor units of EUR as `12,345.67 EUR`.

    A code that ISO 4217 has dropped since is shown in minor units, and says so.
    """
    try:
        digits = exponent(code)
    except NoCurrency:
        return f"{amount:,} minor units of {code}"
    sign, units = "-" if amount < 0 else "", abs(amount)
    whole, rest = divmod(units, 10**digits)
    return f"{sign}{whole:,}{f'.{rest:0{digits}}' if digits else ''} {code}"
