"""Starting a thread where a soft time limit may strike."""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from celery_lease._threads import start


class StruckError(Exception):
    """What a soft time limit raises, wherever the main thread is."""


class Struck(threading.Thread):
    """The limit strikes in the middle of its start."""

    def start(self) -> None:
        signal.raise_signal(signal.SIGUSR1)
        super().start()


@pytest.fixture
def _limits() -> Iterator[None]:
    def strike(*_: Any) -> None:
        raise StruckError

    before = signal.signal(signal.SIGUSR1, strike)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_limits")
def test_a_limit_that_strikes_in_a_start_waits_until_the_thread_runs() -> None:
    ran = threading.Event()
    thread = Struck(target=ran.set)
    with pytest.raises(StruckError):
        start(thread)
    thread.join(5)
    assert ran.is_set()


@pytest.mark.usefixtures("_limits")
def test_later_limits_strike_as_before() -> None:
    start(threading.Thread(target=lambda: None))
    with pytest.raises(StruckError):
        signal.raise_signal(signal.SIGUSR1)
