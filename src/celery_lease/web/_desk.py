"""What all endpoints share: the app, who may come in, and a pool of threads for each thing that may hang."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from celery_lease._errors import StoreUnavailable
from celery_lease._ledger import Ledger
from celery_lease._store import store_of
from celery_lease.web._problems import Problem, unavailable
from celery_lease.web._runs import Trace, job_of, judge, read_meta, read_trace, reads_results
from celery_lease.web._threads import Threads, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery
    from fastapi import Request

    from celery_lease._store import Store
    from celery_lease.web._access import Access
    from celery_lease.web._limiter import Limiter
    from celery_lease.web._runs import Seen
    from celery_lease.web._sending import Sending

logger = logging.getLogger("celery_lease")

#: Together these stay below 5 s: the limiter, then store and result backend side by side, then the broker.
LIMITER_SECONDS = 0.5
STORE_SECONDS = 2.2
BACKEND_SECONDS = 2.0
BROKER_SECONDS = 2.0

#: For what reads many jobs: a page, a scrape, the health check.
READ_SECONDS = 4.0

#: More calls than these hanging at once, and the next one is refused at once.
_THREADS = 40


@dataclass
class Desk:
    """Where endpoints ask. Answers come in time, or as a `Problem`.

    Attributes:
        app: the Celery app.
        access: the secrets.
        limiter: of requests.
        flower: Flower's address without a slash at its end; "" when there is none.
        links: more places to go to, text → address.
    """

    app: Celery
    access: Access
    limiter: Limiter
    flower: str = ""
    links: dict[str, str] = field(default_factory=dict)
    _store: Threads = field(default_factory=lambda: Threads("lease store", _THREADS))
    _views: Threads = field(default_factory=lambda: Threads("lease store", _THREADS))
    _health: Threads = field(default_factory=lambda: Threads("lease store", 4))
    _backend: Threads = field(default_factory=lambda: Threads("result backend", _THREADS))
    _broker: Threads = field(default_factory=lambda: Threads("broker", _THREADS))
    _limits: Threads = field(default_factory=lambda: Threads("rate limiter", _THREADS))

    async def waits(self, purpose: str, client: str) -> int:
        """Count a request; the seconds for which this client is to wait, 0 if it need not."""
        try:
            return await self._limits.ask(lambda: self.limiter.wait(purpose, client), LIMITER_SECONDS)
        except Unanswered:
            return self.limiter.wait_in_memory(purpose, client)

    async def store(self, action: Callable[[Store], Any], **members: Any) -> Any:
        """What the lease store says; a `Problem` with these members when it says nothing."""
        try:
            return await self._store.ask(lambda: action(store_of(self.app)), STORE_SECONDS)
        except (StoreUnavailable, Unanswered) as error:
            raise unavailable("lock_unavailable", str(error), **members) from error

    async def read(self, view: Callable[[Ledger], Any]) -> Any:
        """Something made of many jobs.

        Raises:
            StoreUnavailable, Unanswered: the store does not answer.
        """
        return await self._views.ask(lambda: view(Ledger(store_of(self.app))), READ_SECONDS)

    async def check_health(self, check: Callable[[Store], Any]) -> Any:
        """As `read`, on threads that nothing else can take."""
        return await self._health.ask(lambda: check(store_of(self.app)), READ_SECONDS)

    async def alert(self, report: Callable[[], Any], seconds: float) -> None:
        """Send alerts, which may take long."""
        await self._health.ask(report, seconds)

    async def meta(self, run_id: str, **members: Any) -> dict[str, Any] | None:
        """What the result backend has of a run; a `Problem` with these members when it does not answer."""
        try:
            return await self._backend.ask(lambda: _meta(self.app, run_id), BACKEND_SECONDS)
        except Exception as error:
            # Whatever a result backend raises: every one has exceptions of its own.
            said = str(error) if isinstance(error, Unanswered) else type(error).__name__
            raise unavailable("result_backend_unavailable", said, **members) from error

    async def send(self, sending: Sending, **members: Any) -> None:
        """Hand the message to the broker; a `Problem` with these members when it does not take it."""
        try:
            await self._broker.ask(sending.send, BROKER_SECONDS)
        except Exception as error:
            # Whatever a broker's client raises.
            sending.give_up()
            said = str(error) if isinstance(error, Unanswered) else type(error).__name__
            what = "the message may have arrived all the same" if sending.began else "nothing was queued"
            raise unavailable("broker_unavailable", f"{said}; {what}", **members) from error

    async def look(self, run_id: str) -> Seen | None:
        """What became of a run; None if there is no such run.

        Raises:
            Problem: neither store nor result backend answers, or what does answer knows nothing.
        """
        trace, meta = await asyncio.gather(
            self.store(lambda store: read_trace(store, run_id)), self.meta(run_id), return_exceptions=True
        )
        problems = [found for found in (trace, meta) if isinstance(found, BaseException)]
        for problem in problems:
            if not isinstance(problem, Problem):
                raise problem
        trace = Trace() if isinstance(trace, BaseException) else trace
        meta = None if isinstance(meta, BaseException) else meta
        job = job_of(meta)
        if job is not None and trace.record is None and not problems:
            trace = await self.store(lambda store: read_trace(store, run_id, job))
        seen = judge(run_id, trace, meta)
        if seen is None and problems:
            raise problems[0]
        return seen


def _meta(app: Celery, run_id: str) -> dict[str, Any] | None:
    return read_meta(app, run_id) if reads_results(app) else None


def desk_of(request: Request) -> Desk:
    """The desk of the app that handles this request."""
    desk: Desk = request.app.state.desk
    return desk


def client_of(request: Request) -> str:
    """The address that a request came from; behind a proxy `uvicorn --forwarded-allow-ips` makes it right."""
    return request.client.host if request.client else "unknown"
