"""What a body knows about its lease: held, suspect, lost; and what is said about it, without secrets."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from celery import Celery

from celery_lease import Lease, LeaseError, LeaseLost, Skipped, current_lease, hold
from celery_lease._lease import OnLost
from tests.nodes.waiting import wait_until
from tests.support.leases import leased
from tests.support.proxy import Proxy
from tests.support.servers import Server

KEY = "cron:{job}"
STRANGER = {"token": "0" * 32, "fence": "9000000000000000", "task_id": "other"}

Start = Callable[..., Celery]


def steal(client: Any) -> None:
    """Another owner comes in, as after a loss of data."""
    with client.pipeline(transaction=True) as pipe:
        pipe.delete(KEY)
        pipe.hset(KEY, mapping=STRANGER)
        pipe.set(f"{KEY}:fence", STRANGER["fence"])
        pipe.execute()


@pytest.fixture
def app(start_app: Start) -> Celery:
    """With the shortest lease that there is."""
    return start_app(lease_seconds=1)


@pytest.fixture
def far_app(start_app: Start, proxy: Proxy) -> Celery:
    """The same, behind a proxy."""
    return start_app(proxy.url, lease_seconds=1)


@pytest.fixture
def far_client(server: Server) -> Iterator[Any]:
    with server.client() as client:
        yield client


def test_a_lease_can_be_trusted_while_it_is_renewed(app: Celery, client: Any) -> None:
    with hold("job", app=app) as lease:
        seen: set[str] = set()
        while len(seen) < 8:
            assert lease.check()
            assert (lease.suspect, lease.lost) == (False, False)
            seen.add(client.hget(KEY, "renewed"))


def test_without_an_answer_a_lease_is_suspect_before_it_ends_and_trusted_again_after_one(
    far_app: Celery, proxy: Proxy, far_client: Any
) -> None:
    with hold("job", app=far_app) as lease:
        proxy.black_hole()
        wait_until(lambda: lease.suspect, 3)
        assert lease.check() is False
        assert lease.lost is False
        assert repr(lease) == f"<Lease 'job' fence={lease.fence} suspect>"
        proxy.heal()
        wait_until(lambda: not lease.suspect, 5)
        assert lease.check() is True
        assert far_client.hget(KEY, "token") == lease.token
    assert far_client.hget(f"{KEY}:ledger", "total:ran") == "1"


def test_trust_ends_before_the_store_lets_the_next_one_in(
    far_app: Celery, proxy: Proxy, far_client: Any
) -> None:
    for _ in range(3):
        with hold("job", app=far_app) as lease:
            proxy.black_hole()
            wait_until(lambda lease=lease: lease.suspect or not far_client.exists(KEY), 3)  # type: ignore[misc]
            assert lease.suspect
            assert far_client.exists(KEY)
            proxy.heal()


def test_a_slow_answer_does_not_stretch_trust(far_app: Celery, proxy: Proxy) -> None:
    with hold("job", app=far_app):
        pass  # now it is connected
    proxy.delay(0.2)  # each way
    asked_at = time.monotonic()
    with hold("job", app=far_app) as lease:
        assert time.monotonic() - asked_at > 0.4
        proxy.black_hole()
        wait_until(lambda: lease.suspect, 3)
        assert time.monotonic() - asked_at < 1.2
        proxy.heal()


def test_a_slow_renewal_does_not_stretch_trust(far_app: Celery, proxy: Proxy) -> None:
    with hold("job", app=far_app) as lease:
        proxy.delay(0.15)
        deadlines = []
        for _ in range(4):
            before = lease._deadline
            wait_until(lambda before=before: lease._deadline != before, 3)  # type: ignore[misc]
            deadlines.append(lease._deadline - time.monotonic())
        # Asked 0.3 s ago or more; what an answer grants, it grants from then on.
        assert max(deadlines) <= 1 - 0.3 + 0.02
        proxy.heal()


def test_another_owner_is_seen_and_final(app: Celery, client: Any, caplog: pytest.LogCaptureFixture) -> None:
    with hold("job", app=app) as lease:
        steal(client)
        wait_until(lambda: lease.lost, 3)
        assert lease.check() is False
        assert lease.suspect is False
        assert repr(lease) == f"<Lease 'job' fence={lease.fence} lost>"
        client.delete(KEY)
        with hold("other", app=app):
            for _ in range(3):  # the same thread would retake the lease
                before = client.hget("cron:{other}", "renewed")
                wait_until(lambda before=before: client.hget("cron:{other}", "renewed") != before)  # type: ignore[misc]
        assert lease.lost
        assert not client.exists(KEY)
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == [
        f"job: lease lost (fence {lease.fence}): another owner was seen while the run was going on"
    ]
    assert client.hget(f"{KEY}:ledger", "total:lost") == "1"
    assert not client.hexists(f"{KEY}:ledger", "last_ran")


def test_a_lost_lease_is_not_taken_from_its_new_owner_at_the_end(app: Celery, client: Any) -> None:
    with hold("job", app=app):
        steal(client)
    assert client.hgetall(KEY) == STRANGER


@pytest.mark.parametrize("on_lost", ["continue", "abort"])
def test_who_wants_to_stop_is_stopped_at_the_next_check(app: Celery, client: Any, on_lost: OnLost) -> None:
    reached = []

    def body() -> None:
        with hold("job", app=app, on_lost=on_lost) as lease:
            steal(client)
            wait_until(lambda: lease.lost, 3)
            reached.append("the end of the wait")
            lease.check()
            reached.append("the end")

    if on_lost == "abort":
        with pytest.raises(LeaseLost, match=r"'job' \(fence \d+\) cannot be trusted: another owner was seen"):
            body()
        assert reached == ["the end of the wait"]
    else:
        body()
        assert reached == ["the end of the wait", "the end"]
    assert client.hget(f"{KEY}:ledger", "total:lost") == "1"


def test_who_wants_to_stop_is_stopped_by_doubt_too(far_app: Celery, proxy: Proxy) -> None:
    with hold("job", app=far_app, on_lost="abort") as lease:
        assert lease.check()
        proxy.black_hole()
        wait_until(lambda: lease.suspect, 3)
        with pytest.raises(LeaseLost, match="the store has not confirmed it in time"):
            lease.check()
        proxy.heal()
        wait_until(lambda: not lease.suspect, 5)
        assert lease.check()


def test_a_task_says_at_its_definition_what_it_does_when_its_lease_is_lost(app: Celery, client: Any) -> None:
    @leased(app, on_lost="abort")
    def job() -> None:
        steal(client)
        wait_until(lambda: current_lease().lost, 3)
        current_lease().check()
        pytest.fail("went on")

    assert isinstance(job.apply().result, LeaseLost)
    assert client.hget(f"{KEY}:ledger", "total:lost") == "1"


def test_a_body_that_finds_out_for_itself_is_a_lost_run(app: Celery, client: Any) -> None:
    class StaleFence(LeaseLost):
        pass

    with pytest.raises(StaleFence), hold("job", app=app):
        raise StaleFence("a newer fence has written")
    assert client.hget(f"{KEY}:ledger", "total:lost") == "1"
    assert not client.exists(KEY)


@pytest.mark.parametrize("on_lost", ["stop", "", None, "Abort"])
def test_nothing_but_continue_and_abort_can_be_asked_for(app: Celery, on_lost: Any) -> None:
    with pytest.raises(LeaseError, match="on_lost"):
        leased(app, on_lost=on_lost)(test_nothing_but_continue_and_abort_can_be_asked_for)
    with pytest.raises(LeaseError, match="on_lost"), hold("job", app=app, on_lost=on_lost):
        pytest.fail("entered")


def test_no_line_and_no_repr_shows_a_token_or_a_password(
    start_app: Start, server: Server, proxy: Proxy, caplog: pytest.LogCaptureFixture, far_client: Any
) -> None:
    word = "w0rd-of-the-store"
    caplog.set_level(logging.DEBUG)
    far_client.acl_setuser(
        "jobs", enabled=True, passwords=[f"+{word}"], commands=["+@all"], keys=["*"], channels=["*"]
    )
    app = start_app(proxy.url.replace("//", f"//jobs:{word}@"), lease_seconds=1)
    leases: list[Lease] = []
    reprs: list[str] = []

    def shown(lease: Lease) -> None:
        reprs.extend([repr(lease), str(lease), repr(lease.claim), repr(lease.grant)])

    with hold("job", app=app) as lease:
        leases.append(lease)
        shown(lease)
        with pytest.raises(Skipped) as caught, hold("job", app=app):
            pytest.fail("entered")
        reprs.extend([repr(caught.value), str(caught.value), repr(caught.value.args)])
        far_client.delete(KEY)  # retaken
        wait_until(lambda: "retaken" in caplog.text, 3)
        proxy.cut()
        wait_until(lambda: "renewal failed" in caplog.text, 5)
        with ExitStack() as others:  # lock_unavailable
            with suppress(Skipped):
                others.enter_context(hold("other", app=app))
            wait_until(lambda: lease.suspect, 5)
            shown(lease)
            proxy.heal()
        wait_until(lambda: not lease.suspect, 5)
        steal(far_client)
        wait_until(lambda: lease.lost, 5)
        shown(lease)
    far_client.delete(KEY)
    with hold("job", app=app) as lease:
        leases.append(lease)
        proxy.cut()  # an unconfirmed release
    assert "will be repeated" in caplog.text
    proxy.heal()
    wait_until(lambda: not far_client.exists(KEY), 5)
    lines = [f"{record.getMessage()} {record.exc_text or ''} {record.exc_info}" for record in caplog.records]
    everything = "\n".join([*lines, caplog.text, *reprs])
    assert word not in everything
    for lease in leases:
        assert lease.token not in everything
        assert lease.token[:16] not in everything
