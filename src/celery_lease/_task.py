"""`LeasedTask`: the seam with Celery. Every override says why it is there."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args

from celery import Task, shared_task
from celery.app.task import get_actual_ignore_result  # type: ignore[attr-defined]
from celery.exceptions import Reject, SoftTimeLimitExceeded
from celery.result import EagerResult

from celery_lease._errors import LeaseError, Skipped
from celery_lease._keys import check_template, is_per_argument, render
from celery_lease._lease import Lease, OnLost
from celery_lease._recording import log_skip, record_lost, record_skip, record_started
from celery_lease._run import Run
from celery_lease._settings import refuse_unknown_settings
from celery_lease._states import SKIPPED
from celery_lease._store import store_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery
    from celery.app.task import Context

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("celery_lease")

#: Where a request keeps its run. The task object is shared by all runs of a process, a request is not.
_RUN = "celery_lease_run"

#: Header of a message sent for one slot of the schedule: UTC epoch seconds.
SLOT_HEADER = "lease_slot"


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
    """

    abstract = True
    lease: str | None = None
    on_lost: OnLost = "continue"

    _tracks_started = False

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Check options and settings at start-up, and take over writing STARTED."""
        refuse_unknown_settings(app)
        if cls.on_lost not in get_args(OnLost):
            raise LeaseError(f"on_lost={cls.on_lost!r} of task {cls.name!r}: use 'continue' or 'abort'")
        if cls.lease is not None:
            check_template(cls.lease, cls.run, cls.name)
        if "_tracks_started" not in cls.__dict__:
            # Celery writes STARTED before `before_start`, and a skip would show as started first.
            cls._tracks_started = bool(cls.track_started)
            cls.track_started = False
        super().on_bound(app)

    def before_start(self, task_id: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the lease, or skip: record that, and raise `Skipped`, which Celery does not overwrite."""
        began = time.monotonic()
        request = self.request
        run = self._new_run(request, args, kwargs)
        setattr(request, _RUN, run)
        try:
            run.open()
            if self._tracks_started and not request.is_eager and not get_actual_ignore_result(self, request):
                record_started(self, request)
        except Skipped as skipped:
            self._record_skip(request, skipped, began)
            raise
        except BaseException as error:
            # Here and not only in `after_return`, which Celery leaves out when it cannot store FAILURE.
            run.close("failed", error=error)
            raise
        super().before_start(task_id, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body under the lease; called as a plain function, take the lease first.

        Raises:
            Skipped: called as a plain function, and the lease cannot be had.
        """
        run: Run | None = getattr(self.request, _RUN, None)
        if run is None:
            return self._call_directly(args, kwargs)
        if run.entered:
            return self.run(*args, **kwargs)
        began = time.monotonic()
        try:
            return run.execute(partial(self.run, *args, **kwargs))
        except Skipped as skipped:
            # The body met another lease that it could not have: this run did not do its work either.
            self._record_skip(self.request, skipped, began)
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
        run: Run | None = getattr(self.request, _RUN, None)
        if run is not None:
            run.close("failed", error=retval if isinstance(retval, BaseException) else None)
        super().after_return(status, retval, task_id, args, kwargs, einfo)

    def retry(  # type: ignore[override]
        self, args: Any = None, kwargs: Any = None, exc: Any = None, throw: bool = True, **options: Any
    ) -> Any:
        """Celery's `retry`, whose message is sent once the lease is free.

        Celery sends it at once, and a worker that picked it up would find the lease still held by the
        very attempt it follows. The next attempt is a new run.
        """
        request = self.request
        run: Run | None = getattr(request, _RUN, None)
        if run is None or request.called_directly or request.is_eager:
            return super().retry(args, kwargs, exc, throw=throw, **options)
        request.is_eager = True  # Celery then prepares the retry without sending it
        try:
            retry: Any = super().retry(args, kwargs, exc, throw=False, **options)
        finally:
            request.is_eager = False
        retry.is_eager = False
        run.after_release(partial(_send_retry, retry))
        if throw:
            raise retry
        return retry

    def on_replace(self, sig: Any) -> Any:
        """Free the lease before the replacement is sent, which may be this very task."""
        run: Run | None = getattr(self.request, _RUN, None)
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
        run = self._new_run(self.request, args, kwargs)
        try:
            run.open()
        except Skipped as skipped:
            log_skip(skipped, None)
            raise
        return run.execute(partial(super().__call__, *args, **kwargs))

    def _new_run(self, request: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        template = self.lease
        hard_limit = (request.timelimit or (None, None))[0] or self.time_limit
        has_message = bool(request.id) and not request.called_directly
        return Run(
            store_of(self.app),
            self.name if template is None else render(template, self.run, args, kwargs),
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
            redelivered=bool((request.delivery_info or {}).get("redelivered")),
            slot=_slot(request),
            per_argument=template is not None and is_per_argument(template),
        )

    def _record_skip(self, request: Context, skipped: Skipped, began: float) -> None:
        try:
            record_skip(self, request, skipped, began)
        except SoftTimeLimitExceeded:
            logger.warning(
                "%s: a soft time limit struck while a skip was being recorded; it stays a skip", self.name
            )


def _slot(request: Context) -> str:
    slot = (request.headers or {}).get(SLOT_HEADER)
    if slot is None:
        return ""
    if not str(slot).isdecimal():
        raise LeaseError(f"header {SLOT_HEADER!r} must be whole UTC epoch seconds, not {slot!r}")
    return str(slot)


def _notify_lost(task: LeasedTask, request: Context, lease: Lease) -> None:
    record_lost(task, request, lease.name, lease.fence)


def _send_retry(retry: Any) -> None:
    try:
        retry.sig.apply_async()
    except Exception as error:
        # As Celery does: the attempt cannot be repeated, and saying RETRY would be a lie.
        raise Reject(error, requeue=False) from error
