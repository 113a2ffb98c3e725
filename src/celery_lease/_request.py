"""What a worker makes of a message for a leased task, before a process of its pool gets it."""

from __future__ import annotations

from typing import Literal

from celery.worker.request import Request

from celery_lease._task import copy_of


class LeasedRequest(Request):
    """A request of Celery's, of which a copy does not expire here.

    A copy that the broker sent again has the id of a run that may be under way. Celery would write REVOKED
    over that run, and would refuse its retry, which has the same id. So a copy is looked at by the run it
    becomes (`LeasedTask.before_start`), once the store has told that nobody else carries the message out.
    """

    def maybe_expire(self) -> Literal[True] | None:
        """Whether the message came too late, and is revoked therefore."""
        is_copy = copy_of(self._context)  # type: ignore[attr-defined]
        return None if is_copy else super().maybe_expire()
