"""The health check goes red from absence alone, and says so to the alerts, too."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tests.nodes.waiting import wait_until
from tests.support.site import Site
from tests.web.past import Past
from tests.web.server import Web

StartWeb = Callable[..., Web]


def test_a_job_that_is_done_when_it_is_due_is_healthy(start_web: StartWeb, site: Site) -> None:
    now = datetime.now(UTC)
    past = Past(site.leases, "barrier")
    past.seen_since(now - timedelta(days=1), "quarterly")
    past.add(now - timedelta(minutes=1))
    web = start_web(site, {"quarterly": ("barrier", "*/15")})
    answer = web.ask("/healthz", secret=None)
    assert (answer.status, answer.response.json()) == (200, {"status": "ok", "overdue": []})


def test_skips_do_not_keep_a_job_healthy(start_web: StartWeb, site: Site) -> None:
    now = datetime.now(UTC)
    past = Past(site.leases, "barrier")
    past.seen_since(now - timedelta(days=1), "quarterly")
    past.add(now - timedelta(hours=3))
    for minutes in range(165, 0, -15):
        past.add(now - timedelta(minutes=minutes), "skipped_locked")
    web = start_web(site, {"quarterly": ("barrier", "*/15")})
    answer = web.ask("/healthz", secret=None)
    assert (answer.status, answer.error) == (503, "overdue")
    assert answer.response.json()["overdue"] == ["barrier"]


def test_a_schedule_that_nobody_serves_is_overdue_after_two_intervals(
    start_web: StartWeb, site: Site
) -> None:
    web = start_web(site, {"often": ("barrier", 2)})
    assert web.ask("/healthz", secret=None).status == 200, "a new schedule has its first interval"
    wait_until(lambda: web.ask("/healthz", secret=None).error == "overdue", 12)


def test_the_health_check_alerts_when_no_watchdog_runs(start_web: StartWeb, site: Site) -> None:
    past = Past(site.leases, "barrier")
    past.seen_since(datetime.now(UTC) - timedelta(days=1), "quarterly")
    web = start_web(site, {"quarterly": ("barrier", "*/15")})
    assert web.ask("/healthz", secret=None).error == "overdue"
    wait_until(lambda: site.leases.hgetall("cron:{watchdog}:alerts"), 10)
    assert "overdue barrier" in site.leases.hgetall("cron:{watchdog}:alerts")
    web.process.wait_for("overdue", 10)


def test_health_names_jobs_and_nothing_else(web: Web, site: Site) -> None:
    Past(site.leases, "barrier").hold(datetime.now(UTC))
    answer = web.ask("/healthz", secret=None)
    assert answer.response.json().keys() == {"status", "overdue"}
