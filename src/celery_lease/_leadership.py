"""Which of several beats is the active one, and what the beats before it have sent."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from celery.utils.time import maybe_make_aware

from celery_lease._errors import StoreUnavailable
from celery_lease._jobs import BEAT
from celery_lease._run import Run
from celery_lease._slots import SECOND
from celery_lease._store import Refusal, store_of

if TYPE_CHECKING:
    from celery import Celery

    from celery_lease._lease import Lease

logger = logging.getLogger("celery_lease")

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Leadership:
    """The lease that makes a beat the active one. Asking for it never waits for another beat."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._run: Run | None = None
        self._said = ""

    def lease(self) -> Lease | None:
        """The lease while it can be trusted; asks for it, once, when this beat does not have it."""
        if self._run is None:
            self._run = Run(store_of(self._app), BEAT, {"worker": "beat"})
        lease = self._run.lease or self._ask(self._run)
        if lease is None:
            return None
        if lease.lost:
            self._run.close("lost")
            self._run = None
            self._say(logging.WARNING, "standby, because another beat took over")
            return None
        if not lease.check():
            self._say(logging.WARNING, "on hold until the store confirms the lease")
            return None
        self._say(logging.INFO, "active", f" (fence {lease.fence})")
        return lease

    def resign(self) -> None:
        """Free the lease for the next beat."""
        if self._run is not None:
            self._run.close("ran")
            self._run = None

    def _ask(self, run: Run) -> Lease | None:
        try:
            answer = run.try_open()
        except StoreUnavailable as error:
            self._say(logging.ERROR, "on hold, because the lease store does not answer", f" ({error})")
            return None
        if not isinstance(answer, Refusal):
            return answer
        holder = answer.holder
        who = (
            f"{holder.get('host')} (pid {holder.get('pid')}), since {holder.get('since')}" if holder else "?"
        )
        self._say(logging.INFO, "standby", f"; active is {who}")
        return None

    def _say(self, level: int, state: str, more: str = "") -> None:
        """One line when the state changes."""
        if state != self._said:
            logger.log(level, "beat: %s%s", state, more)
            self._said = state


class Sent:
    """Up to which slot each entry has been dealt with: in memory, and in the store for the next beat."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._fence = 0
        self._last: dict[str, datetime] = {}
        self._unwritten: dict[str, int] = {}

    def knows_the_past(self, lease: Lease) -> bool:
        """Whether it is known what the beats before have sent; asks for it, once for each term."""
        if lease.fence != self._fence and self._exchange():
            self._fence = lease.fence
        return lease.fence == self._fence

    def last(self, entry: Any) -> datetime:
        """The last slot that has been dealt with. Of an entry seen for the first time: from now on."""
        if entry.name not in self._last:
            self.note(entry.name, maybe_make_aware(entry.last_run_at).astimezone(UTC))
        return self._last[entry.name]

    def note(self, name: str, slot: datetime) -> None:
        """The entry has been dealt with up to `slot`."""
        self._last[name] = slot
        self._unwritten[name] = epoch_of(slot)

    def write(self) -> None:
        """Tell the store, as far as it does not know; what it does not take now it is told again."""
        if self._unwritten:
            self._exchange()

    def _exchange(self) -> bool:
        store = store_of(self._app)
        try:
            known = store.sent(store.keys(BEAT), self._unwritten)
        except StoreUnavailable as error:
            logger.warning("beat: what was sent could not be exchanged with the store (%s)", error)
            return False
        self._unwritten = {}
        for name, slot in known.items():
            if name not in self._last or slot > epoch_of(self._last[name]):
                # The store knows whole seconds: the slot was somewhere in this one.
                self._last[name] = LONG_AGO + timedelta(seconds=slot) + SECOND - timedelta.resolution
        return True


def epoch_of(slot: datetime) -> int:
    """The slot as it goes into messages and into the store: whole seconds since 1970."""
    return int(slot.timestamp())
