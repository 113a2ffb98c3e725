"""Beats as processes: one sends, the other stands by."""

import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.beat.conftest import ran_slots
from tests.beat.test_backlog import waiting
from tests.nodes.waiting import wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.site import Site, seconds_of
from tests.support.workers import Process

StartBeat = Callable[..., Process]

#: Of the leases in these tests, in seconds.
GRACE = 1.0

EVERY_SECOND = {"entry": {"task": "sleep", "schedule": 1, "args": [0]}}


def start_two(
    start_beat: StartBeat, schedule: Mapping[str, object], **options: object
) -> tuple[Process, Process]:
    """An active beat and its standby."""
    active = start_beat(schedule, **options)
    active.wait_for("beat: active")
    standby = start_beat(schedule, **options)
    standby.wait_for("beat: standby; active is ")
    return active, standby


def sendings(beat: Process) -> int:
    return beat.count("Sending due task")


def test_one_sends_and_the_other_stands_by(start_beat: StartBeat, site: Site) -> None:
    active, standby = start_two(start_beat, EVERY_SECOND)
    active.wait_for("Sending due task", count=3)
    assert sendings(standby) == 0
    assert standby.count(rf"active is \S+ \(pid {active.pid}\)") == 1, "who it is, and said once"
    assert "skipped_locked" not in site.outcomes("beat"), "standing by is no skip"
    assert "streak" not in site.ledger("beat")


def test_a_beat_that_is_stopped_hands_over_within_a_second(start_beat: StartBeat, site: Site) -> None:
    active, standby = start_two(start_beat, EVERY_SECOND, PROBE_LEASE_SECONDS="300")
    active.signal(signal.SIGTERM)
    assert seconds_of(lambda: standby.wait_for("beat: active")) < 1
    wait_until(lambda: not active.is_alive())
    assert active.stop() == 0
    assert site.outcomes("beat") == ["ran"]


def test_a_beat_that_is_killed_is_replaced_after_the_grace(start_beat: StartBeat, site: Site) -> None:
    active, standby = start_two(start_beat, EVERY_SECOND)
    began = time.monotonic()
    active.kill_tree()
    standby.wait_for("beat: active")
    # So short a lease may end before the grace does: up to a renewal earlier.
    assert 0.6 * GRACE < time.monotonic() - began < GRACE + 4
    assert site.outcomes("beat") == ["abandoned"]


def test_a_beat_whose_lease_is_taken_sends_nothing_until_it_has_one_again(
    start_beat: StartBeat, site: Site
) -> None:
    beat = start_beat(EVERY_SECOND)
    beat.wait_for("Sending due task")
    site.leases.persist(site.key("beat"))
    site.leases.hset(site.key("beat"), "token", "somebody else's")
    beat.wait_for("standby, because another beat took over")
    time.sleep(2.5)  # slots that pass meanwhile
    site.leases.delete(site.key("beat"))
    beat.wait_for("beat: active", count=2)
    log = beat.log()
    assert "Sending due task" not in log[log.index("because another") : log.rindex("beat: active")]
    beat.wait_for(r"(?s)another beat took over.*beat: active.*Sending due task")


def test_without_the_store_nothing_is_sent_and_with_it_everything_goes_on(
    start_beat: StartBeat,
    start_site: Callable[..., Site],
    start_server: Callable[..., Server],
    redis_url: str,
) -> None:
    store = start_server()
    beat = start_beat(EVERY_SECOND, at=start_site(redis_url, leases=store.url))
    beat.wait_for("Sending due task")
    store.freeze()
    beat.wait_for("on hold until the store confirms the lease")
    before = sendings(beat)
    time.sleep(2.5)  # slots that pass meanwhile
    assert sendings(beat) == before
    store.thaw()
    beat.wait_for("Sending due task", count=before + 2)


def test_a_beat_may_be_started_before_the_store(
    start_beat: StartBeat,
    start_site: Callable[..., Site],
    start_server: Callable[..., Server],
    redis_url: str,
) -> None:
    store = start_server()
    store.stop()
    beat = start_beat(EVERY_SECOND, at=start_site(redis_url, leases=store.url))
    beat.wait_for("on hold, because the lease store does not answer")
    store.start()
    beat.wait_for("Sending due task")


@pytest.mark.parametrize("role", ["active", "standby"])
def test_a_store_that_does_not_answer_does_not_delay_the_end_for_long(
    start_beat: StartBeat,
    start_site: Callable[..., Site],
    start_server: Callable[..., Server],
    redis_url: str,
    role: str,
) -> None:
    store = start_server()
    active, standby = start_two(start_beat, EVERY_SECOND, at=start_site(redis_url, leases=store.url))
    store.freeze()
    beat = active if role == "active" else standby
    assert seconds_of(beat.stop) < 6
    store.thaw()


def test_a_beat_that_is_stopped_while_it_sends_finishes_that_first(
    start_beat: StartBeat,
    start_site: Callable[..., Site],
    server: Server,
    start_proxy: Callable[[Server], Proxy],
) -> None:
    broker = start_proxy(server)
    site = start_site(broker.url, backend=server.url, leases=server.url, side=server.url)
    beat = start_beat(EVERY_SECOND, at=site)
    wait_until(lambda: waiting(site))
    broker.delay(0.3)
    beat.wait_for("Sending due task", count=sendings(beat) + 1)
    beat.signal(signal.SIGTERM)
    wait_until(lambda: not beat.is_alive())
    assert len(waiting(site)) == sendings(beat)
    assert site.leases.hget(f"{site.key('beat')}:sent", "entry") == str(waiting(site)[-1]["lease_slot"])
    assert site.outcomes("beat") == ["ran"]


def test_a_broker_that_does_not_answer_does_not_delay_the_end_for_long(
    start_beat: StartBeat, start_site: Callable[..., Site], server: Server, redis_url: str
) -> None:
    site = start_site(server.url, leases=redis_url)
    beat = start_beat(EVERY_SECOND, at=site)
    wait_until(lambda: waiting(site))
    server.freeze()
    beat.wait_for("Sending due task", count=sendings(beat) + 1)
    assert seconds_of(beat.stop) < 6
    server.thaw()


def real_runs(site: Site, count: int, seconds: float) -> list[int]:
    wait_until(lambda: len(ran_slots(site, "sleep")) >= count, seconds)
    return ran_slots(site, "sleep")


def every(interval: int) -> dict[str, object]:
    """A short job at an interval that is longer than a takeover, on a busy machine too as its slots last."""
    return {
        "entry": {"task": "sleep", "schedule": interval, "args": [0.1], "options": {"expires": 15 * interval}}
    }


def check_slots(slots: Sequence[int], interval: int) -> None:
    """No slot twice, and none left out."""
    assert slots == list(range(slots[0], slots[-1] + interval, interval))


@pytest.mark.slow
def test_no_slot_is_lost_or_done_twice_when_the_active_beat_is_killed(
    start_beat: StartBeat, site: Site
) -> None:
    interval, count = 2, 20
    site.start_worker(PROBE_LEASE_SECONDS="1")
    active, standby = start_two(start_beat, every(interval))
    seed = time.time_ns()
    print(f"seed {seed}")
    time.sleep(random.Random(seed).uniform(4, 24))
    active.kill_tree()
    slots = real_runs(site, count, count * interval + 10)
    standby.stop()
    check_slots(slots, interval)
    assert set(site.outcomes("sleep")) == {"ran"}
    assert sendings(active) > 0
    assert sendings(standby) > 0


def test_no_slot_is_lost_or_done_twice_when_beats_are_stopped_in_turn(
    start_beat: StartBeat, site: Site
) -> None:
    site.start_worker(PROBE_LEASE_SECONDS="1")
    active, standby = start_two(start_beat, every(1))
    for turn in (1, 2):
        real_runs(site, 2 * turn, 10)
        active.stop()
        active, standby = standby, start_beat(every(1))
        active.wait_for("beat: active")
    check_slots(real_runs(site, 7, 10), 1)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_beats_inside_workers_share_the_lease_too(start_beat: StartBeat, site: Site, pool: str) -> None:
    standby = start_beat(EVERY_SECOND)
    standby.wait_for("beat: active")
    options = ("-B", "--scheduler", "celery_lease.beat:LeasedScheduler", "-P", pool)
    worker = site.start_worker(*options, PROBE_LEASE_SECONDS="1")
    worker.wait_for("beat: standby")
    standby.stop()
    worker.wait_for("beat: active")
    other = start_beat(EVERY_SECOND)
    other.wait_for("beat: standby")
    worker.signal(signal.SIGTERM)
    other.wait_for("beat: active")
    assert site.outcomes("beat") == ["ran", "ran"], "the worker's beat gave the lease back, too"
