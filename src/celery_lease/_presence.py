"""What a worker's main process tells the store: the tasks it knows, and the messages that expired unused.

Observation only, and therefore fit for signals, whose errors Celery swallows. Every call is made in a thread:
the main process is the one that must go on reading its broker.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from celery.signals import task_revoked, worker_ready

from celery_lease._errors import LeaseError
from celery_lease._store import store_of
from celery_lease._task import LeasedTask, slot_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

logger = logging.getLogger("celery_lease")

#: A worker says it again this often; a name that nobody says for the longer time is forgotten.
_ANNOUNCE_EVERY_SECONDS = 3600
_KEEP_SECONDS = 3 * _ANNOUNCE_EVERY_SECONDS


@worker_ready.connect
def _announce(sender: Any, **_: Any) -> None:
    """Say which tasks this worker has, now and every hour."""
    app: Celery = sender.app
    if not any(isinstance(task, LeasedTask) for task in app.tasks.values()):
        return

    def announce() -> None:
        names = sorted(name for name in app.tasks if not name.startswith("celery."))
        _in_background(lambda: store_of(app).announce(names, _KEEP_SECONDS), "the tasks of this worker")

    announce()
    sender.timer.call_repeatedly(_ANNOUNCE_EVERY_SECONDS, announce)


@task_revoked.connect
def _note_expired(sender: Any, request: Any, expired: bool, **_: Any) -> None:
    """Write down a message that was too old when its turn came."""
    if not expired or not isinstance(sender, LeasedTask):
        return
    args, kwargs = tuple(request.args or ()), dict(request.kwargs or {})
    facts = {
        "task": sender.name,
        "task_id": request.id or "",
        "worker": request.hostname or "",
        "slot": slot_of(request),
    }

    def note() -> None:
        name = sender.lease_name(args, kwargs)
        store_of(sender.app).note(name, "expired", facts, per_argument=sender.is_per_argument)

    _in_background(note, f"an expired message of {sender.name}")


def _in_background(action: Callable[[], None], what: str) -> None:
    def attempt() -> None:
        try:
            action()
        except (LeaseError, TypeError) as error:
            logger.warning("the store could not be told %s (%s)", what, error)

    threading.Thread(target=attempt, name="celery-lease-presence", daemon=True).start()
