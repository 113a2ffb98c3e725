"""The secret, asked for before anything else."""

from __future__ import annotations

import logging
import time

from fastapi import Request  # noqa: TC002 - FastAPI reads it from the signature

from celery_lease.web._access import MIN_LENGTH
from celery_lease.web._desk import Desk, client_of, desk_of
from celery_lease.web._problems import Problem

logger = logging.getLogger("celery_lease")

_BEARER = 'Bearer realm="cron"'
_BASIC = 'Basic realm="cron", charset="UTF-8"'
_SAY_EVERY_SECONDS = 60.0


class _Nag:
    """Says that there is no secret once a minute: a caller that repeats its request must not fill the log."""

    def __init__(self) -> None:
        self._said_at = float("-inf")

    def say(self) -> None:
        if time.monotonic() - self._said_at >= _SAY_EVERY_SECONDS:
            self._said_at = time.monotonic()
            logger.error("CRON_SECRET is unset or shorter than %d characters: all is refused", MIN_LENGTH)


_nag = _Nag()


async def only_bearer(request: Request) -> None:
    """Let in who has the secret as Bearer token: what acts must not be open to a browser's habits."""
    await _guard(request, desk_of(request), basic=False)


async def bearer_or_basic(request: Request) -> None:
    """Let in who has the secret."""
    await _guard(request, desk_of(request), basic=True)


async def _guard(request: Request, desk: Desk, *, basic: bool) -> None:
    verdict = desk.access.judge(request.headers.get("authorization"), basic=basic)
    if verdict == "right":
        return
    if verdict == "unset":
        _nag.say()
        raise Problem(
            "secret_unset",
            f"set CRON_SECRET to at least {MIN_LENGTH} random characters; waiting does not help",
        )
    # Only the refused are counted here. Who has the secret is never locked out by others who guess, from
    # behind the same proxy: guessing it is hopeless at any speed.
    await refuse_too_many(request, desk, "refused")
    challenge = _BEARER if verdict == "missing" else f'{_BEARER}, error="invalid_token"'
    raise Problem(
        "unauthorized",
        f"the secret is {verdict}; send it as Bearer token",
        challenges=[challenge, *([_BASIC] if basic else [])],
    )


async def refuse_too_many(request: Request, desk: Desk, purpose: str) -> None:
    """Count this request for its client; raises a `Problem` when it was one too many."""
    seconds = await desk.waits(purpose, client_of(request))
    if seconds:
        raise Problem("rate_limited", f"come again in {seconds} s", headers={"Retry-After": str(seconds)})
