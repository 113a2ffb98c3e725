"""Writes histories (`tests.support.history`) from many processes, so that a SIGKILL loses nothing."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from celery_lease import _store
from celery_lease._errors import StoreUnavailable
from celery_lease._store import Grant, Refusal, Renewal, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from celery_lease import Lease
    from celery_lease._store import Claim

T = TypeVar("T")

#: So much of a token is enough to tell tokens apart.
_TOKEN = 8


class Recorder:
    """Appends events to one file per process, each with one call to the kernel."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own = (0, -1)

    def record(self, kind: str, name: str, **about: Any) -> None:
        """Write down an event of this very moment, unless `at` and `until` say otherwise."""
        now = time.monotonic()
        line = json.dumps({"kind": kind, "name": name, "at": now, "until": now, **about}) + "\n"
        os.write(self._own_file(), line.encode())

    @contextmanager
    def around(self, kind: str, name: str, **about: Any) -> Iterator[None]:
        """Write down an event that happens at some moment of what is inside."""
        at = time.monotonic()
        yield
        self.record(kind, name, at=at, until=time.monotonic(), **about)

    def of(self, lease: Lease) -> Callable[..., None]:
        """A function that records what happens to the holder of a lease."""
        return partial(self.record, name=lease.name, fence=lease.fence, token=lease.token[:_TOKEN])

    def sample(self, lease: Lease) -> str:
        """Ask a lease whether it can be trusted, and write down the answer."""
        at = time.monotonic()
        said = "trusted" if lease.check() else "lost" if lease.lost else "suspect"
        self.of(lease)("sample", at=at, until=time.monotonic(), said=said)
        return said

    def _own_file(self) -> int:
        pid, file = self._own
        if pid != os.getpid():
            # Two threads may each open one here; every file of the directory is read.
            path = self._directory / f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}.jsonl"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
            self._own = (os.getpid(), file)
        return file


def record_store_calls(recorder: Recorder) -> None:
    """From now on, also write down what this process asks of the lease store, and what is answered."""

    class RecordedStore(Store):
        def acquire(self, claim: Claim, *, patient: bool = False) -> Grant | Refusal:
            tell = partial(_tell, recorder, claim, time.monotonic())
            answer = _answer(partial(super().acquire, claim, patient=patient), partial(tell, "refused"))
            if isinstance(answer, Grant):
                tell("granted", "", fence=answer.fence)
            else:
                tell("refused", answer.answer)
            return answer

        def renew(self, claims: Sequence[tuple[Claim, Grant]]) -> list[Renewal | StoreUnavailable]:
            at = time.monotonic()
            answers = super().renew(claims)
            for (claim, grant), answer in zip(claims, answers, strict=True):
                said = answer.answer if isinstance(answer, Renewal) else "unavailable"
                _tell(recorder, claim, at, "renewed", said, fence=grant.fence)
            return answers

        def release(self, claim: Claim, grant: Grant, outcome: str, facts: Any, *, late: bool = False) -> str:
            tell = partial(_tell, recorder, claim, time.monotonic(), "released", fence=grant.fence)
            recorded = _answer(partial(super().release, claim, grant, outcome, facts, late=late), tell)
            tell(recorded)
            return recorded

    _store.Store = RecordedStore  # type: ignore[misc]


def _answer(call: Callable[[], T], tell: Callable[[str], None]) -> T:
    try:
        return call()
    except StoreUnavailable:
        tell("unavailable")
        raise


def _tell(recorder: Recorder, claim: Claim, at: float, kind: str, said: str, *, fence: int = 0) -> None:
    recorder.record(
        kind,
        claim.keys.name,
        at=at,
        until=time.monotonic(),
        task_id=claim.holder.get("task_id", ""),
        fence=fence,
        token=claim.token[:_TOKEN],
        said=said,
    )
