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
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from celery import current_app
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded

from celery_lease._errors import LeaseError, LeaseLost, Skipped, StoreUnavailable
from celery_lease._keys import check_name
from celery_lease._lease import Lease, OnLost, check_on_lost, current
from celery_lease._pings import ping
from celery_lease._recording import log_skip
from celery_lease._renewer import renewer
from celery_lease._store import Claim, Grant, Refusal, Store, store_of
from celery_lease._tracing import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery import Celery

logger = logging.getLogger("celery_lease")


_UNFINISHED: Any = object()


class NothingToDo(Ignore):
    """This very message was carried out before: acknowledge it, and leave no trace of it."""


class UnderWay(NothingToDo):
    """This very message is being carried out now, by the run that its original started.

    Attributes:
        parked: what to park this copy as, or "" when another copy is parked already.
    """

    def __init__(self, said: str, parked: str) -> None:
        self.said = said
        self.parked = parked
        # The very arguments of the constructor: a pool process sends it to its parent, which rebuilds it.
        super().__init__(said, parked)

    def __str__(self) -> str:
        return self.said


class Run:
    """One run. Made for one attempt, used once, by the thread that made it.

    Attributes:
        lease: while it is held.
        entered: whether the body has been entered.
        outcome: what was recorded at the release, "" before.
    """

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
        message: str = "",
        copy: str = "",
        slot: str = "",
        entry: str = "",
        per_argument: bool = False,
        park_seconds: float = 0,
    ) -> None:
        self.entered = False
        self.outcome = ""
        self._pid = os.getpid()
        self.lease: Lease | None = None
        self._store = store
        self._on_lost: OnLost = on_lost
        self._notify = notify
        self._runs_at_most = runs_at_most
        self._grant: Grant | None = None
        self._after_release: list[Callable[[], Any]] = []
        self._claim = Claim(
            keys=store.keys(check_name(name)),
            # Before the first call, so that a run interrupted inside it can still give back what it got.
            token=secrets.token_hex(16),
            holder={**holder, "host": socket.gethostname(), "pid": str(os.getpid())},
            delivery=delivery,
            message=message,
            copy=copy,
            slot=slot,
            entry=entry,
            per_argument=per_argument,
            park_seconds=park_seconds,
        )

    @property
    def name(self) -> str:
        """Of the lease."""
        return self._claim.keys.name

    def unlimited(self) -> None:
        """Renew the lease past the task's hard time limit, too. To be said before `open`."""
        self._runs_at_most = None

    def open(self) -> Lease:
        """Take the lease and start renewing it. Waits up to the grace for a holder that is not connected.

        Raises:
            Skipped: it is held, the slot has been done, or the store cannot answer.
            NothingToDo: a copy of a message that was carried out, or (`UnderWay`) is being carried out.
            LeaseError: this message has died with its worker too often.
        """
        self._claim = replace(self._claim, channel=renewer.join(self._store, self._claim.keys))
        waiting: Refusal | None = None
        try:
            while isinstance(answer := self._acquire(patient=True), Refusal):
                waiting = answer
                time.sleep(self._store.settings.look_every)
        except (Ignore, LeaseError):
            raise
        except BaseException as error:
            self._give_back_unanswered()
            if waiting is not None and isinstance(error, SoftTimeLimitExceeded):
                detail = "a soft time limit struck while waiting for a dead holder"
                raise Skipped("locked", self._claim.keys.name, waiting.holder, detail) from error
            raise
        return answer

    def _acquire(self, *, patient: bool) -> Lease | Refusal:
        """Ask once. A refusal comes back only if it is worth asking again."""
        sent_at = time.monotonic()
        try:
            answer = self._store.acquire(self._claim, patient=patient)
        except StoreUnavailable as error:
            # No lease, no run: these jobs spend money and write data, and an unguarded run is worse
            # than a missed one.
            if self._claim.copy:
                # Its original may be under way, or done: a skip would be a second outcome of one message.
                self._settle(partial(self._store.withdraw, self._claim, ""), expendable=True)
                said = f"{self._claim.keys.name}: no answer about delivery {self._claim.delivery} ({error})"
                raise UnderWay(said, self._claim.copy) from error
            self._settle(partial(self._store.withdraw, self._claim, utc_now()), expendable=True)
            raise Skipped("lock_unavailable", self._claim.keys.name, detail=str(error)) from error
        if isinstance(answer, Refusal):
            if answer.answer == "waiting":
                return answer
            raise self._refused(answer)
        return self._granted(answer, sent_at)

    def try_open(self) -> Lease | Refusal:
        """Ask once, as a standby that asks as long as it lives: a refusal is no skip and leaves no record.

        The token stays the same, so a grant whose answer was lost is found by the next try.

        Raises:
            StoreUnavailable: the store cannot answer.
        """
        channel = renewer.join(self._store, self._claim.keys)
        self._claim = replace(self._claim, channel=channel, standby=True)
        sent_at = time.monotonic()
        answer = self._store.acquire(self._claim)
        return answer if isinstance(answer, Refusal) else self._granted(answer, sent_at)

    def _granted(self, grant: Grant, sent_at: float) -> Lease:
        self.lease = Lease(
            self._claim,
            grant,
            seconds=self._store.settings.seconds,
            grace=self._store.settings.grace,
            sent_at=sent_at,
            on_lost=self._on_lost,
            notify=self._notify,
        )
        self._grant = grant
        describe(self.name, fence=grant.fence)
        renewer.add(self.lease, self._store, self._runs_at_most)
        return self.lease

    def _give_back_unanswered(self) -> None:
        """After an interruption, by a soft time limit or Ctrl-C: the store may have granted the lease by now.

        The same token gets the same answer, so asking again says what there is to give back.
        """
        with suppress(Ignore, LeaseError):
            self._acquire(patient=False)
        self.close("failed")

    def execute(self, body: Callable[[], Any], outcome: str = "ran") -> Any:
        """Enter the body under the lease; close the run whichever way the body ends.

        Args:
            body: the work.
            outcome: of a body that comes to its end.
        """
        self.entered = True
        result, error = _UNFINISHED, None
        before = current.set(self.lease)
        try:
            try:
                result = body()
            except BaseException as raised:  # noqa: BLE001 - raised again below, once the lease is free
                outcome, error = outcome_of(raised), raised
            self.close(outcome, result, error)
        except BaseException as struck:
            # Struck after the body: how that ended stands. (Struck just as it was ending: it has not.)
            if result is _UNFINISHED and error is None:
                outcome, error = "failed", struck
            self.close(outcome, result, error)
            if not isinstance(struck, SoftTimeLimitExceeded):
                raise  # such as a hard limit of the gevent pool, which is Celery's to report
        finally:
            current.reset(before)
        if error is not None:
            raise error
        return result

    def amend(self, error: BaseException | None) -> None:
        """Correct `ran` to `failed`: the body ended well, and its result could not be stored."""
        if self._grant is None:
            return
        try:
            self._store.amend(self._claim, self._grant, _facts(None, error))
        except StoreUnavailable as unavailable:
            logger.warning("%s: the run stays recorded as ran (%s)", self._claim.keys.name, unavailable)

    def finish_delivery(self) -> None:
        """Remember the message as carried out: the one that follows it has been sent."""
        try:
            self._store.finish(self._claim)
        except StoreUnavailable as error:
            # Only a copy of it, sent again by the broker, would run it once more.
            logger.warning(
                "%s: the delivery could not be marked as carried out (%s)", self._claim.keys.name, error
            )

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
        store = self._store
        release = partial(store.release, lease.claim, lease.grant, outcome, facts)
        try:
            recorded = release()
        except StoreUnavailable as error:
            logger.warning("%s: the release is not confirmed (%s) and will be repeated", lease.name, error)
            self._settle(lambda: ping(store.settings, lease.name, release(late=trusted)))
            return
        self.outcome = recorded
        ping(store.settings, lease.name, recorded)
        describe(self.name, outcome=recorded)
        if recorded == "lost":
            lease.lose()

    def _settle(self, action: Callable[[], Any], *, expendable: bool = False) -> None:
        renewer.settle(self._store, self._claim.channel, action, expendable=expendable)

    def _refused(self, refusal: Refusal) -> Exception:
        name, delivery = self._claim.keys.name, self._claim.delivery
        match refusal.answer:
            case "locked":
                return Skipped("locked", name, refusal.holder)
            case "already_done":
                return Skipped("already_done", name, detail=f"slot {self._claim.slot} has been done")
            case "live":
                return UnderWay(f"{name}: delivery {delivery} is being carried out", refusal.detail)
            case "capped":
                return LeaseError(
                    f"{name}: delivery {delivery} died with its worker {refusal.detail} times and is not "
                    "tried again; see why it kills its worker (memory?), or raise lease_delivery_cap"
                )
            case _:
                return NothingToDo(f"{name}: delivery {delivery} was carried out before")


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
            A holder that is not connected is waited for, up to the grace (10 s).
        LeaseError: a setting or the name is wrong.
    """
    check_on_lost(on_lost, f"hold({name!r})")
    run = Run(store_of(app or current_app), name, {"worker": "hold"}, on_lost=on_lost)
    before, outcome = None, ""
    try:
        try:
            lease = run.open()
        except Skipped as skipped:
            log_skip(skipped, None)
            raise
        before = current.set(lease)
        yield lease
        outcome = "ran"
        run.close(outcome)
    except BaseException as error:
        # Struck after the body, by Ctrl-C or a limit: how that ended stands, and it is closed once more.
        try:
            run.close(outcome or outcome_of(error), error=None if outcome else error)
        except BaseException:
            run.close(outcome or outcome_of(error), error=None if outcome else error)
            raise
        raise
    finally:
        if before is not None:
            current.reset(before)


def utc_now() -> str:
    """This machine's time as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def outcome_of(error: BaseException) -> str:
    """The outcome of a body that ended with `error`."""
    # A message that is put back into its queue comes again, as that of a retry does.
    if isinstance(error, Retry) or (isinstance(error, Reject) and error.args[1]):
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
    return dict(counts_of(result))


def counts_of(result: Any) -> dict[str, int]:
    """`worked` and `backlog` of a task's result, as far as it says so."""
    if not isinstance(result, Mapping):
        return {}
    counts = {key: result[key] for key in ("worked", "backlog") if key in result}
    return {
        key: value for key, value in counts.items() if isinstance(value, int) and not isinstance(value, bool)
    }
