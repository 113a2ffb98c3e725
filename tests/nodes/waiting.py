"""Wait for events, never for time."""

import time
from collections.abc import Callable


def wait_until(event: Callable[[], object], seconds: float = 10) -> None:
    """Return once the event is true; fail after the deadline."""
    deadline = time.monotonic() + seconds
    while not event():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {event}")
        time.sleep(0.01)
