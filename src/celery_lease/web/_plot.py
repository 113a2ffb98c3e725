"""The durations of a job's runs as points of an inline SVG: no script, no library, no style attribute."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from celery_lease.web._strip import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery_lease._ledger import RunRecord

WIDTH, HEIGHT = 960, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 12, 24


class Point(NamedTuple):
    """One run."""

    x: float
    y: float
    colour: str
    letter: str
    title: str


class Line(NamedTuple):
    """A line across, with its label."""

    y: float
    label: str


class Plot(NamedTuple):
    """What to draw."""

    points: Sequence[Point]
    lines: Sequence[Line]
    first: str
    last: str
    summary: str


def draw(records: Sequence[RunRecord]) -> Plot | None:
    """The runs of these records (newest first, each with a duration); None for fewer than two."""
    if len(records) < 2:  # noqa: PLR2004 - one point is no plot
        return None
    oldest_first = list(reversed(records))
    seconds = [record.seconds or 0.0 for record in oldest_first]
    top = _nice(max(seconds))
    step = (WIDTH - _LEFT - _RIGHT - 12) / (len(seconds) - 1)
    points = []
    for index, (record, took) in enumerate(zip(oldest_first, seconds, strict=True)):
        kind = kind_of(record.outcome)
        title = f"{record.ended:%d %b %H:%M} {record.outcome}, {in_words(took)}"
        x = round(_LEFT + 6 + index * step, 1)
        points.append(Point(x, _y(took, top), kind.colour, kind.letter, title))
    lines = [Line(_y(part * top, top), in_words(part * top)) for part in (0, 0.5, 1)]
    first, last = oldest_first[0].ended, oldest_first[-1].ended
    ordered = sorted(seconds)
    median, longest = ordered[len(ordered) // 2], ordered[-1]
    summary = f"{len(seconds)} runs: median {in_words(median)}, longest {in_words(longest)}"
    return Plot(points, lines, f"{first:%d %b %H:%M}", f"{last:%d %b %H:%M}", summary)


def in_words(seconds: float) -> str:
    """A duration, as short as it can be read."""
    if seconds < 0.0005:  # noqa: PLR2004 - rounds to 0 ms
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:  # noqa: PLR2004 - from here on minutes are shorter
        return f"{seconds:.3g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def _y(seconds: float, top: float) -> float:
    return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - seconds / top), 1)


def _nice(most: float) -> float:
    """The next round number of its unit."""
    if most <= 0:
        return 1.0
    unit = next((size for size in (3600, 60, 1) if most > 2 * size), 1)
    scaled = most / unit
    power = 10 ** math.floor(math.log10(scaled))
    return float(unit * power * next(step for step in (1, 2, 4, 5, 10) if step * power >= scaled))
