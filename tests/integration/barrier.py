"""The test's side of the barrier that `jobs.patient` waits at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.jobs import ARRIVED, OPEN

if TYPE_CHECKING:
    from redis import Redis


class Barrier:
    """Lets a test know that a job is in its body, and lets the job go on."""

    def __init__(self, store: Redis) -> None:
        self._store = store

    def arrival(self, seconds: float) -> int | None:
        """Return the fence of the next run that arrives, or None if none does in that time."""
        arrived = self._store.blpop([ARRIVED], timeout=seconds)
        return None if arrived is None else int(arrived[1])

    def wait_for_arrival(self) -> int:
        """Return the fence of the next run that arrives."""
        fence = self.arrival(seconds=20)
        if fence is None:
            raise TimeoutError("no job arrived")
        return fence

    def open(self) -> None:
        """Let one waiting run end."""
        self._store.rpush(OPEN, "go")
