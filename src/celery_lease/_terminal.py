"""A leased task carried out here, in somebody's terminal, under the very lease that a worker would take.

No broker takes part. Ctrl-C (or SIGTERM) lets the current item of work come to its end: the body's next
`Lease.check` is the end of it, or else the end of the pass. A second one ends it at once. Either way the
lease is given back.
"""

from __future__ import annotations

import signal
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from celery._state import _task_stack  # type: ignore[attr-defined]

from celery_lease._ledger import TERMINAL
from celery_lease._run import Run, counts_of
from celery_lease._task import RUN
from celery_lease._unguarded import UnguardedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery_lease._lease import Lease
    from celery_lease._task import LeasedTask


@dataclass
class Progress:
    """How far a run at a terminal is.

    Attributes:
        passes: that came to their end.
        worked: units of work done in them together; None if the job does not say.
        backlog: what the last one left; None if the job does not say.
        seconds: since the first pass began.
        stopped: why there is no further pass, once that is known.
        result: of the last pass.
    """

    passes: int = 0
    worked: int | None = None
    backlog: int | None = None
    seconds: float = 0.0
    stopped: str = ""
    result: Any = None

    @property
    def rate(self) -> float:
        """Units of work a second."""
        return (self.worked or 0) / self.seconds if self.seconds else 0.0

    def take(self, result: Any, seconds: float) -> None:
        """One more pass has come to its end."""
        counts, before = counts_of(result), self.backlog
        self.passes += 1
        self.seconds = seconds
        self.result = result
        self.backlog = counts.get("backlog", self.backlog)
        if "worked" in counts:
            self.worked = (self.worked or 0) + counts["worked"]
        self.stopped = _why_stop(counts, before)

    def counts(self) -> dict[str, int]:
        """What goes into the ledger."""
        counts = {"worked": self.worked, "backlog": self.backlog}
        return {name: count for name, count in counts.items() if count is not None}


def _why_stop(counts: dict[str, int], before: int | None) -> str:
    """Why another pass would be of no use; "" if it may be."""
    worked, backlog = counts.get("worked"), counts.get("backlog")
    if backlog is None:
        return "the job does not say what is left"
    if backlog == 0:
        return "nothing is left"
    if worked == 0 or (before is not None and backlog >= before):
        return f"the last pass made no progress, and {backlog} are left"
    return ""


class TerminalRun:
    """One run of a leased task at this terminal.

    Attributes:
        progress: see `Progress`; kept up to date.
        lease: as soon as it is held.
        outcome: how the run was recorded, "" before or if nobody confirmed it.
    """

    def __init__(
        self, task: LeasedTask, kwargs: dict[str, Any], *, guarded: bool = True, dry: bool = False
    ) -> None:
        self.progress = Progress()
        self._task = task
        self._kwargs = kwargs
        self._outcome = "dry_run" if dry else "ran"
        self._stop = False
        self._request = {"args": (), "kwargs": kwargs, "hostname": TERMINAL + socket.gethostname()}
        with self._pushed():
            self._run = task.new_run(task.request, (), kwargs, Run if guarded else UnguardedRun)
        self._run.unlimited()  # nobody enforces limits here, but somebody watches

    @property
    def lease(self) -> Lease | None:
        return self._run.lease

    @property
    def outcome(self) -> str:
        return self._run.outcome

    def open(self) -> None:
        """Take the lease; raises as `Run.open`."""
        self._run.open()

    def execute(self, *, drain: bool, after_pass: Callable[[Progress], None]) -> Progress:
        """Carry the body out, once or (`drain`) until another pass would be of no use, and release.

        Raises:
            KeyboardInterrupt: interrupted in the first pass.
            Exception: what the body raises.
        """
        with self._pushed(**{RUN: self._run}):
            self._run.execute(partial(self._passes, drain, after_pass), self._outcome)
        return self.progress

    def interrupt(self) -> None:
        """End the run after the current item of work."""
        self._stop = True
        if self._run.lease is not None:
            self._run.lease.interrupt()

    @contextmanager
    def interruptible(self, on_first: Callable[[], None]) -> Iterator[None]:
        """Ctrl-C and SIGTERM interrupt the run from now on; the second one ends it at once."""

        def handle(_number: int, _frame: object) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self.interrupt()
            on_first()

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _passes(self, drain: bool, after_pass: Callable[[Progress], None]) -> dict[str, int]:
        began = time.monotonic()
        while True:
            try:
                result = self._task.run(**self._kwargs)
            except KeyboardInterrupt:
                if self.progress.passes:
                    self.progress.stopped = "interrupted"
                    break
                raise
            self.progress.take(result, time.monotonic() - began)
            if self._stop:
                self.progress.stopped = "interrupted"
            after_pass(self.progress)
            if not drain or self.progress.stopped:
                break
        return self.progress.counts() if self._outcome == "ran" else {"worked": 0}

    @contextmanager
    def _pushed(self, **more: Any) -> Iterator[None]:
        """The task's request, as Celery makes one for a plain call."""
        _task_stack.push(self._task)
        self._task.push_request(**self._request, **more)
        try:
            yield
        finally:
            self._task.pop_request()
            _task_stack.pop()
