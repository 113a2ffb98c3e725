"""A store that is stopped in its tracks: connections stand, nothing is answered, and all is done later."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery

from celery_lease import SKIPPED, Skipped, hold
from tests.nodes.waiting import wait_until
from tests.support.leases import leased
from tests.support.scripts import ended
from tests.support.servers import Server
from tests.support.site import seconds_of

KEY = "cron:{job}"


@pytest.fixture
def app(start_app: Callable[..., Celery], server: Server) -> Celery:
    return start_app(server.url, lease_seconds=300)


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with server.client() as outside:
        yield outside


def ledger(client: Any) -> dict[str, str]:
    return dict(client.hgetall(f"{KEY}:ledger"))


def outcomes(client: Any) -> list[str]:
    return [record["outcome"] for _, record in client.xrange(f"{KEY}:runs")]


def skipped(app: Celery) -> Skipped:
    with pytest.raises(Skipped) as caught, hold("job", app=app):
        pytest.fail("entered")
    return caught.value


def granted_within(seconds: float, app: Celery) -> None:
    """Ask until the lease is granted, as a schedule does."""

    def is_granted() -> bool:
        try:
            with hold("job", app=app):
                return True
        except Skipped:
            return False

    assert seconds_of(lambda: wait_until(is_granted, seconds)) < seconds


@pytest.mark.parametrize("is_warm", [False, True], ids=["first use", "connected before"])
def test_a_frozen_store_is_a_skip_within_its_bound_and_leaves_no_lease_to_nobody(
    app: Celery, server: Server, client: Any, *, is_warm: bool
) -> None:
    if is_warm:
        with hold("job", app=app):
            pass
    server.freeze()
    skips: list[Skipped] = []
    # Joining the channel first, where there is none yet.
    assert seconds_of(lambda: skips.append(skipped(app))) < 2.5 + (0 if is_warm else 0.5)
    assert skips[0].reason == "lock_unavailable"
    assert "Timeout" in skips[0].detail
    server.thaw()
    granted_within(3, app)
    wait_until(lambda: ledger(client).get("total:skipped_lock_unavailable") == "1", 5)
    assert "skipped_locked" not in outcomes(client)
    assert "abandoned" not in outcomes(client)
    assert not client.exists(KEY)


def test_a_frozen_store_is_recorded_once_however_often_it_was_asked_again(
    app: Celery, server: Server, client: Any
) -> None:
    server.freeze()
    skipped(app)
    time.sleep(2.5)  # meanwhile the withdrawal is sent again and again into the silence
    server.thaw()
    wait_until(lambda: "total:skipped_lock_unavailable" in ledger(client), 5)
    granted_within(3, app)
    assert outcomes(client).count("skipped_lock_unavailable") == 1
    assert ledger(client)["total:skipped_lock_unavailable"] == "1"


def test_a_task_meets_a_frozen_store_and_says_so_within_five_seconds(
    app: Celery, server: Server, client: Any
) -> None:
    app.conf.task_store_eager_result = True

    @leased(app)
    def job() -> None:
        pytest.fail("entered")

    server.freeze()
    ends: list[str] = []
    assert seconds_of(lambda: ends.append(job.apply().state)) < 5
    assert ends == [SKIPPED]
    server.thaw()
    granted_within(3, app)


def test_a_run_whose_store_froze_at_its_end_is_recorded_as_it_ended_and_frees_its_lease(
    app: Celery, server: Server, client: Any
) -> None:
    with hold("job", app=app) as lease:
        server.freeze()
        left_at = time.monotonic()
    assert time.monotonic() - left_at < 2.5
    server.thaw()
    wait_until(lambda: "total:ran" in ledger(client), 5)
    assert not client.exists(KEY)
    assert outcomes(client) == ["ran"]
    [(_, record)] = client.xrange(f"{KEY}:runs")
    assert record["fence"] == str(lease.fence)
    granted_within(1, app)


def test_a_failed_run_whose_store_froze_at_its_end_is_recorded_as_failed(
    app: Celery, server: Server, client: Any
) -> None:
    def body() -> None:
        with hold("job", app=app):
            server.freeze()
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        body()
    server.thaw()
    wait_until(lambda: "total:failed" in ledger(client), 5)
    assert not client.exists(KEY)
    assert outcomes(client) == ["failed"]


def test_a_run_whose_store_went_away_for_good_is_over_all_the_same(app: Celery, server: Server) -> None:
    with hold("job", app=app):
        server.stop()
        left_at = time.monotonic()
    assert time.monotonic() - left_at < 2.5


def test_a_release_is_settled_with_a_store_that_comes_back_empty(
    app: Celery, server: Server, client: Any
) -> None:
    with hold("job", app=app):
        server.stop()
    server.start()
    wait_until(lambda: ledger(client).get("total:ran") == "1", 5)
    assert not client.exists(KEY)


def test_a_script_does_not_wait_for_a_frozen_store_to_end(server: Server, client: Any) -> None:
    done = ended(
        """
        import os, signal, sys, time
        from celery import Celery
        from celery_lease import hold
        app = Celery(broker=sys.argv[1], set_as_current=False)
        """,
        """
        with hold("job", app=app):
            os.kill(int(sys.argv[2]), signal.SIGSTOP)
        print(time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
        """,
        server.url,
        str(server.pid),
    )
    after = time.monotonic()
    assert done.returncode == 0, done.stderr
    assert after - float(done.stdout) < 1
    server.thaw()
