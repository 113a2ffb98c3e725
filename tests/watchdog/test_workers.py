"""What real workers tell the store, and what the watchdog makes of workers and beats that are missing."""

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery

from celery_lease._ledger import Ledger
from celery_lease._store import store_of
from celery_lease.watchdog import watch
from tests.nodes.waiting import wait_until
from tests.support.leases import leased, make_app
from tests.support.site import Site
from tests.support.workers import Process

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS = {"counts": {"task": "counts", "schedule": 2.0, "args": [1, 0]}}
TYPO = {"typo": {"task": "cuonts", "schedule": 2.0}}

StartProcess = Callable[..., Process]


def counts(worked: int, backlog: int) -> None:
    """As far as the watchdog is concerned, this is the probe's."""


class Watchdog:
    """Looks at a site from outside, again and again."""

    def __init__(self, site: Site, schedule: dict[str, Any]) -> None:
        self.app = make_app(site.environment["PROBE_URL"], lease_seconds=1, beat_schedule=schedule)
        leased(self.app, name="counts")(counts)

    def sees(self, *expected: tuple[str, str]) -> Callable[[], bool]:
        """Whether these (job, rule) are among what is wrong now."""
        return lambda: set(expected) <= self.look()

    def look(self) -> set[tuple[str, str]]:
        """All that is wrong now."""
        return {(finding.job, finding.rule) for finding in watch(self.app)}


@pytest.fixture
def outside(site: Site) -> Celery:
    """An app for looking."""
    return make_app(site.environment["PROBE_URL"])


def start_beat(start_process: StartProcess, site: Site, schedule: dict[str, Any]) -> Process:
    environment = {**site.environment, "PROBE_CONF": json.dumps({"beat_schedule": schedule})}
    beat = ["-m", "celery", "-A", "tests.support.probe", "beat", "-l", "INFO"]
    process = start_process(sys.executable, *beat, "-S", "celery_lease.beat:LeasedScheduler", **environment)
    process.wait_for("Sending due task")
    return process


def test_a_worker_announces_its_tasks_when_it_is_ready(site: Site, outside: Celery) -> None:
    store = store_of(outside)
    site.start_worker()
    wait_until(store.registered)
    names = store.registered()
    assert {"sleep", "per_tenant", "plain"} <= names
    assert not [name for name in names if name.startswith("celery.")]


def test_a_message_that_expired_is_in_the_ledger(site: Site, outside: Celery) -> None:
    ledger = Ledger(store_of(outside))
    site.start_worker()
    site.send("plain", expires=LONG_AGO)
    site.send("per_tenant", "acme", expires=LONG_AGO)
    expired = site.send("barrier", expires=LONG_AGO, headers={"lease_slot": "1757851200"})
    wait_until(lambda: ledger.history("barrier"))
    [record] = ledger.history("barrier")
    assert (record.outcome, record.fields["task_id"]) == ("expired", expired.id)
    assert record.fields["slot"] == "1757851200"
    assert "@" in record.fields["worker"]
    wait_until(lambda: ledger.names() == ["barrier", "export:acme"])
    assert ledger.state("barrier").streak == 0
    assert ledger.state("barrier").totals == {"expired": 1}


def test_a_misspelt_task_in_the_schedule_is_named(site: Site, start_process: StartProcess) -> None:
    site.start_worker()
    start_beat(start_process, site, TYPO)
    wait_until(Watchdog(site, TYPO).sees(("typo", "unregistered")))


def test_a_beat_without_a_worker_is_found_from_absence_alone(site: Site, start_process: StartProcess) -> None:
    start_beat(start_process, site, COUNTS)
    wait_until(Watchdog(site, COUNTS).sees(("counts", "overdue"), ("counts", "missed")))


def test_a_frozen_beat_is_found_from_absence_alone(site: Site, start_process: StartProcess) -> None:
    site.start_worker()
    beat, watchdog = start_beat(start_process, site, COUNTS), Watchdog(site, COUNTS)
    wait_until(lambda: site.total("counts", "ran"))
    assert watchdog.look() == set()
    os.kill(beat.pid, signal.SIGSTOP)
    wait_until(watchdog.sees(("counts", "overdue")))
    os.kill(beat.pid, signal.SIGCONT)
    wait_until(lambda: ("counts", "overdue") not in watchdog.look())


def test_an_old_lock_over_a_dead_run_is_found_within_three_ticks_and_over_with_the_next_run(
    site: Site, start_process: StartProcess
) -> None:
    site.leases.set("cron:{counts}", "1757851200000", ex=3 * 3600)
    site.start_worker()
    start_beat(start_process, site, COUNTS)
    watchdog = Watchdog(site, COUNTS)
    wait_until(watchdog.sees(("counts", "skips")))
    assert site.total("counts", "skipped_locked") == 3
    assert site.total("counts", "ran") == 0
    site.leases.delete("cron:{counts}")
    wait_until(lambda: watchdog.look() == set())
    assert site.total("counts", "ran") > 0


def test_a_worker_whose_connections_are_cut_while_idle_goes_on(site: Site) -> None:
    worker = site.start_worker()
    site.leases.client_kill_filter(_type="normal", skipme=True)
    worker.wait_for("Connection to broker lost|Trying to re-establish|Connected to")
    assert site.send("counts", 1, 0).get(timeout=30) == {"worked": 1, "backlog": 0}
