"""`with hold(...)`: the same lease outside Celery, in this process and in threads."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest
from celery import Celery

from celery_lease import Skipped, current_lease, hold
from tests.nodes.waiting import wait_until

KEY = "cron:{job}"


def ledger(client: Any, name: str = "job") -> dict[str, str]:
    return dict(client.hgetall(f"cron:{{{name}}}:ledger"))


def test_a_free_lease_is_held_for_the_block_and_free_after_it(app: Celery, client: Any) -> None:
    with hold("job", app=app) as lease:
        held = client.hgetall(KEY)
        assert held["token"] == lease.token
        assert int(held["fence"]) == lease.fence
        assert held["worker"] == "hold"
        assert lease.name == "job"
        assert lease.check()
        assert current_lease() is lease
    assert not client.exists(KEY)
    assert ledger(client)["total:ran"] == "1"


def test_outside_of_a_block_there_is_no_current_lease(app: Celery) -> None:
    with pytest.raises(LookupError, match="no lease is held here"):
        current_lease()
    with hold("job", app=app):
        pass
    with pytest.raises(LookupError):
        current_lease()


def test_a_held_lease_is_a_skip_that_never_enters_the_block(
    app: Celery, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with hold("job", app=app) as first:
        with pytest.raises(Skipped) as caught, hold("job", app=app):
            pytest.fail("entered")
        assert current_lease() is first
        assert client.hget(KEY, "token") == first.token
    assert caught.value.reason == "locked"
    assert caught.value.holder["since"] == first.grant.since
    [line] = caplog.records
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("job skipped: locked, held by a run outside Celery on hold (pid ")
    assert ledger(client)["streak"] == "0", "the first one ran after that"


class CannotGoOn(Exception):  # noqa: N818 - what a script may call it
    """A script's own."""


@pytest.mark.parametrize("error", [CannotGoOn, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_leaves_the_block_frees_the_lease_and_goes_on(
    app: Celery, client: Any, error: type[BaseException]
) -> None:
    with pytest.raises(error), hold("job", app=app):
        raise error
    assert not client.exists(KEY)
    assert ledger(client)["total:failed"] == "1"
    [(_, record)] = client.xrange(f"{KEY}:runs")
    assert record["error"] == error.__name__
    with pytest.raises(LookupError):
        current_lease()


def test_what_a_script_says_in_its_error_stays_out_of_the_ledger(app: Celery, client: Any) -> None:
    with pytest.raises(CannotGoOn), hold("job", app=app):
        raise CannotGoOn("the password is 1234")
    assert "1234" not in str(client.xrange(f"{KEY}:runs"))


def test_each_thread_has_the_lease_it_took_and_no_other(app: Celery, client: Any) -> None:
    together = threading.Barrier(4)

    def work(name: str) -> tuple[str, int]:
        with hold(name, app=app) as lease:
            together.wait(10)
            assert current_lease() is lease
            together.wait(10)
            return current_lease().name, lease.fence

    names = [f"job{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(work, names))
    assert [name for name, _ in seen] == names
    assert client.keys("cron:{job?}") == []


def test_a_thread_that_the_block_starts_is_handed_the_lease_or_has_none(app: Celery) -> None:
    found: SimpleQueue[object] = SimpleQueue()

    def look() -> None:
        try:
            found.put(current_lease())
        except LookupError as error:
            found.put(error)

    with hold("job", app=app):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert isinstance(found.get(timeout=1), LookupError)


def test_of_many_threads_that_want_one_lease_one_at_a_time_gets_it(app: Celery, client: Any) -> None:
    inside: list[int] = []
    fences: list[int] = []
    most: list[int] = []

    def work(_: int) -> None:
        while True:
            try:
                with hold("job", app=app) as lease:
                    inside.append(1)
                    most.append(len(inside))
                    fences.append(lease.fence)
                    inside.pop()
                    return
            except Skipped:
                continue

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert set(most) == {1}
    assert fences == sorted(set(fences))
    assert ledger(client)["total:ran"] == "40"


def test_nothing_is_renewed_after_the_block(start_app: Callable[..., Celery], client: Any) -> None:
    app = start_app(lease_seconds=1)

    def renewed() -> str | None:
        answer: str | None = client.hget("cron:{other}", "renewed")
        return answer

    with hold("other", app=app):
        with hold("job", app=app):
            pass
        for _ in range(3):  # the same thread would renew both
            before = renewed()
            wait_until(lambda before=before: renewed() != before)  # type: ignore[misc]
            assert not client.exists(KEY)
