"""What becomes of messages that many beats sent, or that nobody was there to take."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.result import AsyncResult

from tests.beat.conftest import Beat, ran_slots
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends
from tests.support.workers import Process


def test_of_two_messages_for_one_slot_one_is_done(make_beat: Callable[..., Beat], site: Site) -> None:
    site.start_worker()
    now = datetime.now(UTC).replace(microsecond=0)
    schedule = {"entry": {"task": "sleep", "schedule": 60, "args": [0.1]}}
    # Leases apart from each other: neither knows of the other, and both send.
    beats = [make_beat(schedule, now=now, lease_key_prefix=f"{which}:") for which in ("one", "two")]
    for slot in range(21):
        for number, one in enumerate(beats):
            one.scheduler.tick()
            one.now += timedelta(minutes=1)
            done = max(2 * slot - 1 + number, 0)
            wait_until(lambda done=done: len(site.records("sleep")) >= done)  # type: ignore[misc]
    assert site.outcomes("sleep") == ["ran", "skipped_already_done"] * 20
    assert len(set(ran_slots(site, "sleep"))) == 20
    assert site.ledger("sleep")["streak"] == "0", "a slot that is done is no skip in a row"


def waiting(site: Site) -> list[dict[str, Any]]:
    """The headers of what lies in the queue, in the order of sending."""
    raw: Any = site.side.lrange("celery", 0, -1)
    return [json.loads(message)["headers"] for message in reversed(raw)]


def test_a_backlog_ends_as_one_run_for_now_and_the_rest_expires(
    start_beat: Callable[..., Process], site: Site
) -> None:
    interval = 2
    schedule = {"entry": {"task": "sleep", "schedule": interval, "args": [0]}}
    beat = start_beat(schedule, TZ="America/New_York")
    wait_until(lambda: len(waiting(site)) >= 5, 20)
    began, backlog = time.time(), waiting(site)
    site.start_worker(TZ="America/New_York")
    wait_until(lambda: ran_slots(site, "sleep"))
    beat.stop()
    # Only what was due when the worker came, or later, is run.
    results: dict[int, AsyncResult[Any]] = {
        message["lease_slot"]: AsyncResult(message["id"], app=site.app) for message in backlog
    }
    ends(*results.values())
    ran = ran_slots(site, "sleep")
    assert ran[0] > began - interval
    assert {slot: result.state for slot, result in results.items()} == {
        slot: "SUCCESS" if slot >= ran[0] else "REVOKED" for slot in results
    }
    assert ran == list(range(ran[0], ran[0] + interval * len(ran), interval)), "once a slot from then on"
    assert set(site.outcomes("sleep")) <= {"expired", "ran"}, "what has expired is no skip"
    assert site.ledger("sleep")["streak"] == "0"
