"""Months, as the rewards count them: in UTC, from the first moment of one up to the first of the next.

No time zone and no summer time takes part: a moment is in the month that its UTC text begins with.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

#: How long after its end a month waits for what was answered in it and is written late.
GRACE = timedelta(hours=24)

_PERIOD = re.compile(r"(?P<year>20[0-9]{2})-(?P<month>0[1-9]|1[0-2])", re.ASCII)
_MONTHS = 12


class BadPeriod(ValueError):  # noqa: N818  # says what is wrong, as its message does
    """The text names no month. The message says what does."""


class Period(NamedTuple):
    """One month. Months sort by time."""

    year: int
    month: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `2026-10`.

        Raises:
            BadPeriod: the text is anything else.
        """
        match = _PERIOD.fullmatch(text)
        if not match:
            raise BadPeriod(f"{text!r} is no month from 2000-01 to 2099-12; write year and month: 2026-10")
        return cls(int(match["year"]), int(match["month"]))

    @classmethod
    def of(cls, moment: str) -> Self:
        """Return the month of a moment, as `tasks.clock` writes moments."""
        return cls.parse(moment[:7])

    @property
    def next(self) -> Self:
        """The month after it."""
        months = self.year * _MONTHS + self.month  # the month counts from 1, so this is the next from 0
        return type(self)(months // _MONTHS, months % _MONTHS + 1)

    @property
    def previous(self) -> Self:
        """The month before it."""
        months = self.year * _MONTHS + self.month - 2
        return type(self)(months // _MONTHS, months % _MONTHS + 1)

    @property
    def begins(self) -> datetime:
        """Its first moment."""
        return datetime(self.year, self.month, 1, tzinfo=UTC)

    @property
    def ends(self) -> datetime:
        """The first moment that is not in it any more."""
        return self.next.begins

    @property
    def closes(self) -> datetime:
        """The first moment at which it may be settled."""
        return self.ends + GRACE

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}"


def closed(first: Period, at: datetime) -> list[Period]:
    """Return the months from `first` on that are closed at a moment, oldest first."""
    found = []
    while first.closes <= at:
        found.append(first)
        first = first.next
    return found


def latest_closed(at: datetime) -> Period:
    """Return the newest month that is closed at a moment."""
    return Period.of((at.astimezone(UTC) - GRACE).isoformat()).previous
