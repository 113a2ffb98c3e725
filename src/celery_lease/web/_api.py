"""Triggers, and what became of them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from celery import uuid
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from celery_lease._expectations import read_expectations
from celery_lease._jobs import triggerable
from celery_lease.web._desk import Desk, desk_of
from celery_lease.web._guard import bearer_or_basic, only_bearer, refuse_too_many
from celery_lease.web._problems import RETRY_AFTER, Problem, responses
from celery_lease.web._runs import STATUS, Seen, shown_holder
from celery_lease.web._sending import Sending

if TYPE_CHECKING:
    from celery import Celery

    from celery_lease._store import Store
    from celery_lease._task import LeasedTask

#: A triggered run that has not started by then does not start any more, and what is known of it is forgotten.
_KEEP_SECONDS = 24 * 3600.0

_LONGEST_WAIT = 60

#: Between two looks at a run that is waited for.
_FIRST_LOOK, _LAST_LOOK = 0.1, 1.0

#: How long a wait goes on for the result of a run that has ended.
_LAG_SECONDS = 2.0

_OF_THE_DOOR = ("invalid_request", "unauthorized", "secret_unset", "rate_limited")

logger = logging.getLogger("celery_lease")

router = APIRouter()


class Run(BaseModel):
    """What a trigger led to."""

    job: str | None = Field(description="the task's name; null where nobody remembers it")
    id: str
    outcome: str | None = Field(
        description="a word such as `ran` or `skipped_locked`; null while there is none"
    )
    reason: str | None = Field(description="of a skip its reason, of a failure the exception's type")
    holder: dict[str, Any] | None = Field(description="who runs it, or held the lease when it was skipped")
    result: Any = Field(description="what the job returned")
    period: str | None = Field(default=None, description="the period it is about, where the job has one")


class KnownRun(Run):
    """A run at any time."""

    state: Literal["queued", "running", "waiting", "ended"]
    terminal: bool = Field(description="whether all of this stays as it is")


_ANSWERS = {
    200: {"model": Run, "description": "`?wait`: the run ended as `ran`"},
    202: {
        "model": Run,
        "description": "queued, or `?wait` was too short; `Location` tells what becomes of it",
        "headers": {"Location": {"schema": {"type": "string"}}},
    },
    **responses(
        *_OF_THE_DOOR, "unknown_job", "locked", "already_done", "expired", "failed", "lost", "abandoned"
    ),
}
_ANSWERS[503] = responses(
    "secret_unset", "lock_unavailable", "broker_unavailable", "result_backend_unavailable"
)[503]

_TRIGGER: dict[str, Any] = {
    "dependencies": [Depends(only_bearer)],
    "responses": _ANSWERS,
    "status_code": 202,
}


class How(BaseModel):
    """The query of a trigger. A misspelt `wait` is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")

    wait: float = Field(
        default=0, ge=0, le=_LONGEST_WAIT, allow_inf_nan=False, description="seconds to wait for the outcome"
    )


@router.get(
    "/api/cron/{job}", operation_id="trigger_by_get", summary="The same for callers that only GET", **_TRIGGER
)
@router.post("/api/cron/{job}", operation_id="trigger", summary="Run a job now", **_TRIGGER)
async def trigger(request: Request, job: str, how: Annotated[How, Query()]) -> JSONResponse:
    """Queue the job unless a live run holds its lease; `?wait` answers with the outcome instead."""
    desk = desk_of(request)
    await refuse_too_many(request, desk, "trigger")
    try:
        task, lease = triggerable(desk.app, job)
    except LookupError as error:
        raise Problem("unknown_job", str(error)) from error
    period = _period(task)
    run_id = await _queue(desk, task, lease, period)
    seen = await _wait(desk, run_id, how.wait) if how.wait else None
    return _answer(seen or Seen(job, run_id, "queued"), period)


@router.get(
    "/api/runs/{run_id}",
    operation_id="run",
    summary="What became of a run",
    dependencies=[Depends(bearer_or_basic)],
    responses={
        200: {"model": KnownRun},
        **responses("unauthorized", "rate_limited", "unknown_run", "invalid_request"),
        503: responses("secret_unset", "lock_unavailable", "result_backend_unavailable")[503],
    },
)
async def run(request: Request, run_id: str) -> JSONResponse:
    """An id that is not known, or not any more, is 404 and never `queued`."""
    desk = desk_of(request)
    seen = await desk.look(run_id)
    if seen is None:
        raise Problem("unknown_run", "no run of this id is known; results are kept for a day", id=run_id)
    task = desk.app.tasks.get(seen.job or "")
    about = {"state": seen.state, "terminal": seen.terminal, **_with_period(_period(task))}
    return JSONResponse(_plain({**seen.as_members(), **about}))


async def _queue(desk: Desk, task: LeasedTask, lease: str, period: str | None) -> str:
    """Send the message, if there is any use in it; the run's id."""
    run_id, keep = uuid(), _expires(desk.app, lease)
    # No id: nothing is queued yet.
    about = {**Seen(task.name, "", "queued").as_members(), "id": None, **_with_period(period)}
    note = {
        "job": task.name,
        "lease": lease,
        "sent": time.time(),
        "expires": time.time() + keep,
        "stores_result": not task.ignore_result,
    }
    held, stored = await asyncio.gather(
        desk.store(lambda store: _prepare(store, lease, run_id, note), **about),
        _nothing() if task.ignore_result else desk.meta(run_id, **about),
        return_exceptions=True,
    )
    if isinstance(held, BaseException):
        raise held
    if held is not None:
        about |= {"outcome": "skipped_locked", "reason": "locked", "holder": held}
        raise Problem("locked", _held_by(held), **about)
    if isinstance(stored, BaseException):
        raise stored
    await _send(desk, Sending(desk.app, task, run_id, keep), about)
    return run_id


async def _send(desk: Desk, sending: Sending, about: dict[str, Any]) -> None:
    try:
        await desk.send(sending, **about)
    except Problem as problem:
        if sending.began:  # it may have arrived, and the id tells
            problem.members["id"] = sending.id
        raise


async def _nothing() -> None:
    return None


def _prepare(store: Store, lease: str, run_id: str, note: dict[str, Any]) -> dict[str, Any] | None:
    """The live holder, if there is one; else note the trigger, so that its id is known from now on.

    A holder whose process is gone is no reason to refuse: the run takes its lease over after the grace.
    """
    holder = store.peek(lease)
    if holder is not None and holder.get("connected") != "0":
        return shown_holder(holder)
    store.note_trigger(run_id, note, _KEEP_SECONDS)
    return None


def _held_by(holder: dict[str, Any]) -> str:
    if not holder:
        return "held by an unknown holder, such as an old string lock"
    return f"held by {holder.get('task_id') or 'a run outside Celery'} since {holder.get('since')}"


def _expires(app: Celery, lease: str) -> float:
    """One interval of the schedule, so that triggers of a time without workers do not pile up; or a day."""
    intervals = [each.interval() for each in read_expectations(app) if each.lease == lease]
    return min([_KEEP_SECONDS, *(every.total_seconds() for every in intervals if every)])


async def _wait(desk: Desk, run_id: str, seconds: float) -> Seen | None:
    """Look until the run has ended or the time is over; what was seen last."""
    deadline, pause = time.monotonic() + seconds, _FIRST_LOOK
    ended_at: float | None = None
    seen: Seen | None = None
    while True:
        try:
            seen = await desk.look(run_id) or seen
        except Problem as problem:
            # Something is down just now. The run goes on without it, and so does the waiting.
            logger.warning("waiting for run %s: %s", run_id, problem)
        if seen and seen.state == "ended":
            ended_at = ended_at or time.monotonic()
            if seen.terminal or time.monotonic() - ended_at > _LAG_SECONDS:
                return seen
        left = deadline - time.monotonic()
        if left <= 0:
            return seen
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, _LAST_LOOK)


def _answer(seen: Seen, period: str | None) -> JSONResponse:
    """The answer to a trigger, with the status of the outcome."""
    status = STATUS.get(seen.outcome or "", 202) if seen.state == "ended" else 202
    members = {**seen.as_members(), **_with_period(period)}
    location = {"Location": f"/api/runs/{seen.id}"}
    if status < 400:  # noqa: PLR2004 - where errors begin
        return JSONResponse(_plain(members), status, location)
    error = (seen.outcome or "failed").removeprefix("skipped_")
    again = {"Retry-After": str(RETRY_AFTER)} if error == "lock_unavailable" else {}
    detail = f"the run ended as {seen.outcome}" + (f" ({seen.reason})" if seen.reason else "")
    return Problem(error, detail, headers={**location, **again}, **_plain(members)).response


def _plain(members: dict[str, Any]) -> Any:
    """As JSON has it; what JSON does not have in its own words."""
    return json.loads(json.dumps(members, default=str), parse_constant=str)


def _period(task: Any) -> str | None:
    name = getattr(type(task), "period", None)
    return str(name()) if name else None


def _with_period(period: str | None) -> dict[str, str]:
    return {"period": period} if period else {}
