"""`LeasedTask`: the seam with Celery. Every override says why it is there."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from celery import Task, shared_task
from celery._state import _task_stack  # type: ignore[attr-defined]
from celery.app.task import Context, get_actual_ignore_result  # type: ignore[attr-defined]
from celery.exceptions import Reject, SoftTimeLimitExceeded
from celery.result import EagerResult
from celery.states import FAILURE
from celery.utils.time import maybe_iso8601, maybe_make_aware

from celery_lease._errors import LeaseError, Skipped
from celery_lease._keys import check_template, is_per_argument, render
from celery_lease._lease import Lease, OnLost, check_on_lost
from celery_lease._recording import log_skip, record_lost, record_skip, record_started
from celery_lease._run import NothingToDo, Run, UnderWay, outcome_of
from celery_lease._settings import refuse_short_limits, refuse_unknown_settings
from celery_lease._states import SKIPPED
from celery_lease._store import store_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("celery_lease")

#: Where a request keeps its run. The task object is shared by all runs of a process, a request is not.
RUN = "celery_lease_run"

#: Header of a message sent for one slot of the schedule: UTC epoch seconds.
SLOT_HEADER = "lease_slot"

#: Beside it, the name of the schedule's entry.
ENTRY_HEADER = "lease_entry"

#: Header of a parked copy of a message that was under way.
PARKED_HEADER = "lease_parked"

#: Beside it, the message that it is a copy of.
MESSAGE_HEADER = "lease_message"

#: A copy of a message that is under way comes back after this time, or sooner where the broker would
#: send it again sooner.
_PARK_SECONDS = 30.0

#: kombu's own default, in seconds.
VISIBILITY_TIMEOUT = 3600.0


def leased_task(
    *, name: str, lease: str | None = None, on_lost: OnLost = "continue", **options: Any
) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a Celery task that never overlaps with itself.

    `celery.shared_task(base=LeasedTask)` with these options; everything else goes to Celery.

    Args:
        name: the task's name, explicit, so that it stays the same when code moves. It is also the
            lease's name unless `lease` says otherwise: the Redis key is `cron:{name}`.
        lease: a template over the task's arguments for one lease per value, as in `"export:{tenant}"`.
            Positional, keyword and default arguments give the same lease.
        on_lost: what `current_lease().check()` does once the lease cannot be trusted: `continue`
            (return False) or `abort` (raise `LeaseLost`).
        **options: passed to Celery, such as `bind`, `time_limit` or `autoretry_for`.

    There is no parameter for the length of the lease: a caller who thinks about how long the job may
    run would answer a question that the lease does not ask. A living run renews it, however long it takes.
    """
    return shared_task(name=name, base=LeasedTask, lease=lease, on_lost=on_lost, **options)


class LeasedTask(Task[Any, Any]):
    """A task whose body runs only while it holds the lease of its name.

    Use `leased_task`, or `@app.task(base=LeasedTask)`. A subclass that overrides `before_start`,
    `after_return`, `retry`, `on_replace` or `__call__` must call this class's own.

    Attributes:
        lease: template of the lease's name over the arguments; None means the task's own name.
        on_lost: `continue` or `abort`.
        period: a function without arguments that names the period which a run now is about, such as
            "2026-09" for a monthly job; None for a job without one. HTTP answers show it.
    """

    abstract = True
    Request = "celery_lease._request:LeasedRequest"
    lease: str | None = None
    on_lost: OnLost = "continue"
    period: Callable[[], str] | None = None

    _tracks_started = False

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Check options and settings at start-up, and take over writing STARTED."""
        refuse_unknown_settings(app)
        check_on_lost(cls.on_lost, f"task {cls.name!r}")
        refuse_short_limits(app, cls)
        if cls.lease is not None:
            check_template(cls.lease, cls.__new__(cls).run, cls.name)  # bound, if it takes `self`
        if "_tracks_started" not in cls.__dict__:
            # Celery writes STARTED before `before_start`, and a skip would show as started first.
            cls._tracks_started = bool(cls.track_started)
            cls.track_started = False
        cls.before_start = _closing(cls.before_start)  # type: ignore[method-assign]
        super().on_bound(app)

    def before_start(self, task_id: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the lease, or skip: record that, and raise `Skipped`, which Celery does not overwrite."""
        request = self.request
        run = self.new_run(request, args, kwargs)
        setattr(request, RUN, run)
        try:
            run.open()
            if copy_of(request) and _has_expired(request):
                self._expire(request, run)
            if self._tracks_started and not request.is_eager and not get_actual_ignore_result(self, request):
                record_started(self, request)
        except Skipped as skipped:
            self._record_skip(request, skipped)
            raise
        except UnderWay as under_way:
            self._park(request, under_way)
            raise
        except NothingToDo as nothing:
            logger.info("%s[%s]: %s", self.name, task_id, nothing)
            raise
        super().before_start(task_id, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body under the lease; called as a plain function, take the lease first.

        Raises:
            Skipped: called as a plain function, and the lease cannot be had.
        """
        run: Run | None = getattr(self.request, RUN, None)
        if run is None:
            return self._call_directly(args, kwargs)
        if run.entered:  # the body calls its own function, under the lease it has, if that is the same
            same = run.lease is not None and self.lease_name(args, kwargs) == run.name
            return self.run(*args, **kwargs) if same else self._call_directly(args, kwargs)
        try:
            return run.execute(partial(self.run, *args, **kwargs))
        except Skipped as skipped:
            # The body met another lease that it could not have: this run did not do its work either.
            self._record_skip(self.request, skipped)
            raise

    def after_return(
        self,
        status: str,
        retval: Any,
        task_id: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        einfo: Any,
    ) -> None:
        """Release what is still open: a time limit struck between `before_start` and the body's end.

        In the parent of a prefork pool, where Celery calls this after a hard limit, there is no run.
        """
        run: Run | None = getattr(self.request, RUN, None)
        error = retval if isinstance(retval, BaseException) else None
        if run is not None:
            run.close("failed", error=error)
            if status == FAILURE and run.outcome == "ran":
                run.amend(error)
        super().after_return(status, retval, task_id, args, kwargs, einfo)

    def retry(  # type: ignore[override]
        self, args: Any = None, kwargs: Any = None, exc: Any = None, throw: bool = True, **options: Any
    ) -> Any:
        """Celery's `retry`, whose message is sent once the lease is free.

        Celery sends it at once, and a worker that picked it up would find the lease still held by the
        very attempt it follows. The next attempt is a new run.
        """
        request = self.request
        run: Run | None = getattr(request, RUN, None)
        if run is None or request.called_directly or request.is_eager:
            return super().retry(args, kwargs, exc, throw=throw, **options)
        request.is_eager = True  # Celery then prepares the retry without sending it
        try:
            retry: Any = super().retry(args, kwargs, exc, throw=False, **options)
        finally:
            request.is_eager = False
        retry.is_eager = False
        # Celery copies `expires` as an absolute time, and would revoke the retry of a job that took long.
        if "expires" not in options:
            retry.sig.options.pop("expires", None)
        for header in (PARKED_HEADER, MESSAGE_HEADER):
            (retry.sig.options.get("headers") or {}).pop(header, None)
        run.after_release(partial(_send_retry, retry, run))
        if throw:
            raise retry
        return retry

    def on_replace(self, sig: Any) -> Any:
        """Free the lease before the replacement is sent, which may be this very task."""
        run: Run | None = getattr(self.request, RUN, None)
        if run is not None:
            run.close("ran")
        return super().on_replace(sig)

    def apply(self, *args: Any, **options: Any) -> EagerResult[Any]:
        """Run eagerly. A skip ends in state SKIPPED here too, where Celery would say IGNORED."""
        result = super().apply(*args, **options)
        if isinstance(result.result, Skipped):
            return EagerResult(result.id, result.result, SKIPPED, name=self.name)
        return result

    def _call_directly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self.new_run(Context(), args, kwargs)
        try:
            try:
                run.open()
            except Skipped as skipped:
                log_skip(skipped, None)
                raise
            # As Celery does for a plain call, with the run on top: the body may call its own function again.
            _task_stack.push(self)
            try:
                self.push_request(args=args, kwargs=kwargs, **{RUN: run})
                try:
                    return run.execute(partial(self.run, *args, **kwargs))
                finally:
                    self.pop_request()
            finally:
                _task_stack.pop()
        except BaseException as error:
            run.close("failed", error=error)  # struck before the body, or after it; else that was done there
            raise

    def lease_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The name of the lease that a call with these arguments takes.

        Raises:
            TypeError: the arguments do not fit the task.
            LeaseError: an argument has no stable text form.
        """
        return self.name if self.lease is None else render(self.lease, self.run, args, kwargs)

    @property
    def is_per_argument(self) -> bool:
        """Whether the lease's name is made from arguments, so that the task has many leases."""
        return self.lease is not None and is_per_argument(self.lease)

    def new_run(
        self, request: Context, args: tuple[Any, ...], kwargs: dict[str, Any], kind: type[Run] = Run
    ) -> Run:
        """A run of this task, not yet opened."""
        hard_limit = (request.timelimit or (None, None))[0] or self.time_limit
        has_message = bool(request.id) and not request.called_directly
        return kind(
            store_of(self.app),
            self.lease_name(args, kwargs),
            {
                "task": self.name,
                "task_id": request.id or "",
                "retries": str(request.retries or 0),
                "worker": request.hostname or "",
            },
            on_lost=self.on_lost,
            notify=partial(_notify_lost, self, request) if has_message and not request.is_eager else None,
            runs_at_most=hard_limit,
            delivery=f"{request.id}/{request.retries or 0}" if has_message else "",
            message=_message(request) if has_message else "",
            copy=copy_of(request) if has_message else "",
            slot=slot_of(request),
            entry=str((request.headers or {}).get(ENTRY_HEADER) or ""),
            per_argument=self.is_per_argument,
            park_seconds=self._park_seconds(),
        )

    def _park_seconds(self) -> float:
        timeout = (self.app.conf.broker_transport_options or {}).get("visibility_timeout", VISIBILITY_TIMEOUT)
        return min(_PARK_SECONDS, float(timeout) / 2)

    def _park(self, request: Context, under_way: UnderWay) -> None:
        """Send this copy again, for later, before it is acknowledged.

        On Redis a copy shares the original's delivery tag, so acknowledging it acknowledges the original
        too: were the original to die after that, nobody would carry the message out.
        """
        logger.info("%s[%s]: %s; parked: %s", self.name, request.id, under_way, under_way.parked or "already")
        if not under_way.parked:
            return
        copy = self.signature_from_request(request, countdown=self._park_seconds(), retries=request.retries)
        parked = {PARKED_HEADER: under_way.parked, MESSAGE_HEADER: _message(request)}
        copy.options["headers"] = {**(copy.options.get("headers") or {}), **parked}
        copy.options.pop("expires", None)  # its run has begun in time, and is to be finished if it dies
        try:
            copy.apply_async()
        except Exception as error:
            raise Reject(error, requeue=True) from error

    def _expire(self, request: Context, run: Run) -> None:
        """End a copy as Celery ends the message itself, had it been too old when its turn came.

        Raises:
            NothingToDo: always.
        """
        run.close("expired")
        ignored = get_actual_ignore_result(self, request)
        task_id = str(request.id)
        self.backend.mark_as_revoked(task_id, "expired", request=request, store_result=not ignored)
        raise NothingToDo("nobody carried it out in time")

    def _record_skip(self, request: Context, skipped: Skipped) -> None:
        try:
            record_skip(self, request, skipped)
        except SoftTimeLimitExceeded:
            logger.warning(
                "%s: a soft time limit struck while a skip was being recorded; it stays a skip", self.name
            )


def _closing(before_start: Callable[..., None]) -> Callable[..., None]:
    """`before_start`, a subclass's too, after whose errors no lease stays.

    `after_return` alone is not enough: Celery leaves it out after `Ignore`, `Reject` and `Retry`, and when it
    cannot store FAILURE.
    """

    @wraps(before_start)
    def guarded(self: LeasedTask, task_id: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            before_start(self, task_id, args, kwargs)
        except BaseException as error:
            run: Run | None = getattr(self.request, RUN, None)
            if run is not None:
                run.close(outcome_of(error), error=error)
            raise

    return guarded


def _message(request: Context) -> str:
    """What all copies of the message share, and no other message that was sent with the same id."""
    parked = (request.headers or {}).get(MESSAGE_HEADER)
    # On Redis and kombu's other virtual transports the sender gives it, and what is sent again keeps it.
    # RabbitMQ has none; there, a worker forgets what it had prefetched when its connection closes.
    return str(parked or (request.properties or {}).get("delivery_tag") or "")


def copy_of(request: Context) -> str:
    """What kind of copy a message is: "redelivered", what it was parked as, or "" for the message itself."""
    parked = (request.headers or {}).get(PARKED_HEADER)
    if parked:
        return str(parked)
    return "redelivered" if (request.delivery_info or {}).get("redelivered") else ""


def _has_expired(request: Context) -> bool:
    given: Any = request.expires  # ISO 8601, whatever Celery's types say
    expires = maybe_iso8601(given)
    return expires is not None and datetime.now(UTC) > maybe_make_aware(expires)


def slot_of(request: Context) -> str:
    """The slot that a message was sent for, or "" for a manual run."""
    slot = (request.headers or {}).get(SLOT_HEADER)
    if slot is None:
        return ""
    if not str(slot).isdecimal():
        raise LeaseError(f"header {SLOT_HEADER!r} must be whole UTC epoch seconds, not {slot!r}")
    return str(slot)


def _notify_lost(task: LeasedTask, request: Context, lease: Lease) -> None:
    record_lost(task, request, lease.name, lease.fence)


def _send_retry(retry: Any, run: Run) -> None:
    try:
        retry.sig.apply_async()
        run.finish_delivery()
    except Exception as error:
        # As Celery does: the attempt cannot be repeated, and saying RETRY would be a lie.
        raise Reject(error, requeue=False) from error
