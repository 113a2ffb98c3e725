"""`Retry-After`: when a server wants to be asked again."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait: as a number of milliseconds or seconds, or as a date.

    None where it does not say.
    """
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        seconds = _number(headers.get(name, "")) / per_second
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    return max((at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
