"""Telling people what the watchdog found: once when it opens, daily while it lasts, once when it is over.

The state of each alert is in the store (`alert.lua`), so that any number of watchdogs say it once. It goes to
the Apprise URLs of `lease_alert_urls`, and into the log in any case. Sending is bounded in time and never
raises; an address is never logged, because whoever knows it can send to it.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from celery_lease._ledger import alert_key, alert_of
from celery_lease._store import store_of
from celery_lease._threads import start

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from celery import Celery

    from celery_lease._watchdog import Finding

logger = logging.getLogger("celery_lease")

_REMIND_SECONDS = 24 * 3600.0

#: For all addresses together, which are served at the same time.
SEND_SECONDS = 20.0

#: After this long an alert whose sending nobody confirmed is sent by another watchdog.
_PATIENCE_SECONDS = 2 * SEND_SECONDS

_THREADS = "celery-lease-alert-"

#: Services and the libraries below them, which repeat whole addresses.
_TALKATIVE = ("apprise", "urllib3.connectionpool", "requests", "httpx", "httpcore")


class Message(NamedTuple):
    """Something to say about one alert.

    Attributes:
        kind: `opened`, `reminded` or `resolved`.
        job: as in `Finding`.
        rule: as in `Finding`.
        what: as in `Finding`; of a resolved one, as it last was.
        since: when it was opened.
    """

    kind: str
    job: str
    rule: str
    what: str
    since: datetime


def report(app: Celery, findings: Iterable[Finding]) -> None:
    """Say what is new about the findings, which must be all there are.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    store = store_of(app)
    wrong = {alert_key(finding.job, finding.rule): finding.what for finding in findings}
    handed = store.hand_out(wrong, remind_seconds=_REMIND_SECONDS, patience_seconds=_PATIENCE_SECONDS)
    messages = [
        Message(kind, *alert_of(key), what, datetime.fromtimestamp(opened, UTC))
        for kind, key, what, opened in handed
    ]
    words = _Words(app.main or "PROJECT", store.settings.key_prefix)
    for is_over in (False, True):
        told = [message for message in messages if (message.kind == "resolved") is is_over]
        if told and _tell(words, told, store.settings.alert_urls):
            store.said((message.kind, alert_key(message.job, message.rule)) for message in told)


def _tell(words: _Words, messages: Sequence[Message], urls: Sequence[str]) -> bool:
    """Whether at least one of the addresses took the messages; the log alone is enough if there is none."""
    is_over = messages[0].kind == "resolved"
    for message in messages:
        logger.log(logging.INFO if is_over else logging.ERROR, "alert %s", words.line(message))
    if not urls:
        return True
    text = "\n\n".join(words.paragraph(message) for message in messages)
    return send(urls, words.title(messages), text, is_over=is_over)


class _Words:
    """Alerts as text, with what to do about them."""

    def __init__(self, project: str, prefix: str) -> None:
        self._project = project
        self._prefix = prefix

    def title(self, messages: Sequence[Message]) -> str:
        over = "over: " if messages[0].kind == "resolved" else ""
        return over + ", ".join(f"{message.job}: {message.rule}" for message in messages)

    def line(self, message: Message) -> str:
        return f"{message.kind}: {message.job}: {message.rule}: {message.what}. {self._advice(message)}"

    def paragraph(self, message: Message) -> str:
        since = f"{message.since:%Y-%m-%d %H:%M} UTC"
        if message.kind == "resolved":
            return f"{message.job}: {message.rule} is over; it was open since {since} ({message.what})."
        reminder = f" Still open, since {since}." if message.kind == "reminded" else ""
        return f"{message.job}: {message.rule}\n{message.what}.{reminder}\n{self._advice(message)}"

    def _advice(self, message: Message) -> str:
        if message.kind == "resolved":
            return ""
        return (
            f"If {message.job} looks idle, look at {self._prefix}{{{message.job}}} first: "
            f"celery -A {self._project} lease show {message.job} (docs/runbook.md#{message.rule})"
        )


def send(urls: Sequence[str], title: str, text: str, *, is_over: bool = False) -> bool:
    """Send one message to all addresses at the same time; whether at least one took it in time."""
    deliveries = [_Delivery(number, url, title, text, is_over) for number, url in enumerate(urls, 1)]
    deadline = time.monotonic() + SEND_SECONDS
    for delivery in deliveries:
        delivery.join(max(deadline - time.monotonic(), 0))
    for delivery in deliveries:
        if not delivery.took_it:
            logger.error(
                "alert URL %d of %d (%s) did not take the alert: %s",
                delivery.number,
                len(urls),
                delivery.service,
                delivery.trouble if not delivery.is_alive() else f"no answer within {SEND_SECONDS:.0f} s",
            )
    return any(delivery.took_it for delivery in deliveries)


class _Delivery(threading.Thread):
    """Sends one message to one address, at once, and keeps the trouble instead of raising it."""

    def __init__(self, number: int, url: str, title: str, text: str, is_over: bool) -> None:
        super().__init__(name=f"{_THREADS}{number}", daemon=True)
        self.number = number
        self.service = "?"
        self.trouble = "refused"
        self.took_it = False
        self._message = (url, title, text, is_over)
        start(self)

    def run(self) -> None:
        _hush()
        try:
            self.took_it = self._deliver(*self._message)
        except Exception as error:  # noqa: BLE001 - whatever a service's client raises; its text may hold the address
            self.trouble = type(error).__name__

    def _deliver(self, url: str, title: str, text: str, is_over: bool) -> bool:
        try:
            import apprise  # noqa: PLC0415 - an extra of this library
        except ImportError:
            self.trouble = 'Apprise is not installed; pip install "celery-lease[alerts]"'
            return False
        service: Any = apprise.Apprise.instantiate(url)
        if service is None:
            self.trouble = "not a URL that Apprise knows"
            return False
        self.service = str(service.service_name)
        kind = apprise.NotifyType.SUCCESS if is_over else apprise.NotifyType.FAILURE
        return bool(service.notify(body=text, title=title, notify_type=kind))


def _hush() -> None:
    """Keep what libraries say in the threads that send, and that may hold an address, out of the log."""
    for name in _TALKATIVE:
        talker = logging.getLogger(name)
        if not any(isinstance(each, _Hush) for each in talker.filters):
            talker.addFilter(_Hush())


class _Hush(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.threadName or "").startswith(_THREADS)
