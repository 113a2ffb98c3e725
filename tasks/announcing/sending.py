"""Send what is due, batch by batch; each batch that is taken is written down before the next one leaves."""

import time
from collections.abc import Sequence

from celery.utils.log import get_task_logger

from tasks.announcing.failures import EndpointRefused
from tasks.announcing.indexnow import MOST_URLS, Answer, IndexNow, Verdict
from tasks.announcing.inventory import Inventory
from tasks.announcing.origin import shown
from tasks.desk import Lease
from tasks.tables import UrlState

logger = get_task_logger("tasks.sitemap")

# To find one bad URL among 10,000 takes 14. An endpoint that takes nothing at all is asked no more often.
_MOST_REFUSALS = 30
_MOST_PROBES = 3


class Sending:
    """One run's announcements.

    Attributes:
        announced: how many URLs an endpoint took.
        stopped: why the run ended before everything was sent; "" if it did not.
    """

    def __init__(self, inventory: Inventory, indexnow: IndexNow, lease: Lease, seconds: float) -> None:
        self.announced = 0
        self.stopped = ""
        self._inventory = inventory
        self._indexnow = indexnow
        self._lease = lease
        self._deadline = time.monotonic() + seconds
        self._key_is_checked = False
        # Over all batches.
        self._not_taken: list[str] = []
        self._why_not = ""
        self._refusals = 0

    def run(self) -> None:
        """Send every URL that is due, and again those whose key was not checked, once it is.

        A run that is killed between a batch and its record repeats that batch: harmless.

        Raises:
            EndpointRefused: a person has to change something; what was taken before stays written down.
            StaleFence: a newer run has claimed.
            LeaseLost: the lease can no longer be trusted.
        """
        if not self._send_all(UrlState.DUE):
            self._probe()
        if self._key_is_checked:
            self._send_all(UrlState.PROVISIONAL)
        if self._refusals:
            named = f", such as {shown(self._not_taken[0])}" if self._not_taken else ""
            raise EndpointRefused(
                f"{self._why_not} for {len(self._not_taken)} URLs{named}; they stay due; {self.announced} "
                f"others were announced{f'; {self.stopped}' if self.stopped else ''}"
            )

    def _send_all(self, state: UrlState) -> bool:
        """Whether there was any."""
        last = ""
        while not self.stopped and (urls := self._inventory.batch(state, last, MOST_URLS)):
            self._send_batch(urls, state)
            last = urls[-1]
        return bool(last)

    def _probe(self) -> None:
        """Ask by one URL whether the key has been checked by now, which nothing else would show.

        By another one where the endpoint does not take that: it would be the first one in every run.
        """
        for url in self._inventory.batch(UrlState.PROVISIONAL, "", _MOST_PROBES):
            before = self._refusals
            self._send_batch([url], UrlState.PROVISIONAL)
            if self._refusals == before:
                return

    def _send_batch(self, urls: Sequence[str], state: UrlState) -> None:
        """Send a batch, and the halves of what is not taken, until each bad URL is alone."""
        pieces = [urls]
        while pieces and not self.stopped:
            if time.monotonic() > self._deadline:
                self.stopped = "time is up"
                return
            piece = pieces.pop()
            answer = self._send(piece, state)
            if answer.verdict is not Verdict.NOT_THESE:
                continue
            self._why_not = answer.detail
            self._refusals += 1
            if len(piece) == 1:
                self._not_taken.extend(piece)
            else:
                middle = len(piece) // 2
                pieces += [piece[middle:], piece[:middle]]
            if self._refusals >= _MOST_REFUSALS:
                self.stopped = f"{_MOST_REFUSALS} requests were refused, so the rest is left for a later run"

    def _send(self, urls: Sequence[str], state: UrlState) -> Answer:
        self._lease.check()
        answer = self._indexnow.send(urls)
        logger.info("sent %s URLs: %s", len(urls), answer.detail)
        # What was sent before the key was checked is sent once more after that, and not again and again.
        is_last_time = state is UrlState.PROVISIONAL and self._key_is_checked
        match answer.verdict:
            case Verdict.ACCEPTED:
                self._key_is_checked = True
                self._take(urls)
            case Verdict.PROVISIONAL if is_last_time:
                self._take(urls)
            case Verdict.PROVISIONAL:
                self._inventory.provisional(urls)
            case Verdict.TOO_OFTEN:
                until = self._inventory.pause(answer.retry_after_seconds)
                self.stopped = f"{answer.detail}: nothing is sent before {until}"
            case Verdict.LATER:
                self.stopped = answer.detail
            case Verdict.REFUSED:
                left = self._inventory.count(UrlState.DUE)
                raise EndpointRefused(
                    f"{answer.detail} ({self.announced} URLs were announced, {left} are due)"
                )
        return answer

    def _take(self, urls: Sequence[str]) -> None:
        self._inventory.announced(urls)
        self.announced += len(urls)
