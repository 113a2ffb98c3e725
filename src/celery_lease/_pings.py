"""Dead-man's switches: an address that is called after every real run, and raises the alarm when it is not.

Never after a skip: a schedule that only skips has to go silent. The call is made in a thread once the lease
is free, is bounded in time, and can do a run no harm. An address is never logged.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import urllib.request
from typing import TYPE_CHECKING

from celery.signals import worker_process_shutdown

from celery_lease._threads import start

if TYPE_CHECKING:
    from celery_lease._settings import Settings

logger = logging.getLogger("celery_lease")

_REAL = ("ran", "unguarded")

#: Bound of one attempt, and of waiting for the last ones when a process ends.
_SECONDS = 5.0
_ATTEMPTS = 2


def ping(settings: Settings, name: str, outcome: str) -> None:
    """Call the address of the lease `name`, if it has one and the run was real. Returns at once."""
    url = settings.ping_urls.get(name)
    if url is not None and outcome in _REAL:
        _Ping(name, url)


class _Ping(threading.Thread):
    def __init__(self, name: str, url: str) -> None:
        super().__init__(name="celery-lease-ping", daemon=True)
        self._lease = name
        self._url = url
        start(self)

    def run(self) -> None:
        trouble = ""
        for _ in range(_ATTEMPTS):
            try:
                with urllib.request.urlopen(self._url, timeout=_SECONDS):  # noqa: S310 - its scheme is checked
                    return
            except Exception as error:  # noqa: BLE001 - its text may hold the address
                trouble = type(error).__name__
        logger.warning("%s: the dead-man's switch could not be told of a run (%s)", self._lease, trouble)


def _finish(**_: object) -> None:
    """Give the last pings a moment, where a process ends right after its run."""
    deadline = time.monotonic() + _SECONDS
    for thread in threading.enumerate():
        if isinstance(thread, _Ping):
            thread.join(max(deadline - time.monotonic(), 0))


atexit.register(_finish)
worker_process_shutdown.connect(_finish, weak=False)  # pool processes leave without atexit
