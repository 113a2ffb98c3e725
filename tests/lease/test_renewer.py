"""The thread that renews: in one breath for all leases, over every fault, and never in anybody's way."""

import logging
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import pytest
from celery import Celery

from celery_lease import Skipped, hold
from celery_lease import _renewer as module
from celery_lease._errors import StoreUnavailable
from celery_lease._live import LiveConnection
from celery_lease._renewer import Renewer, _Entry
from celery_lease._run import Run
from celery_lease._store import Store, store_of
from tests.nodes.ports import free_port
from tests.nodes.waiting import wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server

KEY = "cron:{job}"
NAME = "celery-lease-renewer"

Start = Callable[..., Celery]


_before: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _threads_of_other_tests() -> None:
    """Tests elsewhere leave their thread to end by itself, after a minute."""
    _before.clear()
    _before.update(threading.enumerate())


def renewer_threads() -> list[threading.Thread]:
    """Those that this test has started."""
    return [thread for thread in threading.enumerate() if thread.name == NAME and thread not in _before]


def wait_for_renewals(client: Any, key: str = KEY, count: int = 2, seconds: float = 5) -> None:
    """Wait until the lease has been renewed so many times more."""
    for _ in range(count):
        before = client.hget(key, "renewed")
        wait_until(lambda before=before: client.hget(key, "renewed") not in (before, None), seconds)  # type: ignore[misc]


@pytest.fixture
def own_app(start_app: Start, server: Server) -> Celery:
    """An app with the shortest lease that there is, on this test's own server."""
    return start_app(server.url, lease_seconds=1)


@pytest.fixture
def own_client(server: Server) -> Iterator[Any]:
    with server.client() as client:
        yield client


@pytest.fixture
def quick_app(start_app: Start) -> Celery:
    """The same, on the shared server."""
    return start_app(lease_seconds=1)


def test_all_leases_of_a_process_are_renewed_in_one_round_trip(
    start_app: Start, proxy: Proxy, own_client: Any
) -> None:
    app = start_app(proxy.url, lease_seconds=1)
    names = [f"job{number}" for number in range(10)]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(hold(name, app=app))
        wait_for_renewals(own_client, "cron:{job0}")  # by now they go together
        calls = own_client.info("commandstats")["cmdstat_evalsha"]["calls"]
        turns = proxy.turns("EVALSHA")
        wait_for_renewals(own_client, "cron:{job0}", 5)
        turns = proxy.turns("EVALSHA") - turns
        calls = own_client.info("commandstats")["cmdstat_evalsha"]["calls"] - calls
        assert all(own_client.exists(f"cron:{{{name}}}") for name in names)
    assert calls >= 5 * len(names)
    # One or two: the server may begin to answer before the last piece of many has arrived.
    assert turns <= 2 * calls / len(names) + 1


def test_one_thread_serves_all_threads_of_a_process(quick_app: Celery, client: Any) -> None:
    both = threading.Barrier(3)

    def work(name: str) -> None:
        with hold(name, app=quick_app):
            both.wait(10)
            both.wait(10)

    workers = [threading.Thread(target=work, args=(name,)) for name in ("left", "right")]
    for worker in workers:
        worker.start()
    both.wait(10)
    assert len(renewer_threads()) == 1
    wait_for_renewals(client, "cron:{left}")
    wait_for_renewals(client, "cron:{right}")
    both.wait(10)
    for worker in workers:
        worker.join()


def _restarts_empty(server: Server, _client: Any) -> None:
    server.stop()
    server.start()


@contextmanager
def _frozen(server: Server, _client: Any) -> Iterator[None]:
    server.freeze()
    yield
    server.thaw()


@contextmanager
def _read_only(_server: Server, client: Any) -> Iterator[None]:
    client.replicaof("127.0.0.1", str(free_port()))
    yield
    client.replicaof("NO", "ONE")


@contextmanager
def _out_of_memory(_server: Server, client: Any) -> Iterator[None]:
    client.config_set("maxmemory", "1")
    yield
    client.config_set("maxmemory", "0")


@contextmanager
def _forbidding(_server: Server, client: Any) -> Iterator[None]:
    client.acl_setuser("default", commands=["-evalsha", "-eval"])
    yield
    client.acl_setuser("default", commands=["+evalsha", "+eval"])


@contextmanager
def _busy(server: Server, client: Any) -> Iterator[None]:
    client.config_set("busy-reply-threshold", "10")
    stuck = threading.Thread(target=_run_for_ever, args=(server,))
    stuck.start()
    yield
    client.script_kill()
    stuck.join()


def _run_for_ever(server: Server) -> None:
    with server.client() as other, pytest.raises(Exception, match=r"(?i)kill"):
        other.eval("while true do end", 0)


@pytest.mark.parametrize(
    "fault", [_frozen, _read_only, _out_of_memory, _forbidding, _busy], ids=lambda fault: fault.__name__[1:]
)
def test_a_renewal_that_fails_is_survived(
    own_app: Celery, server: Server, own_client: Any, caplog: pytest.LogCaptureFixture, fault: Any
) -> None:
    with hold("job", app=own_app) as lease:
        with fault(server, own_client):
            wait_until(lambda: "renewal failed" in caplog.text, 6)
        wait_for_renewals(own_client)
        wait_until(lambda: not lease.suspect)
        assert lease.check()
        assert not lease.lost
        assert own_client.hget(KEY, "token") == lease.token
    assert own_client.hget(f"{KEY}:ledger", "total:ran") == "1"
    assert "unexpected" not in caplog.text


@pytest.mark.parametrize(
    "fault",
    [
        _restarts_empty,
        lambda _, client: client.script_flush(),
        lambda _, client: client.client_kill_filter(_type="normal", skipme=True),
        lambda _, client: client.client_kill_filter(_type="pubsub", skipme=True),
        lambda _, client: client.flushall(),
        lambda _, client: client.delete(KEY),
    ],
    ids=["restarted empty", "forgot scripts", "killed clients", "killed subscribers", "flushed", "deleted"],
)
def test_a_fault_that_is_over_at_once_costs_nothing(
    own_app: Celery, server: Server, own_client: Any, caplog: pytest.LogCaptureFixture, fault: Any
) -> None:
    with hold("job", app=own_app) as lease:
        fault(server, own_client)
        wait_for_renewals(own_client, count=3)
        wait_until(lambda: not lease.suspect)
        assert not lease.lost
        held = own_client.hgetall(KEY)
        assert (held["token"], int(held["fence"])) == (lease.token, lease.fence)
        assert held["since"] == lease.grant.since
    assert not own_client.exists(KEY)
    assert own_client.hget(f"{KEY}:ledger", "total:ran") == "1"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_failed_renewals_are_repeated_well_inside_the_lease_and_ever_less_often(quick_app: Celery) -> None:
    with hold("job", app=quick_app) as lease:
        pass
    entry = _Entry(lease, store_of(quick_app), every=90.0, due=0.0, until=float("inf"))
    waits = []
    for _ in range(8):
        entry.back_off(1000.0)
        waits.append(entry.due - 1000.0)
    assert waits == [0.5, 1, 2, 4, 8, 10, 10, 10]
    short = _Entry(lease, store_of(quick_app), every=0.3, due=0.0, until=float("inf"))
    short.back_off(1000.0)
    assert short.due - 1000.0 == pytest.approx(0.15)


def test_an_unexpected_error_is_said_and_renewing_goes_on(
    quick_app: Celery, client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renew, broken = Store.renew, iter([RuntimeError("a bug"), TypeError("another")])

    def sometimes(self: Store, claims: Any) -> Any:
        for error in broken:
            raise error
        return renew(self, claims)

    monkeypatch.setattr(Store, "renew", sometimes)
    with hold("job", app=quick_app) as lease:
        wait_until(lambda: caplog.text.count("unexpected error") == 2)
        wait_for_renewals(client)
        assert not lease.lost


@pytest.mark.parametrize("step", ["check", "tend"])
def test_an_error_that_stays_in_the_checks_does_not_stop_renewals(
    quick_app: Celery, client: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with hold("job", app=quick_app) as lease:

        def always(*_: Any) -> Any:
            raise RuntimeError("a bug")

        if step == "check":
            monkeypatch.setattr(Store, "connected", always)
        else:
            monkeypatch.setattr(LiveConnection, "tend", always)
        wait_for_renewals(client, count=4)
        assert client.hget(KEY, "token") == lease.token
        monkeypatch.undo()


def test_an_end_that_cannot_be_settled_does_not_stop_renewals_nor_other_ends(
    quick_app: Celery, client: Any, renewer: Renewer, caplog: pytest.LogCaptureFixture
) -> None:
    def never() -> None:
        raise RuntimeError("a bug")

    settled: list[str] = []
    with hold("job", app=quick_app):
        for action in (never, lambda: settled.append("the other")):
            renewer.settle(store_of(quick_app), "", action)
        wait_for_renewals(client, count=4)
    wait_until(lambda: settled == ["the other"], 5)
    assert "a bug" in caplog.text


def test_a_store_that_stays_away_does_not_hold_up_what_another_has_to_confirm(
    start_app: Start, quick_app: Celery, renewer: Renewer
) -> None:
    away = store_of(start_app(f"redis://127.0.0.1:{free_port()}/0"))

    def unavailable() -> None:
        raise StoreUnavailable("away")

    settled: list[str] = []
    renewer.settle(away, "", unavailable)
    renewer.settle(store_of(quick_app), "", lambda: settled.append("there"))
    wait_until(lambda: settled == ["there"], 5)


def test_what_one_store_did_not_confirm_is_repeated_every_second_until_it_does(
    quick_app: Celery, renewer: Renewer
) -> None:
    asked: list[float] = []

    def unavailable_twice() -> None:
        asked.append(time.monotonic())
        if len(asked) < 3:
            raise StoreUnavailable("away")

    renewer.settle(store_of(quick_app), "", unavailable_twice)
    wait_until(lambda: len(asked) == 3)
    for before, after in pairwise(asked):
        assert 0.9 < after - before < 2


def test_of_too_many_unconfirmed_ends_a_skip_goes_before_a_release_and_the_log_says_so(
    start_app: Start, start_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    store = start_server(persistent=True)
    app = start_app(store.url, lease_seconds=30)
    with hold("job", app=app):
        store.stop()
    for number in range(module._MOST_UNSETTLED + 3):
        with pytest.raises(Skipped), hold(f"other{number}", app=app):
            pass
    assert "one skip is given up" in caplog.text
    assert "one release" not in caplog.text
    store.start()
    with store.client() as client:
        wait_until(lambda: client.xlen(f"{KEY}:runs"), 5)
        assert [record["outcome"] for _, record in client.xrange(f"{KEY}:runs")] == ["ran"]


def test_a_process_with_more_than_a_thousand_files_renews_its_leases(quick_app: Celery, client: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"this process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    with ExitStack() as files:
        for _ in range(1100):
            files.enter_context(open(os.devnull))  # noqa: PTH123 - as many as quickly as possible
        with hold("job", app=quick_app) as lease:
            wait_for_renewals(client, count=3)
            assert lease.check()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_whoever_may_run_scripts_but_not_load_them_renews_its_leases(
    start_app: Start, server: Server, own_client: Any
) -> None:
    own_client.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-script")
    app = start_app(server.url.replace("redis://", "redis://u:p@"), lease_seconds=1)
    with hold("job", app=app) as lease:
        wait_for_renewals(own_client, count=3)
        assert lease.check()


def test_past_its_own_hard_time_limit_a_run_is_not_renewed_any_more(
    quick_app: Celery, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(store_of(quick_app), "job", {}, runs_at_most=1)
    began = time.monotonic()
    lease = run.open()
    wait_until(lambda: not client.exists(KEY), 4)
    assert 1 <= time.monotonic() - began < 3
    assert lease.suspect
    assert "past its hard time limit" in caplog.text
    run.close("ran")


def test_the_thread_ends_when_there_is_nothing_to_do_and_a_new_one_starts_for_the_next_lease(
    quick_app: Celery, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.2)
    for _ in range(2):
        with hold("job", app=quick_app):
            [thread] = renewer_threads()
            wait_for_renewals(client, count=3)  # three times the idle time and more
            assert renewer_threads() == [thread]
        wait_until(lambda: not renewer_threads(), 3)


def test_a_lease_taken_while_the_thread_is_ending_is_renewed(
    quick_app: Celery, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.02)
    for number in range(100):
        time.sleep(0.015 + 0.0001 * number)  # not to wait for anything, but to meet the end at every moment
        with hold("job", app=quick_app):
            pass
    with hold("job", app=quick_app):
        wait_for_renewals(client, count=3)


def test_a_run_that_comes_just_before_the_thread_would_end_is_seen_alive(
    start_app: Start, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = start_app(proxy.url, lease_seconds=300)
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.5)
    for attempt in range(5):
        proxy.heal()
        with hold(f"first{attempt}", app=app):
            threads = renewer_threads()
        time.sleep(0.4)  # not to wait for anything, but to come late
        proxy.delay(0.1)  # each way, so that joining ends after the thread would have
        if renewer_threads() == threads:
            with hold(f"second{attempt}", app=app) as lease:
                assert lease.alive
            return
    pytest.fail("this machine is too slow for that")


def test_a_lease_that_nobody_renews_ends_by_itself_and_its_body_knows(
    quick_app: Celery, client: Any, renewer: Renewer
) -> None:
    with hold("job", app=quick_app) as lease:
        renewer.remove(lease)
        wait_until(lambda: not client.exists(KEY), 2)
        assert lease.suspect
