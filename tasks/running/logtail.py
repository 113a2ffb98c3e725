"""What a service has written to its log file, and which of it deserves the screen."""

import re
from pathlib import Path

# Stamps as in `[2026-09-14 03:15:00,123: WARNING/MainProcess]` (Celery) and `[W 260914 03:15:00 web:2348]`
# (Tornado). The server's lines have neither: its warnings are about tuning and farewells.
_STAMP = re.compile(r"\[(?:\d{4}-\S+ \S+: (?P<celery>[A-Z]+)/|(?P<tornado>[DIWEC]) \d{6} )")
_WARNINGS = {"WARNING", "ERROR", "CRITICAL", "W", "E", "C"}


class LogTail:
    """Follows one file from its start. A line without a stamp (a traceback's) belongs to the one above it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._warned = False

    def lines(self, *, only_warnings: bool) -> list[str]:
        """The complete lines written since the last call."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            fresh = log.read()
        complete = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(complete)
        lines = complete.decode(errors="replace").splitlines()
        return [line for line in lines if self._deserves(line) or not only_warnings]

    def _deserves(self, line: str) -> bool:
        if stamp := _STAMP.match(line):
            self._warned = (stamp["celery"] or stamp["tornado"]) in _WARNINGS
        return self._warned


def last_lines(path: Path, count: int) -> list[str]:
    """The end of a log file; empty if there is none."""
    if not path.exists():
        return []
    return path.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
