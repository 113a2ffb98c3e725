"""`/healthz`: the watchdog's own check, asked from outside, so that dead workers cannot silence it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from celery_lease._alerts import report
from celery_lease._errors import LeaseError
from celery_lease.watchdog import watch
from celery_lease.web._desk import Desk, desk_of
from celery_lease.web._problems import Problem, responses, unavailable
from celery_lease.web._threads import Unanswered

if TYPE_CHECKING:
    from celery_lease._watchdog import Finding

logger = logging.getLogger("celery_lease")

#: Whoever asks again so soon gets the same answer; and while one look is under way, all wait for that one.
_FRESH_SECONDS = 2.0

#: Alerts are worth a look so often, and may take so long.
_REPORT_EVERY_SECONDS, _REPORT_SECONDS = 60.0, 60.0

router = APIRouter()


class Health:
    """What the watchdog finds, at most one look at a time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._look: asyncio.Task[list[Finding]] | None = None
        self._looked_at = self._reported_at = float("-inf")
        self._report: asyncio.Task[None] | None = None

    async def findings(self) -> list[Finding]:
        """All that is wrong.

        Raises:
            Problem: the lease store does not answer.
        """
        is_stale = time.monotonic() - self._looked_at > _FRESH_SECONDS
        if self._look is None or (self._look.done() and (is_stale or self._look.exception())):
            self._look = asyncio.create_task(self._watch())
        try:
            return await asyncio.shield(self._look)
        except (LeaseError, Unanswered) as error:
            raise unavailable("lock_unavailable", str(error)) from error

    async def _watch(self) -> list[Finding]:
        found: list[Finding] = await self._desk.check_health(lambda _: watch(self._desk.app))
        self._looked_at = time.monotonic()
        if self._looked_at - self._reported_at > _REPORT_EVERY_SECONDS:
            self._reported_at = self._looked_at
            self._report = asyncio.create_task(self._alert(found))
        return found

    async def _alert(self, found: list[Finding]) -> None:
        try:
            await self._desk.alert(lambda: report(self._desk.app, found), _REPORT_SECONDS)
        except (LeaseError, Unanswered) as error:
            logger.warning("alerts could not be reported (%s)", error)


@router.get(
    "/healthz",
    operation_id="health",
    summary="Whether every scheduled job is done when it is due",
    responses={200: {"description": "no job is overdue"}, **responses("overdue", "lock_unavailable")},
)
async def healthz(request: Request) -> JSONResponse:
    """For a monitor that anybody may run: it names overdue jobs and nothing else."""
    desk_of(request)
    health: Health = request.app.state.health
    overdue = [found.job for found in await health.findings() if found.rule == "overdue"]
    if overdue:
        raise Problem("overdue", f"no real run for two intervals: {', '.join(overdue)}", overdue=overdue)
    answer: dict[str, Any] = {"status": "ok", "overdue": []}
    return JSONResponse(answer)
