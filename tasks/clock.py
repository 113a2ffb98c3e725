"""The time, as the store writes it: ISO 8601 in UTC, as text. The texts sort like the moments they name."""

from datetime import UTC, datetime

_NEVER_SET_BEFORE = "2020"


class ClockError(Exception):
    """The clock of this machine was never set, and what is dated by it would be lost or counted wrong."""


def now() -> str:
    """Return this moment: `2026-09-14T12:15:03+00:00`.

    Raises:
        ClockError: the clock stands long ago, as it does on machines where nobody set it.
    """
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    if moment < _NEVER_SET_BEFORE:
        raise ClockError(f"the clock of this machine says {moment}; set it, such as by NTP, and run again")
    return moment


def day(moment: str) -> str:
    """Return the day of a moment, which sorts before every moment in it: `2026-09-14`."""
    return moment[:10]


def month(moment: str) -> str:
    """Return the month of a moment, which sorts before every moment in it: `2026-09`."""
    return moment[:7]
