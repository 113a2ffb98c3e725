"""Ctrl-C, SIGTERM and a closed terminal: noted here, acted upon by whoever asks."""

import signal
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """What has been asked for so far.

    `first` is the signal that asked to stop. `hurry` is set by a Ctrl-C after it, and by nothing else: a
    closing terminal or `make` may well deliver the same SIGHUP or SIGTERM twice.
    """

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.hurry = False

    def install(self) -> None:
        """Take over the handlers for the rest of the process. What is ignored (nohup) stays ignored."""
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._caught)

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        if self.first is None:
            self.first = signal.Signals(number)
        elif number == signal.SIGINT:
            self.hurry = True
