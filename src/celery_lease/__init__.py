"""Renewing Redis leases for Celery tasks that must never overlap, and skips that show as skips.

    from celery_lease import leased_task

    @leased_task(name="curation")
    def curate():
        ...

What holds
    * While the store keeps its data, two runs of one name never both have a lease they may trust.
    * A run keeps its lease for as long as it lives, however long the job takes, because it renews it.
      A run that died leaves its connection, and its name is free after a grace of ten seconds.
    * A run that could not get the lease did not enter its body and is not a success: it ends in the
      state `SKIPPED`, in the result backend and in Flower, with the reason and the holder.
    * No store, no run: `lock_unavailable`, within five seconds, also when the store is frozen.
    * Once a result is visible, the lease is free: a chain of a job after itself never skips itself.

What does not
    * A lease is not a mutex over your data. A process that is paused past its lease, or a store that
      loses its data, can make two runs overlap in time. Every grant has a `fence`, a number that only
      grows; write it with your data and refuse an older one. Then an overlap cannot corrupt anything.
    * At most one run at a time is not exactly one run: a killed run is not repeated by the lease.

The states of one lease, as a run sees it:

              acquire                    renewal unconfirmed for a whole lease
    free ───────────────▶ held ────────────────────────────────────▶ suspect
     ▲                    │  ▲                                         │  │
     │      release       │  └──────────── renewal confirmed ──────────┘  │
     ├────────────────────┘                                               │
     │                      another owner was seen                        ▼
     └──────────────────────────────────────────────────────────────── lost

What can fail, and what it costs:

    the body raises, retries, is limited    the lease is free at the end of the body
    the process is killed                   taken over after ten seconds, on any host
    one renewal fails                       nothing: it is repeated well inside the lease
    the key is deleted, or the store
    restarts empty                          retaken with the same fence, if nobody came in between
    another owner came in between           `lost`: said as an ERROR, an event and in the ledger; the
                                            run goes on unless it asks (`Lease.check`) under `abort`
    the store is down at the start          `SKIPPED`/`lock_unavailable`; the body does not run
    the store is down at the end            the release is repeated until it is confirmed

Reading on: `_task.py` (what Celery calls), `_run.py` (one run from open to close), `_lease.py` (what a
body sees), `_renewer.py`, `_store.py`, and one file per operation in `lua/`.
"""

from celery_lease import _presence as _presence  # connects its signals
from celery_lease import _startup as _startup  # as does this
from celery_lease._errors import LeaseError, LeaseLost, Skipped
from celery_lease._lease import Lease, current_lease
from celery_lease._run import hold
from celery_lease._states import SKIPPED
from celery_lease._task import LeasedTask, leased_task

__all__ = [
    "SKIPPED",
    "Lease",
    "LeaseError",
    "LeaseLost",
    "LeasedTask",
    "Skipped",
    "current_lease",
    "hold",
    "leased_task",
]
