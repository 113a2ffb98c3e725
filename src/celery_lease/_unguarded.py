"""A run without a lease, because an operator said so (`--no-lock`).

It has a fence of its own, newer than any before, so that the data refuses the writes of whichever run is the
older one. In the ledger it is `unguarded`, and real.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from celery_lease._errors import StoreUnavailable
from celery_lease._lease import Lease
from celery_lease._pings import ping
from celery_lease._run import Run, utc_now
from celery_lease._store import Grant

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("celery_lease")


class UnguardedRun(Run):
    """Never skipped, never renewed. Without the store, too; its record is then missing."""

    def open(self) -> Lease:
        """Go ahead, with a fence from the store, or by this machine's clock if that does not answer."""
        try:
            grant = self._store.fence(self.name)
        except StoreUnavailable as error:
            logger.warning("%s: no fence from the store (%s); the clock gives one", self.name, error)
            grant = Grant(time.time_ns() // 1000, utc_now())
        self._grant = grant
        self.lease = Lease(
            self._claim, grant, seconds=math.inf, grace=0, sent_at=time.monotonic(), on_lost=self._on_lost
        )
        return self.lease

    def _release(self, lease: Lease, outcome: str, facts: Mapping[str, Any]) -> None:
        self.outcome = "unguarded" if outcome == "ran" else outcome
        ping(self._store.settings, lease.name, self.outcome)
        try:
            self._store.unguarded(lease.claim, lease.grant, self.outcome, facts)
        except StoreUnavailable as error:
            logger.error("%s: this run is missing in the ledger (%s)", lease.name, error)  # noqa: TRY400 - expected
