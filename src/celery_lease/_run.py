"""One attempt at the work under one lease: open, execute, close.

`LeasedTask` and `hold` are two doors to this one room. The order at the end is what everything rests
on: renewal stops first, then one script call gives the lease back and writes the run record, and only
then does anybody learn how the body ended. A visible result therefore means a free lease.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from celery import current_app
from celery.exceptions import Ignore, Retry, SoftTimeLimitExceeded

from celery_lease._errors import LeaseLost, Skipped, StoreUnavailable
from celery_lease._keys import check_name
from celery_lease._lease import Lease, OnLost, current
from celery_lease._recording import log_skip
from celery_lease._renewer import renewer
from celery_lease._store import Claim, Grant, Store, store_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery import Celery

logger = logging.getLogger("celery_lease")


_UNFINISHED: Any = object()


class NothingToDo(Ignore):
    """This very message was carried out before, or is being carried out now: leave no trace of it."""


class Run:
    """One run. Made for one attempt, used once, by the thread that made it."""

    def __init__(
        self,
        store: Store,
        name: str,
        holder: Mapping[str, str],
        *,
        on_lost: OnLost = "continue",
        notify: Callable[[Lease], None] | None = None,
        runs_at_most: float | None = None,
        delivery: str = "",
        redelivered: bool = False,
        slot: str = "",
        per_argument: bool = False,
    ) -> None:
        self.entered = False
        self._pid = os.getpid()
        self.lease: Lease | None = None
        self._store = store
        self._on_lost: OnLost = on_lost
        self._notify = notify
        self._runs_at_most = runs_at_most
        self._after_release: list[Callable[[], Any]] = []
        self._claim = Claim(
            keys=store.keys(check_name(name)),
            # Before the first call, so that a run interrupted inside it can still give back what it got.
            token=secrets.token_hex(16),
            holder={**holder, "host": socket.gethostname(), "pid": str(os.getpid())},
            delivery=delivery,
            redelivered=redelivered,
            slot=slot,
            per_argument=per_argument,
        )

    def open(self) -> Lease:
        """Take the lease and start renewing it.

        Raises:
            Skipped: it is held, the slot has been done, or the store cannot answer.
            NothingToDo: a copy of a message that was carried out, or is being carried out.
        """
        try:
            return self._acquire()
        except Ignore:
            raise
        except BaseException:
            # Interrupted, by a soft time limit or Ctrl-C: the store may have granted the lease by now.
            # The same token gets the same answer, so asking again says what there is to give back.
            with suppress(Ignore):
                self._acquire()
            self.close("failed")
            raise

    def _acquire(self) -> Lease:
        sent_at = time.monotonic()
        try:
            answer = self._store.acquire(self._claim)
        except StoreUnavailable as error:
            # No lease, no run: these jobs spend money and write data, and an unguarded run is worse
            # than a missed one.
            renewer.settle(partial(self._store.withdraw, self._claim, _now()))
            raise Skipped("lock_unavailable", self._claim.keys.name, detail=str(error)) from error
        if not isinstance(answer, Grant):
            raise self._refused(answer.answer, answer.holder)
        self.lease = Lease(
            self._claim,
            answer,
            seconds=self._store.settings.seconds,
            sent_at=sent_at,
            on_lost=self._on_lost,
            notify=self._notify,
        )
        renewer.add(self.lease, self._store, self._runs_at_most)
        return self.lease

    def execute(self, body: Callable[[], Any]) -> Any:
        """Enter the body under the lease; close the run whichever way the body ends."""
        self.entered = True
        outcome, result, error = "ran", _UNFINISHED, None
        before = current.set(self.lease)
        try:
            try:
                result = body()
            except BaseException as raised:  # noqa: BLE001 - raised again below, once the lease is free
                outcome, error = _outcome(raised), raised
            self.close(outcome, result, error)
        except SoftTimeLimitExceeded as limit:
            # Struck after the body: how that ended stands. (Struck just as it was ending: it has not.)
            if result is _UNFINISHED and error is None:
                outcome, error = "failed", limit
            self.close(outcome, result, error)
        finally:
            current.reset(before)
        if error is not None:
            raise error
        return result

    def after_release(self, action: Callable[[], Any]) -> None:
        """Do `action` once the lease is free, and before anybody learns how the body ended."""
        self._after_release.append(action)

    def close(self, outcome: str, result: Any = None, error: BaseException | None = None) -> None:
        """Give the lease back and write the run record. Idempotent; does nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        if self.lease is not None:
            renewer.remove(self.lease)
            self._release(self.lease, outcome, _facts(result, error))
            self.lease = None
        while self._after_release:
            self._after_release.pop(0)()

    def _release(self, lease: Lease, outcome: str, facts: Mapping[str, Any]) -> None:
        trusted = not lease.lost and not lease.suspect
        release = partial(self._store.release, lease.claim, lease.grant, outcome, facts)
        try:
            recorded = release()
        except StoreUnavailable as error:
            logger.warning("%s: the release is not confirmed (%s) and will be repeated", lease.name, error)
            renewer.settle(partial(release, late=trusted))
            return
        if recorded == "lost":
            lease.lose()

    def _refused(self, answer: str, holder: dict[str, Any]) -> Exception:
        name = self._claim.keys.name
        if answer == "locked":
            return Skipped("locked", name, holder)
        if answer == "already_done":
            return Skipped("already_done", name, detail=f"slot {self._claim.slot} has been done")
        return NothingToDo(f"delivery {self._claim.delivery} is {answer}")


@contextmanager
def hold(name: str, *, app: Celery | None = None, on_lost: OnLost = "continue") -> Iterator[Lease]:
    """Hold the lease `name` outside of Celery: the same key, the same guarantees as a leased task.

        with hold("curation") as lease:
            ...

    Args:
        name: the lease's name; for a leased task without `lease=`, its task name.
        app: whose settings to use; the current app's by default.
        on_lost: `continue` or `abort`; what `Lease.check` does once the lease cannot be trusted.

    Raises:
        Skipped: the body was not entered: the lease is held, or the store cannot answer (within 5 s).
        LeaseError: a setting or the name is wrong.
    """
    run = Run(store_of(app or current_app), name, {"worker": "hold"}, on_lost=on_lost)
    try:
        lease = run.open()
    except Skipped as skipped:
        log_skip(skipped, None)
        raise
    before = current.set(lease)
    try:
        yield lease
    except BaseException as error:
        run.close(_outcome(error), error=error)
        raise
    else:
        run.close("ran")
    finally:
        current.reset(before)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _outcome(error: BaseException) -> str:
    """The outcome of a body that ended with `error`."""
    if isinstance(error, Retry):
        return "retried"
    if isinstance(error, LeaseLost):
        return "lost"
    if isinstance(error, Skipped):
        return f"skipped_{error.reason}"
    return "failed"


def _facts(result: Any, error: BaseException | None) -> dict[str, Any]:
    """What the ledger keeps of how a body ended. An error's text stays out: it may hold a secret."""
    if error is not None:
        return {"worked": 0, "error": type(error).__name__}
    if not isinstance(result, Mapping):
        return {}
    counts = {key: result[key] for key in ("worked", "backlog") if key in result}
    return {
        key: value for key, value in counts.items() if isinstance(value, int) and not isinstance(value, bool)
    }
