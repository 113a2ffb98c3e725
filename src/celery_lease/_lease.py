"""The handle a running body has on its lease. Local: nothing here talks to the store."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, get_args

from celery_lease._errors import LeaseError, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_lease._store import Claim, Grant

logger = logging.getLogger("celery_lease")

OnLost = Literal["continue", "abort"]

current: ContextVar[Lease | None] = ContextVar("celery_lease.current", default=None)


def check_on_lost(value: str, where: str) -> None:
    """Refuse anything else than `continue` and `abort`."""
    if value not in get_args(OnLost):
        raise LeaseError(f"on_lost={value!r} of {where}: use 'continue' or 'abort'")


def current_lease() -> Lease:
    """The lease that the running task, or the surrounding `hold`, has.

    A thread that the body starts does not inherit it: hand the `Lease` over.

    Raises:
        LookupError: no lease is held here.
    """
    lease = current.get()
    if lease is None:
        raise LookupError(
            "no lease is held here; current_lease() works inside a leased task or `with hold(...)`"
        )
    return lease


class Lease:
    """The exclusive right to run one named job, for one term that renewing keeps.

    Attributes:
        name: the lease's name; its Redis key is `cron:{name}`.
        fence: integer that grows with every grant of that name. Put it into every write of the run,
            and let the data refuse an older one: that, and not the lease, is what protects the data.
        on_lost: what `check` does once the lease cannot be trusted.
    """

    def __init__(
        self,
        claim: Claim,
        grant: Grant,
        *,
        seconds: float,
        grace: float,
        sent_at: float,
        on_lost: OnLost = "continue",
        notify: Callable[[Lease], None] | None = None,
    ) -> None:
        self.name = claim.keys.name
        self.fence = grant.fence
        self.on_lost: OnLost = on_lost
        self.claim = claim
        self.grant = grant
        self._seconds = seconds
        # Trust ends a look before a takeover can happen: the taker-over counts the whole grace from a
        # moment after the last check that found us connected was sent.
        self._connected_for = grace - grace / 10
        self._deadline = self._connected_until = self._renewed_at = 0.0
        self._alive = False
        self.confirm(sent_at, alive=grant.alive)
        self._notify = notify
        self._lost = False
        self._interrupted = False

    @property
    def token(self) -> str:
        """Random, new at every acquire; the proof for renew and release. Never log it in full."""
        return self.claim.token

    @property
    def lost(self) -> bool:
        """Whether another owner was seen. Final."""
        return self._lost

    @property
    def suspect(self) -> bool:
        """Whether somebody may have taken the lease over, because the store has not confirmed it in time.

        Counted on the monotonic clock from before the last confirmed request was sent, so that neither
        a slow answer nor a changed clock can stretch it: from the last renewal for the lease, and, where
        the store would notice our death, from the last check that found us connected for the grace.
        A confirmed renewal ends it.
        """
        trusted_until = min(self._deadline, self._connected_until) if self._alive else self._deadline
        return not self._lost and time.monotonic() >= trusted_until

    def check(self) -> bool:
        """Whether the lease can be trusted right now. Local, without I/O; call it as often as you like.

        Under `on_lost="continue"` a False is for the body to act on, or not. Under `on_lost="abort"` the
        run ends here instead.

        Raises:
            LeaseLost: the lease is lost or suspect, and `on_lost` is `abort`.
            KeyboardInterrupt: Ctrl-C was pressed at the terminal that the run belongs to.
        """
        if self._interrupted:
            raise KeyboardInterrupt
        if not self._lost and not self.suspect:
            return True
        if self.on_lost == "abort":
            why = "another owner was seen" if self._lost else "the store has not confirmed it in time"
            raise LeaseLost(f"the lease {self.name!r} (fence {self.fence}) cannot be trusted: {why}")
        return False

    def confirm(self, sent_at: float, *, alive: bool) -> None:
        """A renewal sent at `sent_at` (monotonic seconds) was confirmed; `alive` as in `Grant`."""
        self._deadline = sent_at + self._seconds
        self._connected_until = sent_at + self._connected_for
        self._renewed_at = sent_at
        self._alive = alive

    def expect_answer(self, sent_at: float) -> None:
        """A renewal is about to be sent, and its answer may be lost.

        From its arrival on, the store may count on our connection, and give the lease away without it.
        """
        if not self._alive:
            self._connected_until = sent_at + self._connected_for
            self._alive = True

    def confirm_connected(self, sent_at: float, since: float) -> bool:
        """A check sent at `sent_at` found this process connected, as it has been `since` then.

        Returns:
            Whether that says something. A connection that is younger than the last confirmed renewal does
            not: there was a gap before it, in which somebody may have taken over, or begun to count the
            grace. Only a renewal tells.
        """
        if since > self._renewed_at:
            return False
        self._connected_until = sent_at + self._connected_for
        return True

    @property
    def alive(self) -> bool:
        """Whether the store would notice this process's death at once."""
        return self._alive

    def interrupt(self) -> None:
        """Let the next `check` end the run, which is between two items of its work."""
        self._interrupted = True

    def lose(self) -> None:
        """Another owner was seen; said once."""
        if self._lost:
            return
        # Whether the body goes on is its own choice (`on_lost`). The default is to go on: an overlap is
        # the lesser failure against the work stopping for hours, and fenced writes stay safe either way.
        self._lost = True
        logger.error(
            "%s: lease lost (fence %s): another owner was seen while the run was going on",
            self.name,
            self.fence,
        )
        if self._notify is not None:
            self._notify(self)

    def __repr__(self) -> str:
        trust = "lost" if self._lost else "suspect" if self.suspect else "held"
        return f"<Lease {self.name!r} fence={self.fence} {trust}>"
