"""The one thread per process that keeps this process's leases alive.

Started by the first lease and therefore after any fork; a daemon, so it never delays an exit; ended
after a minute without work. All leases that are due go out in one round trip. A failed renewal is
survivable: it is tried again with backoff, well inside the lease. The thread itself never dies of one.

What the store did not confirm at the end of a run (a release, the withdrawal of an unanswered acquire)
is left here too, and tried again every second until it is confirmed.

Runs talk to the thread through a queue and never share a lock with it: a soft time limit may strike
inside any call here, and a lock that it leaves locked would stop every renewal of the process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from celery_lease._errors import StoreUnavailable
from celery_lease._settings import RENEW_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_lease._lease import Lease
    from celery_lease._store import Store

logger = logging.getLogger("celery_lease")

#: Waits after a failed renewal: doubled from the first to the last of these, or less for a short lease.
_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 10.0

#: Leases due within this share of their interval go along in the round trip of the first.
_BATCH_SHARE = 0.1

#: Between two attempts at what the store has not confirmed.
_SETTLE_EVERY_SECONDS = 1.0

#: Unconfirmed ends kept by a process; beyond it the oldest is given up, and its lease ends by itself.
_MOST_UNSETTLED = 64

_IDLE_SECONDS = 60.0


@dataclass
class _Entry:
    """A lease under renewal. `due` and `until` are monotonic seconds."""

    lease: Lease
    store: Store
    every: float
    due: float
    until: float
    failures: int = 0

    def back_off(self, now: float) -> None:
        wait = min(_FIRST_RETRY_SECONDS * 2**self.failures, _LAST_RETRY_SECONDS, self.every / 2)
        self.failures += 1
        self.due = now + wait


class Renewer:
    """Keeps leases alive until they are removed, lost, or past their hard time limit."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[Callable[[_Work], None]] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease, store: Store, runs_at_most: float | None = None) -> None:
        """Renew `lease` from now on.

        Args:
            lease: freshly acquired.
            store: where it lives.
            runs_at_most: the task's own hard time limit in seconds. Past it the lease is left to end,
                in every pool, because threads and gevent do not enforce limits.
        """
        every = store.settings.seconds * RENEW_SHARE
        now = time.monotonic()
        until = now + runs_at_most if runs_at_most else float("inf")
        entry = _Entry(lease, store, every, due=now + every, until=until)
        self._tell(lambda work: work.take(entry))

    def remove(self, lease: Lease) -> None:
        """Stop renewing `lease`. A renewal already under way cannot revive it: the store refuses that."""
        self._tell(lambda work: work.drop(lease))

    def settle(self, action: Callable[[], object]) -> None:
        """Repeat `action` every second until it stops raising `StoreUnavailable`."""
        self._tell(lambda work: work.unsettled.append(action))

    def _tell(self, message: Callable[[_Work], None]) -> None:
        self._inbox.put(message)
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="celery-lease-renewer", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        work = _Work()
        while True:
            try:
                self._read(work)
                if work.is_over() and self._may_end():
                    return
                work.renew_due()
                work.settle_due()
            except Exception:
                # Dying here would let every lease of the process run out in silence, which is the worse
                # failure; the pause keeps a lasting error from spinning.
                logger.exception("the renewer met an unexpected error and goes on")
                time.sleep(_FIRST_RETRY_SECONDS)

    def _read(self, work: _Work) -> None:
        """Take in what runs have said; wait for that until something is due."""
        try:
            message = self._inbox.get(timeout=work.seconds_until_due())
            while True:
                message(work)
                message = self._inbox.get_nowait()
        except Empty:
            return

    def _may_end(self) -> bool:
        with self._starting:
            if not self._inbox.empty():
                return False
            self._thread = None
            return True


class _Work:
    """What the thread has to do. Only the thread touches it."""

    def __init__(self) -> None:
        self.unsettled: deque[Callable[[], object]] = deque(maxlen=_MOST_UNSETTLED)
        self._entries: dict[str, _Entry] = {}
        self._settle_at = 0.0
        self._idle_since = time.monotonic()

    def take(self, entry: _Entry) -> None:
        self._entries[entry.lease.token] = entry

    def drop(self, lease: Lease) -> None:
        self._entries.pop(lease.token, None)

    def seconds_until_due(self) -> float:
        dues = [entry.due for entry in self._entries.values()]
        if self.unsettled:
            dues.append(self._settle_at)
        return max(min(dues, default=time.monotonic() + _IDLE_SECONDS) - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        now = time.monotonic()
        if self._entries or self.unsettled:
            self._idle_since = now
        return now - self._idle_since >= _IDLE_SECONDS

    def renew_due(self) -> None:
        now = time.monotonic()
        if not any(entry.due <= now for entry in self._entries.values()):
            return
        by_store = defaultdict(list)
        for entry in list(self._entries.values()):
            if now >= entry.until:
                self._give_up(entry)
            elif entry.due <= now + entry.every * _BATCH_SHARE:
                by_store[entry.store].append(entry)
        for store, entries in by_store.items():
            sent_at = time.monotonic()
            answers = store.renew([(e.lease.claim, e.lease.grant) for e in entries])
            for entry, answer in zip(entries, answers, strict=True):
                self._take_answer(entry, answer, sent_at)

    def settle_due(self) -> None:
        if not self.unsettled or time.monotonic() < self._settle_at:
            return
        try:
            while self.unsettled:
                self.unsettled[0]()
                self.unsettled.popleft()
        except StoreUnavailable:
            self._settle_at = time.monotonic() + _SETTLE_EVERY_SECONDS

    def _take_answer(self, entry: _Entry, answer: str | StoreUnavailable, sent_at: float) -> None:
        name = entry.lease.name
        if isinstance(answer, StoreUnavailable):
            now = time.monotonic()
            entry.back_off(now)
            logger.warning("%s: renewal failed (%s); trying again in %.1f s", name, answer, entry.due - now)
            return
        entry.failures = 0
        entry.due = sent_at + entry.every
        if answer in ("renewed", "retaken"):
            entry.lease.confirm(sent_at)
            if answer == "retaken":
                logger.warning("%s: the lease was gone and free, and has been retaken", name)
            return
        self.drop(entry.lease)
        if answer == "lost":
            entry.lease.lose()

    def _give_up(self, entry: _Entry) -> None:
        self.drop(entry.lease)
        logger.error(
            "%s: the run is past its hard time limit and goes on; its lease is no longer renewed",
            entry.lease.name,
        )


renewer = Renewer()


def _forget_after_fork() -> None:
    # The parent's leases are the parent's to renew, and its thread does not exist here.
    renewer.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget_after_fork)
