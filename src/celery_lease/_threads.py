"""Starting a thread where a soft time limit may strike."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

#: What billiard sends to a pool process for a soft time limit.
_SOFT_LIMIT = {signal.SIGUSR1}


def start(thread: threading.Thread) -> None:
    """Start `thread`; a soft time limit waits until that is done.

    Raised in the middle of it, the limit makes the starting and the new thread both clean up, and one of
    them ends in a KeyError. The new thread never sees the limit: Python handles signals in the main one.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # Inside, because it raises, and blocks all the same, when a limit struck a moment ago.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SOFT_LIMIT)
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
