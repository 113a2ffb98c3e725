"""The incident live, in compressed time: a lock of the old kind stays, and everything that looks says so.

A quarter of an hour is 3 s. Beat, worker, web app, Flower and a receiver of alerts are real.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.flower.conftest import Flower
from tests.nodes.waiting import wait_until
from tests.support.site import Site
from tests.support.workers import Process
from tests.watchdog.conftest import Hook
from tests.web.server import Web

TICK_SECONDS = 3
SCHEDULE = {"curation": ("barrier", TICK_SECONDS)}
BEAT = (
    *(sys.executable, "-m", "celery", "-A", "tests.web.web_app:app", "beat"),
    *("-S", "celery_lease.beat:LeasedScheduler"),
)


@pytest.fixture
def sink() -> Iterator[Hook]:
    """Takes alerts."""
    hook = Hook()
    yield hook
    hook.close()


@pytest.mark.slow
def test_three_hours_of_skips_show_everywhere_within_three_ticks(
    start_site: Callable[..., Site],
    start_web: Callable[..., Web],
    start_process: Callable[..., Process],
    redis_url: str,
    sink: Hook,
) -> None:
    site = start_site(redis_url, conf={"lease_alert_urls": [f"json://127.0.0.1:{sink.port}/"]})
    site.leases.set(site.key("barrier"), "1757852100", px=TICK_SECONDS * 12 * 1000)
    site.start_worker()
    flower = Flower(start_process, site)
    web = start_web(site, SCHEDULE)
    start_process(*BEAT, **site.environment, PROBE_SCHEDULE=json.dumps(SCHEDULE))
    wait_until(lambda: int(site.ledger("barrier").get("streak", 0)) == 3, 4 * TICK_SECONDS)

    assert web.ask("/healthz", secret=None).status in (200, 503)
    wait_until(lambda: any("3 skips in a row" in alert["message"] for alert in sink.taken), TICK_SECONDS)
    samples = web.samples()
    assert samples['celery_lease_consecutive_skips{job_name="barrier"}'] >= 3
    assert 'celery_lease_last_ran_timestamp_seconds{job_name="barrier"}' not in samples
    page = web.ask("/").response.text
    assert len(re.findall(r'<li class="tick skip[ "]', page)) >= 3
    assert not re.findall(r'<li class="tick good[ "]', page)
    assert "3 skips in a row, and no work in any of them" in page
    assert len(flower.tasks("SKIPPED")) >= 3
    assert not flower.tasks("SUCCESS")
    wait_until(lambda: web.ask("/healthz", secret=None).error == "overdue", 3 * TICK_SECONDS)


@pytest.mark.slow
def test_with_the_lease_at_most_one_tick_is_lost_to_a_kill(
    start_site: Callable[..., Site],
    start_web: Callable[..., Web],
    start_process: Callable[..., Process],
    redis_url: str,
) -> None:
    site = start_site(redis_url)
    dying = site.start_worker(PROBE_LEASE_SECONDS="1")
    web = start_web(site, SCHEDULE, PROBE_LEASE_SECONDS="1")
    schedule = {"PROBE_SCHEDULE": json.dumps(SCHEDULE), "PROBE_LEASE_SECONDS": "1"}
    start_process(*BEAT, **site.environment, **schedule)
    site.entered()
    dying.kill_tree()
    site.start_worker(PROBE_LEASE_SECONDS="1")
    for _ in range(3):
        site.entered(seconds=4 * TICK_SECONDS)
        site.open()
    wait_until(lambda: site.total("barrier", "ran") == 3)
    assert site.total("barrier", "abandoned") == 1
    assert site.total("barrier", "skipped_locked") <= 1
    letters = re.findall(r'<li class="tick \w+[^>]*>(.)</li>', web.ask("/").response.text)
    assert letters.count("R") == 3
    assert letters.count("A") == 1
