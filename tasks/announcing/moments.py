"""`<lastmod>`: the W3C profile of ISO 8601, and what sites write instead."""

import re
from datetime import UTC, datetime

_YEAR_OR_MONTH = re.compile(r"(\d{4})(?:-(\d{2}))?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?![\d])")


def moment(text: str) -> str | None:
    """Return the moment in UTC, `2026-09-14T12:15:03+00:00`; None for a text that names none.

    A date alone is its first second in UTC, and a time without a zone is UTC too: the clock of this machine
    must not decide what a site means.
    """
    text = text.strip()
    coarse = _YEAR_OR_MONTH.fullmatch(text)
    if coarse:
        text = f"{coarse[1]}-{coarse[2] or '01'}-01"
    if not _DATE.match(text):
        return None
    try:
        parsed = datetime.fromisoformat(text)
        aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return None
