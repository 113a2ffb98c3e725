"""Alerts: each said once, repeated daily, over once; to a webhook and a mail server."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from celery import Celery

from celery_lease import _alerts
from celery_lease._ledger import Ledger
from celery_lease._store import store_of
from celery_lease._watchdog import Finding
from tests.nodes.ports import free_port
from tests.watchdog.conftest import Hook

StartApp = Callable[..., Celery]

SKIPS = Finding("curation", "skips", "12 skips in a row, and no work in any of them")
OVERDUE = Finding("sitemap", "overdue", "no real run since noon")
WORD = "s3cret-of-the-hook"


@pytest.fixture
def app(start_app: StartApp, hook: Hook) -> Celery:
    """An app whose alerts go to the webhook."""
    return start_app(lease_alert_urls=[f"json://127.0.0.1:{hook.port}/{WORD}"])


@pytest.fixture
def age(client: Any) -> Callable[..., None]:
    """Let an alert have been said so many seconds earlier."""

    def let(alert: str, seconds: float) -> None:
        state = json.loads(client.hget("cron:{watchdog}:alerts", alert))
        for field in ("said", "claimed"):
            state[field] = max(state[field] - seconds * 1000, 0)
        client.hset("cron:{watchdog}:alerts", alert, json.dumps(state))

    return let


def test_an_alert_is_said_once_when_it_opens_and_once_when_it_is_over(app: Celery, hook: Hook) -> None:
    for findings in ([], [SKIPS], [SKIPS], [SKIPS], [], []):
        _alerts.report(app, findings)
    assert hook.titles == ["curation: skips", "over: curation: skips"]
    opened, over = hook.taken
    assert (opened["type"], over["type"]) == ("failure", "success")
    assert SKIPS.what in opened["message"]
    assert "is over" in over["message"]


def test_the_text_says_what_to_do(app: Celery, hook: Hook) -> None:
    _alerts.report(app, [SKIPS])
    assert (
        "If curation looks idle, look at cron:{curation} first: celery -A inside lease show curation "
        "(docs/runbook.md#skips)"
    ) in hook.taken[0]["message"]


def test_an_open_alert_is_said_again_after_a_day(app: Celery, hook: Hook, age: Callable[..., None]) -> None:
    _alerts.report(app, [SKIPS])
    age("skips curation", 23 * 3600)
    _alerts.report(app, [SKIPS])
    assert len(hook.taken) == 1
    age("skips curation", 2 * 3600)
    _alerts.report(app, [SKIPS])
    _alerts.report(app, [SKIPS])
    assert len(hook.taken) == 2
    assert "Still open, since" in hook.taken[1]["message"]


def test_an_alert_that_comes_back_is_said_again(app: Celery, hook: Hook) -> None:
    for findings in ([SKIPS], [], [SKIPS]):
        _alerts.report(app, findings)
    assert hook.titles == ["curation: skips", "over: curation: skips", "curation: skips"]


def test_what_opens_together_is_one_message(app: Celery, hook: Hook) -> None:
    _alerts.report(app, [SKIPS, OVERDUE])
    assert hook.titles == ["curation: skips, sitemap: overdue"]


def test_one_job_can_have_alerts_of_several_rules(app: Celery, hook: Hook) -> None:
    late = Finding("curation", "overdue", "no real run")
    _alerts.report(app, [SKIPS])
    _alerts.report(app, [SKIPS, late])
    assert hook.titles == ["curation: skips", "curation: overdue"]


def test_two_watchdogs_say_it_once(app: Celery, start_app: StartApp, hook: Hook) -> None:
    other = start_app(lease_alert_urls=app.conf.lease_alert_urls)
    for one in (app, other, app, other):
        _alerts.report(one, [SKIPS])
    assert len(hook.taken) == 1


def test_what_could_not_be_sent_is_sent_by_a_later_patrol(
    app: Celery, hook: Hook, age: Callable[..., None]
) -> None:
    hook.answer = 500
    _alerts.report(app, [SKIPS])
    assert hook.taken == []
    assert Ledger(store_of(app)).alerts()[0].said is None
    hook.answer = 200
    _alerts.report(app, [SKIPS])
    assert hook.taken == [], "another watchdog may be about to send it"
    age("skips curation", 60)
    _alerts.report(app, [SKIPS])
    assert hook.titles == ["curation: skips"]


def test_one_address_that_works_is_enough(start_app: StartApp, hook: Hook, caplog: Any) -> None:
    app = start_app(
        lease_alert_urls=["json://127.0.0.1:9/dead", f"json://127.0.0.1:{hook.port}/", "nonsense://x"]
    )
    _alerts.report(app, [SKIPS])
    _alerts.report(app, [SKIPS])
    assert len(hook.taken) == 1
    assert "alert URL 1 of 3 (JSON) did not take the alert" in caplog.text
    assert "alert URL 3 of 3 (?) did not take the alert: not a URL that Apprise knows" in caplog.text


def test_an_alert_nobody_heard_of_is_not_said_to_be_over(
    app: Celery, hook: Hook, age: Callable[..., None]
) -> None:
    hook.answer = 500
    _alerts.report(app, [SKIPS])
    hook.answer = 200
    age("skips curation", 60)
    _alerts.report(app, [])
    assert hook.taken == []
    assert Ledger(store_of(app)).alerts() == []


def test_an_address_that_never_answers_takes_a_bounded_time(
    start_app: StartApp, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(_alerts, "SEND_SECONDS", 0.5)
    hook.silent = True
    app = start_app(lease_alert_urls=[f"json://127.0.0.1:{hook.port}/?rto=30"] * 3)
    began = time.monotonic()
    _alerts.report(app, [SKIPS])
    assert time.monotonic() - began < 5
    assert "did not take the alert" in caplog.text


def test_no_address_is_ever_logged(app: Celery, hook: Hook, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    _alerts.report(app, [SKIPS])
    hook.answer = 404
    _alerts.report(app, [OVERDUE])
    _alerts.send([f"json://127.0.0.1:9/{WORD}", f"{WORD}://x", f"slack://{WORD}"], "title", "text")
    assert "did not take the alert" in caplog.text
    assert WORD not in caplog.text


def test_without_an_address_an_alert_is_in_the_log_and_in_the_store(start_app: StartApp, caplog: Any) -> None:
    app = start_app()
    _alerts.report(app, [SKIPS])
    _alerts.report(app, [SKIPS])
    [line] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.message.startswith("alert opened: curation: skips: 12 skips in a row")
    assert "celery -A inside lease show curation" in line.message
    [alert] = Ledger(store_of(app)).alerts()
    assert (alert.job, alert.rule, alert.what) == SKIPS
    assert alert.said is not None
    _alerts.report(app, [])
    assert Ledger(store_of(app)).alerts() == []


class Mailbox:
    """Takes mail."""

    def __init__(self) -> None:
        self.mails: list[str] = []

    async def handle_DATA(  # noqa: N802 - aiosmtpd calls it so
        self, _server: Any, _session: Any, envelope: Any
    ) -> str:
        self.mails.append(envelope.content.decode())
        return "250 OK"


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, int]]:
    """A mail server on this machine, and its port."""
    box = Mailbox()
    port = free_port()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    yield box, port
    controller.stop()


def test_an_alert_can_be_a_mail(start_app: StartApp, mailbox: tuple[Mailbox, int]) -> None:
    box, port = mailbox
    app = start_app(
        lease_alert_urls=[f"mailto://127.0.0.1:{port}/?from=watchdog@example.org&to=ops@example.org"]
    )
    _alerts.report(app, [SKIPS])
    [mail] = box.mails
    assert "Subject: curation: skips" in mail
    assert "To: ops@example.org" in mail
