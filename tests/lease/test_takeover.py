"""Who may take over, and when: a holder that can be taken over from stops trusting its lease first."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from redis.exceptions import ResponseError

from celery_lease import Lease, hold
from celery_lease._store import Claim, Grant, Store
from tests.nodes.waiting import wait_until
from tests.support.leases import Job
from tests.support.proxy import Proxy
from tests.support.servers import Server

KEY = "cron:{job}"
GRACE_SECONDS = 2.0

Start = Callable[..., Celery]


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grace far below the lease, as by default, and without the waiting."""
    monkeypatch.setattr("celery_lease._settings.GRACE_SECONDS", GRACE_SECONDS)


@pytest.fixture
def far_app(start_app: Start, proxy: Proxy) -> Celery:
    return start_app(proxy.url, lease_seconds=60)


@pytest.fixture
def near(start_store: Callable[..., Store], server: Server, far_client: Any) -> Job:
    """The same job, seen by whoever wants to take over."""
    return Job(start_store(server.url, lease_seconds=60), far_client)


@pytest.fixture
def far_client(server: Server) -> Iterator[Any]:
    with server.client() as client:
        yield client


def take_over(near: Job) -> tuple[Claim, Grant]:
    """Look as often as a waiting run does, until the holder counts as dead."""
    claim = near.claim()
    for _ in range(40):
        answer = near.store.acquire(claim, patient=True)
        if isinstance(answer, Grant):
            return claim, answer
        time.sleep(GRACE_SECONDS / 10)
    raise AssertionError(f"no takeover: {answer}")


def connected(near: Job) -> bool:
    return bool(near.held.get("alive"))


def trusted_while(lease: Lease, ends: Callable[[], object], seconds: float = 10) -> bool:
    """Whether a lease could ever be trusted until the event came."""
    said: list[bool] = []

    def is_over() -> bool:
        said.append(lease.check())
        return bool(ends())

    wait_until(is_over, seconds)
    return any(said)


def test_a_holder_who_may_not_subscribe_any_more_is_not_taken_over(
    start_app: Start, server: Server, near: Job
) -> None:
    near.client.acl_setuser(
        "u", enabled=True, passwords=["+p"], keys=["*"], channels=["*"], categories=["+@all"]
    )
    app = start_app(server.url.replace("redis://", "redis://u:p@"), lease_seconds=60)
    with hold("job", app=app) as lease:
        wait_until(lambda: connected(near))
        near.client.execute_command("ACL", "SETUSER", "u", "resetchannels")  # and the server hangs up
        wait_until(lambda: not connected(near), GRACE_SECONDS)
        end = time.monotonic() + 2 * GRACE_SECONDS
        while time.monotonic() < end:
            assert near.refused().answer == "locked"
            time.sleep(GRACE_SECONDS / 10)
        assert lease.check(), "the renewals go on, and the expiry decides"


def test_on_a_slow_way_a_lease_is_trusted_from_its_first_look_on(
    start_app: Start, server: Server, start_proxy: Callable[[Server], Proxy]
) -> None:
    slow = start_proxy(server)
    slow.delay(0.1)
    with hold("job", app=start_app(slow.url, lease_seconds=60)) as lease:
        end = time.monotonic() + 1.5 * GRACE_SECONDS
        while time.monotonic() < end:
            assert lease.check()
            time.sleep(GRACE_SECONDS / 10)


def test_a_dead_lease_of_this_process_does_not_keep_its_next_run_out(
    far_app: Celery, proxy: Proxy, near: Job
) -> None:
    with hold("job", app=far_app):
        wait_until(lambda: connected(near))
        proxy.cut()
    proxy.heal()  # within the second between two attempts at the release
    with hold("job", app=far_app) as lease:
        assert lease.check()


def test_a_clock_that_is_set_back_during_a_grace_starts_it_anew(near: Job) -> None:
    near.acquire(channel="cron:{job}:alive:dead")
    near.client.hset(near.keys.lease, "alive", "cron:{job}:alive:dead")
    later = near.client.time()[0] * 1000 + 600_000
    near.client.hset(near.keys.lease, mapping={"gone_since": later, "gone_seen": later})
    began = time.monotonic()
    take_over(near)
    assert GRACE_SECONDS - 0.1 < time.monotonic() - began < 2 * GRACE_SECONDS


def test_trust_ends_before_a_takeover(far_app: Celery, proxy: Proxy, near: Job) -> None:
    with hold("job", app=far_app) as lease:
        wait_until(lambda: connected(near))
        proxy.cut()
        began = time.monotonic()
        take_over(near)
        assert time.monotonic() - began >= GRACE_SECONDS
        assert lease.suspect
        proxy.heal()
        wait_until(lambda: lease.lost, 5)


def test_on_a_slow_way_back_a_lease_that_was_taken_over_is_never_trusted_again(
    far_app: Celery, proxy: Proxy, near: Job
) -> None:
    with hold("job", app=far_app) as lease:
        wait_until(lambda: connected(near))
        proxy.cut()
        take_over(near)
        proxy.heal()
        proxy.delay(0.05)  # each way
        assert not trusted_while(lease, lambda: lease.lost)


def test_a_store_that_answers_checks_and_no_renewals_brings_no_trust_back(
    far_app: Celery, proxy: Proxy, near: Job
) -> None:
    with hold("job", app=far_app) as lease:
        wait_until(lambda: connected(near))
        proxy.cut()
        take_over(near)
        near.client.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")
        proxy.heal()
        channel = lease.claim.channel
        wait_until(lambda: dict(near.client.pubsub_shardnumsub(channel)).get(channel))
        end = time.monotonic() + 1
        assert not trusted_while(lease, lambda: time.monotonic() > end)
        near.client.execute_command("ACL", "SETUSER", "default", "+evalsha", "+eval")
        wait_until(lambda: lease.lost, 15)


def test_trust_ends_in_time_although_the_answer_to_a_renewal_was_lost(
    far_app: Celery, proxy: Proxy, near: Job
) -> None:
    """The renewal that says "I am connected" arrived: from then on the store would give the lease away."""
    with hold("job", app=far_app) as lease:
        wait_until(lambda: connected(near))
        while connected(near):
            near.client.client_kill_filter(_type="pubsub", skipme=True)
            time.sleep(0.02)
        proxy.delay(0.05)  # each way
        wait_until(lambda: connected(near))
        proxy.cut()  # the answer is still on its way
        take_over(near)
        assert not lease.check()
        proxy.heal()


def test_an_end_that_is_not_confirmed_does_not_make_the_next_run_of_the_process_look_dead(
    far_app: Celery, proxy: Proxy, near: Job
) -> None:
    def first_run() -> None:
        with hold("job", app=far_app):
            wait_until(lambda: connected(near))
            proxy.drop_answers()

    with hold("job", app=far_app):
        pass  # now the store knows every script, and takes in each call at the first go
    first = threading.Thread(target=first_run)
    first.start()
    wait_until(lambda: near.total("ran") == 2)
    proxy.heal()
    with hold("job", app=far_app) as lease:
        first.join()  # by now it repeats its release, which the store had carried out
        end = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < end:
            assert lease.check()
            assert near.refused().answer == "locked"
            time.sleep(GRACE_SECONDS / 10)
        wait_until(lambda: connected(near))


def test_a_store_that_was_busy_when_it_was_asked_to_watch_is_asked_again(
    far_app: Celery, proxy: Proxy, near: Job, server: Server
) -> None:
    def run_for_ever() -> None:
        with server.client() as client, pytest.raises(ResponseError, match="killed"):
            client.eval("while true do end", 0)

    near.client.config_set("busy-reply-threshold", "10")
    with hold("job", app=far_app) as lease:
        wait_until(lambda: connected(near))
        proxy.cut()
        busy = threading.Thread(target=run_for_ever)
        busy.start()
        connections = proxy.connections
        proxy.heal()
        wait_until(lambda: proxy.connections > connections + 2)
        near.client.script_kill()
        busy.join()
        wait_until(lambda: near.store.connected(near.client, [lease.claim.channel])[lease.claim.channel], 5)
        wait_until(lease.check, 5)
        assert connected(near)


def test_any_number_of_runs_that_waited_for_dead_holders_are_alive_themselves(
    far_app: Celery, near: Job
) -> None:
    jobs = [Job(near.store, near.client, f"job{number}") for number in range(80)]
    done, entered = threading.Event(), threading.Barrier(len(jobs) + 1)
    with near.client.pubsub() as dead:
        for job in jobs:
            channel = job.keys.alive("dead")
            dead.ssubscribe(channel)
            wait_until(lambda channel=channel: near.store.connected(near.client, [channel])[channel])  # type: ignore[misc]
            job.acquire(channel=channel)

    def run(name: str) -> None:
        with hold(name, app=far_app):
            entered.wait(20)
            done.wait(20)

    threads = [threading.Thread(target=run, args=(job.keys.name,)) for job in jobs]
    for thread in threads:
        thread.start()
    entered.wait(20)
    try:
        wait_until(lambda: all(map(connected, jobs)), 5)
    finally:
        done.set()
        for thread in threads:
            thread.join()
