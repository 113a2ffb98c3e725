"""The lease in front of django-celery-beat's scheduler, whose entries are rows of a database."""

import importlib.util
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.beat.test_backlog import waiting
from tests.nodes.missing import missing
from tests.nodes.waiting import wait_until
from tests.support.site import Site
from tests.support.workers import Process

EVERY_SECOND = {"entry": {"task": "sleep", "schedule": 1, "args": [0]}}


class Database:
    """The tables of django-celery-beat in a file; beats that use it, and what is done to it meanwhile."""

    def __init__(
        self, file: Path, start_beat: Callable[..., Process], start_process: Callable[..., Process]
    ) -> None:
        self._environment = {"PROBE_DATABASE": str(file)}
        self._start_beat = start_beat
        self._start_process = start_process
        self.do("from django.core.management import call_command; call_command('migrate', verbosity=0)")

    def do(self, code: str) -> None:
        """Run Python with the models at hand."""
        script = f"from tests.beat.database import *; {code}"
        process = self._start_process(sys.executable, "-c", script, **self._environment)
        wait_until(lambda: not process.is_alive(), 30)
        assert process.stop() == 0, process.log()

    def start_beat(self, schedule: dict[str, Any]) -> Process:
        """Start a beat with these entries beside those in the tables."""
        return self._start_beat(
            schedule,
            app="tests.beat.database",
            scheduler="tests.beat.database:Scheduler",
            **self._environment,
        )


@pytest.fixture
def database(
    tmp_path: Path, start_beat: Callable[..., Process], start_process: Callable[..., Process]
) -> Database:
    if importlib.util.find_spec("django_celery_beat") is None:
        missing("this needs django-celery-beat")
    return Database(tmp_path / "beat.sqlite3", start_beat, start_process)


def slots(site: Site, entry: str) -> list[int]:
    """Of the entry's messages."""
    return [message["lease_slot"] for message in waiting(site) if message.get("lease_entry") == entry]


def test_of_two_one_sends_and_the_other_takes_over(database: Database, site: Site) -> None:
    every_two_seconds = {"entry": {"task": "sleep", "schedule": 2, "args": [0]}}
    active = database.start_beat(every_two_seconds)
    active.wait_for("beat: active")
    standby = database.start_beat(every_two_seconds)
    standby.wait_for("beat: standby")
    active.wait_for("Sending due task", count=2)
    active.stop()
    standby.wait_for("Sending due task", count=2)
    found = slots(site, "entry")
    assert found == list(range(found[0], found[-1] + 2, 2))
    for message in waiting(site):
        assert message["periodic_task_name"] == message["lease_entry"]
        assert datetime.fromisoformat(message["expires"]).timestamp() == message["lease_slot"] + 2


def test_a_row_that_is_switched_off_is_not_served_and_goes_on_when_it_is_switched_on(
    database: Database, site: Site
) -> None:
    beat = database.start_beat({**EVERY_SECOND, "other": {"task": "plain", "schedule": 1}})
    beat.wait_for("Sending due task entry")
    database.do("row = PeriodicTask.objects.get(name='entry'); row.enabled = False; row.save()")
    beat.wait_for("Schedule changed")
    before, others = len(slots(site, "entry")), len(slots(site, "other"))
    wait_until(lambda: len(slots(site, "other")) >= others + 3)
    assert len(slots(site, "entry")) == before
    database.do("row = PeriodicTask.objects.get(name='entry'); row.enabled = True; row.save()")
    wait_until(lambda: len(slots(site, "entry")) >= before + 2)


def test_a_row_for_one_time_is_sent_once(database: Database, site: Site) -> None:
    database.do(
        "from datetime import datetime, timedelta, UTC; "
        "from django_celery_beat.models import ClockedSchedule; "
        "clocked = ClockedSchedule.objects.create(clocked_time=datetime.now(UTC) + timedelta(seconds=3)); "
        "PeriodicTask.objects.create(name='once', task='sleep', args='[0]', clocked=clocked, one_off=True)"
    )
    beat = database.start_beat(EVERY_SECOND)
    beat.wait_for("Sending due task once")
    beat.wait_for("Sending due task entry", count=beat.count("Sending due task entry") + 3)
    assert len(slots(site, "once")) == 1
    assert not beat.count("cannot be served")
    database.do("assert not PeriodicTask.objects.get(name='once').enabled")
