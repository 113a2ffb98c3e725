"""A beat that can be started twice, and sends each slot of the schedule once.

    celery -A proj beat -S celery_lease.beat:LeasedScheduler      # or the setting `beat_scheduler`

or over another scheduler, such as django-celery-beat's:

    class Scheduler(LeasedSchedulerMixin, django_celery_beat.schedulers.DatabaseScheduler): ...

What holds
    * Of all beats on one store, the one that holds the lease `beat` sends; the others stand by. One takes
      over at once when the active one is stopped, and after the grace (10 s) when it is killed.
    * The slots of an entry lie on the grid of its schedule (`_slots.py`), on every machine the same. Each
      message says in its headers which slot of which entry it is for, and a leased task runs a slot once,
      however many messages arrive for it.
    * The last slot sent of each entry is in the store. What was due while no beat was active is sent by the
      next one, as far as it has not expired; of what does not expire, the latest slot, as Celery does.
    * A message for a leased task expires at the entry's next slot, or after the seconds (`expires`) that
      the entry or the task says, counted from the slot. So a backlog ends as one run for now, and the rest
      is revoked. Messages for other tasks are only stamped.
    * A message that could not be sent is sent a little later. There is no schedule file to lose.

What does not
    * A slot may be sent twice, if a beat dies, or is paused for the grace, between sending and saying so. A
      leased task does it once; for another task that is up to the task.
    * Without the store nothing is sent, for leased tasks or others: a beat that cannot tell whether another
      one took over must assume it. It catches up as soon as the store is back.
    * A beat believes its machine's clock. One that sends slots of the future has them refused as done when
      they come.
    * An active beat that is frozen, or whose machine loses power, is replaced when its lease ends (5 min).
    * Two entries that share a lease and are due at one instant do not overlap: one runs, the other skips.
    * One store and `lease_key_prefix` has one active beat. Give another project a prefix of its own, or its
      schedule never runs.

An interval is kept since 1970 and not since the start of the beat (`relative` is meaningless), and below
a second a leased task sees one slot a second. A task that the beat has not imported counts as not leased.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from celery.beat import Scheduler
from celery.utils.time import maybe_make_aware

from celery_lease._errors import LeaseError
from celery_lease._jobs import BEAT
from celery_lease._leadership import LONG_AGO, Leadership, Sent, epoch_of
from celery_lease._settings import refuse_unknown_settings
from celery_lease._slots import SECOND, latest_slot, next_slot, slots
from celery_lease._store import store_of
from celery_lease._task import ENTRY_HEADER, SLOT_HEADER, LeasedTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery import Celery

    from celery_lease._lease import Lease

    _Base = Scheduler
else:
    _Base = object

__all__ = ["LeasedScheduler", "LeasedSchedulerMixin"]

logger = logging.getLogger("celery_lease")

#: How long an entry is left alone after an error.
_REST_SECONDS = 5.0

#: What ends a beat, and how long it is held back for the sake of a message that is being sent.
_HELD = (signal.SIGTERM, signal.SIGINT)
_HOLD_SECONDS = 2.0


class LeasedSchedulerMixin(_Base):
    """Put in front of a scheduler class: which entries there are is that class's business, when is ours."""

    def __init__(self, app: Celery, *args: Any, **kwargs: Any) -> None:
        refuse_unknown_settings(app)
        for task in app.tasks.values():
            if isinstance(task, LeasedTask) and (task.lease or task.name) == BEAT:
                raise LeaseError(
                    f"the lease {BEAT!r} of task {task.name!r} is beat's own; give it another name"
                )
        self._leadership = Leadership(app)
        self._sent = Sent(app)
        self._resting: dict[str, float] = {}
        self._was_applied = False
        self._is_closed = False
        super().__init__(app, *args, **kwargs)

    def tick(self, *_args: Any, **_kwargs: Any) -> float:
        """Send what is due, if this is the active beat; the seconds until the next look."""
        if self._is_closed:
            raise SystemExit  # Celery's handler raised it before, in a place where it was swallowed
        lease = self._leadership.lease()
        settings = store_of(self.app).settings
        if lease is None or not self._sent.knows_the_past(lease):
            return settings.look_every / 2
        waits = [self._serve(entry, lease) for entry in list(self.schedule.values())]
        self._sent.write()
        return max(min([settings.grace, self.max_interval or settings.grace, *waits]), 0.0)

    def apply_async(self, entry: Any, *args: Any, **kwargs: Any) -> Any:
        """Send, and remember that it worked: `apply_entry` keeps an error to itself."""
        result = super().apply_async(entry, *args, **kwargs)
        self._was_applied = True
        return result

    def close(self) -> None:
        """Stop being the active beat, at once. Celery calls this from its handler of SIGTERM, too."""
        self._is_closed = True
        try:
            self._sent.write()
            self._leadership.resign()
        finally:
            super().close()

    def _serve(self, entry: Any, lease: Lease) -> float:
        """Send what is due of one entry; the seconds until there may be more."""
        name, resting = entry.name, self._resting.get(entry.name, 0.0) - time.monotonic()
        if resting > 0:
            return resting
        try:
            may_go, seconds = self._may_go(entry)
            if not may_go:
                return seconds
            for slot in self._due(entry, self._now()):
                _ = self.producer  # may have to wait for the broker; the lease is looked at after that
                if not lease.check():
                    return 0.0
                successor = self._send(entry, slot)
                if successor is None:
                    return self._rest(name)
                entry = successor
            upcoming = next_slot(entry.schedule, self._sent.last(entry))
        except Exception:
            # One entry that cannot be served must not stop the others.
            logger.exception("beat: entry %r cannot be served", name)
            return self._rest(name)
        return _REST_SECONDS if upcoming is None else (upcoming - self._now()).total_seconds()

    def _rest(self, name: str) -> float:
        self._resting[name] = time.monotonic() + _REST_SECONDS
        return _REST_SECONDS

    def _now(self) -> datetime:
        return self.app.now().astimezone(UTC)

    def _may_go(self, entry: Any) -> tuple[bool, float]:
        """What the entry says, its last run aside: django-celery-beat's have a start, an end, a switch."""
        last, entry.last_run_at = entry.last_run_at, LONG_AGO
        try:
            return self.is_due(entry)
        finally:
            entry.last_run_at = last

    def _due(self, entry: Any, now: datetime) -> list[datetime]:
        """The slots to send, oldest first."""
        schedule, last = entry.schedule, self._sent.last(entry)
        first = next_slot(schedule, last)
        if first is None or first > now:
            return []
        seconds = _seconds(self._expires(entry)) if self._is_leased(entry) else None
        if seconds is not None:
            due = list(slots(schedule, max(last, now - seconds), now))
        else:
            due = [slot for slot in [latest_slot(schedule, last, now)] if slot]
        if not due or due[0] - first >= SECOND:
            logger.warning("beat: slots of %r, from %s on, were missed and are over", entry.name, first)
        if not due:
            self._sent.note(entry.name, now)
        return due

    def _send(self, entry: Any, slot: datetime) -> Any | None:
        """Send one message; the entry's successor, or None if that did not work."""
        with _undisturbed():
            # Celery changes the options that it is given, and entries of django-celery-beat cannot be copied.
            options, entry.options = entry.options, self._stamped(entry, slot)
            self._was_applied = False
            try:
                self.apply_entry(entry, producer=self.producer)
            finally:
                entry.options = options
            if not self._was_applied:
                return None
            self._sent.note(entry.name, slot)
            self._sent.write()
            return self.reserve(entry)

    def _stamped(self, entry: Any, slot: datetime) -> dict[str, Any]:
        options = dict(entry.options or {})
        stamps = {SLOT_HEADER: epoch_of(slot), ENTRY_HEADER: entry.name}
        options["headers"] = {**(options.get("headers") or {}), **stamps}
        if self._is_leased(entry):
            options["expires"] = self._expiry(entry, slot)
        return options

    def _expiry(self, entry: Any, slot: datetime) -> Any:
        """Until when a message for this slot is worth running."""
        given, following = self._expires(entry), next_slot(entry.schedule, slot)
        seconds = _seconds(given)
        if seconds is not None:
            return slot + seconds
        if isinstance(given, datetime) and following is not None:
            # The end of the entry, as django-celery-beat has it; that is no reason to run a slot late.
            return min(maybe_make_aware(given), following)
        return given or following

    def _is_leased(self, entry: Any) -> bool:
        return isinstance(self.app.tasks.get(entry.task), LeasedTask)

    def _expires(self, entry: Any) -> Any:
        """What the entry says, else its task: seconds, an instant, or None."""
        task: Any = self.app.tasks.get(entry.task)
        return (entry.options or {}).get("expires") or task.expires


class LeasedScheduler(LeasedSchedulerMixin, Scheduler):
    """Celery's `beat_schedule`, without a file."""

    def setup_schedule(self) -> None:
        """Take the entries over from the configuration, then Celery's own, which the other order drops."""
        self.merge_inplace(self.app.conf.beat_schedule)
        self.install_default_entries(self.schedule)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold SIGTERM and SIGINT back, for two seconds at most, until a message is sent and remembered.

    Celery's handler would close the connection in the middle of it: the message is sent or not, nobody
    knows, and the exit is lost in the error that follows.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    main, held = threading.main_thread().ident, dict[int, threading.Timer]()
    before: dict[int, Any] = {number: signal.getsignal(number) or signal.SIG_DFL for number in _HELD}

    def hold(number: int, _frame: Any) -> None:
        signal.signal(number, before[number])  # the next one is not held back
        held[number] = threading.Timer(_HOLD_SECONDS, signal.pthread_kill, [main, number])
        held[number].daemon = True
        held[number].start()

    for number in before:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, again in held.items():
            again.cancel()
            signal.raise_signal(number)


def _seconds(expires: Any) -> timedelta | None:
    return timedelta(seconds=expires) if isinstance(expires, int | float) else None
