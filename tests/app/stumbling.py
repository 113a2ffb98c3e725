"""The application for `celery -A tests.app.stumbling worker`: its rewards stumble where a test says so.

In the folder STUMBLES a file `pause` makes a run stop once between two months, which the file `paused` tells,
until there is a file `go`; a file `fail` makes the database fail once inside a month.
"""

import os
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tasks import app
from tasks.rewards import reward
from tests.nodes.waiting import wait_until

_FOLDER = Path(os.environ["STUMBLES"])
_seen: list[str] = []

app.conf.lease_seconds = 3
reward.default_retry_delay = 0


def _take(name: str) -> bool:
    """Whether there is such a file; only once."""
    try:
        (_FOLDER / name).unlink()
    except FileNotFoundError:
        return False
    return True


@event.listens_for(Engine, "before_cursor_execute")
def _see(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
    if statement.startswith("INSERT INTO payout_outbox"):
        _seen.append(statement)
        if _take("fail"):
            raise OperationalError(statement, {}, Exception("the database went away"))


@event.listens_for(Session, "after_commit")
def _pause(_session: Session) -> None:
    if _seen and _take("pause"):
        (_FOLDER / "paused").touch()
        wait_until((_FOLDER / "go").exists, 60)
