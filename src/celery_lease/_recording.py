"""What Celery and Flower are told about a run: the states STARTED and SKIPPED, and our events.

Observers can never hurt a run. Everything here is bounded in time and swallows errors after saying so:
the result backend and the broker may be down, or frozen, while the job itself can go on.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from celery.app.task import get_actual_ignore_result  # type: ignore[attr-defined]
from celery.states import STARTED

from celery_lease._errors import Skipped, describe_holder
from celery_lease._states import SKIPPED
from celery_lease._threads import start
from celery_lease._tracing import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery.app.task import Context, Task

logger = logging.getLogger("celery_lease")

#: For the state and the event of one skip together, or for one STARTED.
RECORD_SECONDS = 3.0

#: The same where a store that does not answer has used up its own bound first: together under 5 s.
_RECORD_SECONDS_WITHOUT_STORE = 2.0


def record_started(task: Task[Any, Any], request: Context) -> None:
    """Write STARTED, as Celery does, but only once the lease is held."""
    meta = {"pid": os.getpid(), "hostname": request.hostname}
    backend: Any = task.backend
    _within(
        RECORD_SECONDS,
        "the state STARTED",
        task.name,
        lambda: backend.store_result(request.id, meta, STARTED, request=request),
    )


def record_skip(task: Task[Any, Any], request: Context, skipped: Skipped) -> None:
    """Log the skip, store the state SKIPPED, complete chain, chord and errbacks, and send the event.

    Args:
        task: the leased task.
        request: the message's request.
        skipped: what happened.
    """
    log_skip(skipped, request.id)
    backend: Any = task.backend
    app, eager = task.app, bool(request.is_eager)
    store = _stores_errors(task, request)

    def record() -> None:
        backend.mark_as_failure(
            request.id, skipped, request=request, store_result=store, call_errbacks=False, state=SKIPPED
        )
        if not eager:  # there it would show up in Flower as a row without a name
            said = str(skipped)
            _send_event(app, request, "task-skipped", exception=said, result=said, reason=skipped.reason)

    budget = _RECORD_SECONDS_WITHOUT_STORE if skipped.reason == "lock_unavailable" else RECORD_SECONDS
    if _within(budget, f"the state {SKIPPED}", task.name, record) and request.errbacks:
        # The user's own code: in the run's own thread, and as long as it takes.
        backend._call_task_errbacks(request, skipped, None)  # noqa: SLF001 - what mark_as_failure calls


def record_lost(task: Task[Any, Any], request: Context, name: str, fence: int) -> None:
    """Send the event `task-lease-lost`. Returns at once: its caller renews other leases."""
    app = task.app
    said = f"{name}: lease lost (fence {fence})"
    _Attempt(
        lambda: _send_event(app, request, "task-lease-lost", exception=said, lease=name, fence=str(fence))
    )


def log_skip(skipped: Skipped, task_id: str | None) -> None:
    """One line that names the holder: WARNING, or ERROR when the store could not answer."""
    describe(skipped.name, outcome=f"skipped_{skipped.reason}")
    who = f"{skipped.name}[{task_id}]" if task_id else skipped.name
    if skipped.reason == "locked":
        logger.warning("%s skipped: locked, held by %s", who, describe_holder(skipped.holder))
    elif skipped.reason == "already_done":
        logger.warning("%s skipped: already_done (%s)", who, skipped.detail)
    else:
        logger.error("%s skipped: lock_unavailable, so the body did not run (%s)", who, skipped.detail)


def _stores_errors(task: Task[Any, Any], request: Context) -> bool:
    """Celery's own rule for whether a failure is stored."""
    if get_actual_ignore_result(task, request):
        return bool(task.store_errors_even_if_ignored)
    return bool(task.store_eager_result) if request.is_eager else True


def _send_event(app: Any, request: Context, kind: str, **fields: Any) -> None:
    with app.events.default_dispatcher(hostname=request.hostname) as dispatcher:
        dispatcher.send(kind, uuid=request.id, retry=False, **fields)


def _within(seconds: float, what: str, name: str, action: Callable[[], Any]) -> bool:
    """Whether `action` was done within `seconds`. It goes on in its thread if it was not.

    A thread, because no setting of a result backend bounds a whole operation: redis-py and Celery both
    retry on their own, and the default socket timeout alone is 120 s.
    """
    attempt = _Attempt(action)
    attempt.join(seconds)
    if not attempt.is_alive() and attempt.failure is None:
        return True
    why = "in time" if attempt.failure is None else f"({type(attempt.failure).__name__})"
    logger.error("%s: %s could not be recorded %s; this line is the record", name, what, why)
    return False


class _Attempt(threading.Thread):
    """Does one thing at once, in the background, and keeps the error instead of raising it."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__(name="celery-lease-recording", daemon=True)
        self.failure: Exception | None = None
        self._action = action
        start(self)

    def run(self) -> None:
        try:
            self._action()
        except Exception as error:  # noqa: BLE001 - whatever a result backend or a broker raises
            self.failure = error
