"""The watchdog: what the schedule promised, against what was done. It alerts; it never runs anything.

    @app.task(name="watchdog", ignore_result=True)     # a plain task, in `beat_schedule` every minute
    def watch():
        patrol(app)

What holds
    * Each alert is said once when it opens, once a day while it lasts, and once when it is over, however many
      watchdogs there are. What could not be sent is tried again by the next patrol.
    * Everything is judged from the store: the ledgers, the leases, the schedule, and what workers announced.
      So a second watchdog in another process, such as the web app's `/healthz`, sees what a dead worker
      cannot report.
    * A schedule that nobody serves is overdue from absence alone.

What does not
    * Expectations are read from `beat_schedule`. Entries that live in a database are not known here.
    * Without the store nothing can be judged: `patrol` raises. The metric `celery_lease_up` tells of that.
    * A watchdog that nobody calls says nothing. Let something outside call `/healthz`.

The rules are in `_watchdog.py`.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from celery_lease._alerts import report
from celery_lease._errors import StoreUnavailable
from celery_lease._expectations import Expectation, leased, read_expectations
from celery_lease._ledger import Ledger
from celery_lease._settings import RENEW_SHARE
from celery_lease._store import store_of
from celery_lease._watchdog import Evidence, Finding, Limits, judge, missed_slots, unregistered

if TYPE_CHECKING:
    from celery import Celery

    from celery_lease._store import Store

__all__ = ["Finding", "patrol", "watch"]

logger = logging.getLogger("celery_lease")

#: An entry that was missing so long in the schedule counts as new when it comes back.
_GAP_SECONDS = 3600.0

#: Run records that a patrol looks at per job.
_RECORDS = 200


def patrol(app: Celery) -> list[Finding]:
    """Look at every job, and alert; all that is wrong.

    Raises:
        LeaseError: the store does not answer, or a setting is wrong.
    """
    findings = watch(app)
    report(app, findings)
    return findings


def watch(app: Celery) -> list[Finding]:
    """Look at every job, without alerting; all that is wrong.

    What is found on the way is written down: runs that nobody reported the end of, slots without a trace.

    Raises:
        LeaseError: the store does not answer, or a setting is wrong.
    """
    return _Watch(app).findings()


class _Watch:
    """One look at everything."""

    def __init__(self, app: Celery) -> None:
        self._store: Store = store_of(app)
        self._ledger = Ledger(self._store)
        self._expectations = _expectations(app)
        now, since = self._store.seen((each.entry for each in self._expectations), _GAP_SECONDS)
        self._now = datetime.fromtimestamp(now, UTC)
        self._first_seen = {entry: datetime.fromtimestamp(at, UTC) for entry, at in since.items()}

    def findings(self) -> list[Finding]:
        by_lease = leased(self._expectations)
        found = self._unregistered()
        for name in sorted({*self._ledger.names(), *by_lease}):
            found += self._guarded(name, by_lease.get(name))
        return found

    def _unregistered(self) -> list[Finding]:
        registered = self._store.registered()
        found = (
            unregistered(each, registered, self._first_seen[each.entry], self._now)
            for each in self._expectations
        )
        return [finding for finding in found if finding]

    def _guarded(self, name: str, expectation: Expectation | None) -> list[Finding]:
        try:
            return self._look(name, expectation)
        except StoreUnavailable:
            raise
        except Exception as error:
            # One job that cannot be judged must not hide the others, nor itself.
            logger.exception("%s: the watchdog cannot judge this job", name)
            return [Finding(name, "unreadable", f"its ledger cannot be judged ({type(error).__name__})")]

    def _look(self, name: str, expectation: Expectation | None) -> list[Finding]:
        self._close_abandoned(name)
        evidence = self._evidence(name, expectation)
        judged, missed = missed_slots(evidence, self._now)
        if expectation is not None and judged is not None:
            slots = [int(slot.timestamp()) for slot in missed]
            per_argument = expectation.per_argument
            self._store.judge(name, int(judged.timestamp()), slots, per_argument=per_argument)
            if missed:
                evidence = self._evidence(name, expectation)
        settings = self._store.settings
        return judge(evidence, Limits(settings.alert_after_skips, settings.seconds), self._now)

    def _close_abandoned(self, name: str) -> None:
        settings = self._store.settings
        self._store.abandon(
            name,
            # By then a living run has taken back a lease that somebody deleted.
            leaseless_seconds=settings.seconds * RENEW_SHARE + settings.grace,
            unconnected_seconds=settings.grace,
        )

    def _evidence(self, name: str, expectation: Expectation | None) -> Evidence:
        records = self._ledger.history(name, _RECORDS)
        return Evidence(
            state=self._ledger.state(name),
            records=records,
            is_all=len(records) < _RECORDS,
            expectation=expectation,
            first_seen=self._first_seen[expectation.entry] if expectation else None,
        )


def _expectations(app: Celery) -> list[Expectation]:
    expectations = read_expectations(app)
    if all(each.is_known for each in expectations):
        return expectations
    app.loader.import_default_modules()  # a process that is no worker may not have imported them yet
    return read_expectations(app)
