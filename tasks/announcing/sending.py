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

    def run(self) -> None:
        """Send every URL that is due, and again those whose key was not checked, once it is.

        A run that is killed between a batch and its record repeats that batch: harmless.

        Raises:
            EndpointRefused: a person has to change something; what was taken before stays written down.
            StaleFence: a newer run has claimed.
            LeaseLost: the lease can no longer be trusted.
        """
        if not self._send_all(UrlState.DUE):
            # Nothing else would show whether the key has been checked by now: one URL asks.
            self._send_batch(self._inventory.batch(UrlState.PROVISIONAL, "", 1), UrlState.PROVISIONAL)
        if self._key_is_checked:
            self._send_all(UrlState.PROVISIONAL)
        if self._not_taken:
            raise EndpointRefused(
                f"{self._why_not} for {len(self._not_taken)} URLs, such as {shown(self._not_taken[0])}; "
                f"they stay due; {self.announced} others were announced"
            )

    def _send_all(self, state: UrlState) -> bool:
        """Whether there was any."""
        last = ""
        while not self.stopped and (urls := self._inventory.batch(state, last, MOST_URLS)):
            self._send_batch(urls, state)
            last = urls[-1]
        return bool(last)

    def _send_batch(self, urls: Sequence[str], state: UrlState) -> None:
        if not urls:
            return
        if time.monotonic() > self._deadline:
            self.stopped = "time is up"
            return
        answer = self._send(urls, state)
        if answer.verdict is Verdict.NOT_THESE:
            self._why_not = answer.detail
            self._bisect(urls, state)

    def _bisect(self, urls: Sequence[str], state: UrlState) -> None:
        """Send each half of a batch that was not taken, once: one bad URL then holds up half as many others.

        The next run halves what is left, and so on, until the bad URL is alone.
        """
        if len(urls) == 1:
            self._not_taken.extend(urls)
            return
        middle = len(urls) // 2
        halves = urls[:middle], urls[middle:]
        bad = [half for half in halves if self._send(half, state).verdict is Verdict.NOT_THESE]
        for half in bad:
            self._not_taken.extend(half)
        if len(bad) == len(halves):
            self.stopped = "neither half of a batch was taken"

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
