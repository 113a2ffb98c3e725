"""The time, as the store writes it: ISO 8601 in UTC, as text. The texts sort like the moments they name."""

from datetime import UTC, datetime


def now() -> str:
    """Return this moment: `2026-09-14T12:15:03+00:00`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def day(moment: str) -> str:
    """Return the day of a moment, which sorts before every moment in it: `2026-09-14`."""
    return moment[:10]


def month(moment: str) -> str:
    """Return the month of a moment, which sorts before every moment in it: `2026-09`."""
    return moment[:7]
