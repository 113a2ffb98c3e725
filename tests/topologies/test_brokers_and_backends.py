"""The leases are in Redis, messages and results wherever you like: what a run and a skip look like then."""

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from celery.exceptions import TimeoutError as NobodySaid

from celery_lease import SKIPPED, Skipped
from tests.nodes.missing import needs_package
from tests.nodes.sessions import Reaper
from tests.nodes.waiting import wait_until
from tests.support.site import Site
from tests.topologies.postgres import Postgres
from tests.topologies.rabbit import Rabbit

pytestmark = pytest.mark.slow

LEASE_SECONDS = 3


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory, reaper: Reaper) -> Iterator[Rabbit]:
    rabbit = Rabbit(tmp_path_factory.mktemp("rabbit"), reaper)
    yield rabbit
    rabbit.close()


@pytest.fixture(scope="module")
def postgres(reaper: Reaper) -> Iterator[Postgres]:
    needs_package("psycopg")
    postgres = Postgres(reaper)
    yield postgres
    postgres.close()


@pytest.fixture
def installation(request: pytest.FixtureRequest, start_site: Callable[..., Site], redis_url: str) -> Site:
    """The probe app with the broker and the result backend that the test names."""
    broker, backend = request.param
    urls: dict[str, Callable[[], str]] = {
        "redis": lambda: redis_url,
        "rpc": lambda: "rpc://",
        "nothing": lambda: "disabled://",
    }
    urls["rabbitmq"] = lambda: request.getfixturevalue("rabbit").url
    urls["postgresql"] = lambda: f"db+{request.getfixturevalue('postgres').url}"
    site = start_site(urls[broker](), backend=urls[backend](), leases=redis_url, side=redis_url)
    site.app.control.purge()  # the broker may have served another test
    return site


READABLE = [("rabbitmq", "redis"), ("rabbitmq", "rpc"), ("redis", "postgresql"), ("rabbitmq", "postgresql")]
SILENT = [("rabbitmq", "nothing"), ("redis", "nothing")]


def named(installations: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Parametrize `installation`."""
    return pytest.mark.parametrize(
        "installation",
        installations,
        ids=[f"{broker}, {backend}" for broker, backend in installations],
        indirect=True,
    )


def wait_until_skipped(site: Site, number: int) -> None:
    """So many skips are in the ledger."""
    wait_until(lambda: site.total("barrier", "skipped_locked") == number)


@named([("rabbitmq", "redis"), ("rabbitmq", "rpc"), ("redis", "postgresql"), ("redis", "nothing")])
def test_a_run_is_exclusive_beyond_its_lease_and_taken_over_when_its_process_is_killed(
    installation: Site,
) -> None:
    site = installation
    worker = site.start_worker(concurrency=2)
    site.occupy()
    began = site.held("barrier")
    deadline, skips = time.monotonic() + LEASE_SECONDS + 0.5, 0
    while time.monotonic() < deadline:
        site.send("barrier")
        skips += 1
        wait_until_skipped(site, skips)
        time.sleep(0.3)
    held = site.held("barrier")
    assert (held["token"], held["alive"]) == (began["token"], began["alive"])
    site.open()
    wait_until(lambda: site.outcomes("barrier")[-1:] == ["ran"])
    assert site.held("barrier") == {}
    site.send("barrier", "second")
    os.kill(site.entered("second"), signal.SIGKILL)
    wait_until(lambda: not site.is_holder_connected("barrier"))
    site.send("barrier", "third")
    site.entered("third", seconds=LEASE_SECONDS + 2)
    site.open("third")
    wait_until(lambda: site.outcomes("barrier")[skips:] == ["ran", "abandoned", "ran"])
    assert site.held("barrier") == {}
    assert worker.is_alive()


@named(READABLE)
def test_who_waits_for_a_skip_gets_it_with_its_holder(installation: Site) -> None:
    site = installation
    site.start_worker()
    first = site.occupy()
    second = site.send("barrier")
    with pytest.raises(Skipped) as skip:
        second.get(timeout=5)
    assert (skip.value.reason, skip.value.name) == ("locked", "barrier")
    assert skip.value.holder["task_id"] == first.id
    assert second.state == SKIPPED
    assert second.ready()
    site.open()
    assert first.get(timeout=5) == "opened"
    assert first.state == "SUCCESS"
    with pytest.raises(ValueError, match="on purpose"):
        site.send("fail").get(timeout=10)
    assert site.send("retry", 2).get(timeout=10) == 3
    assert site.outcomes("retry") == ["retried", "retried", "ran"]


@named(SILENT)
def test_without_a_result_backend_a_skip_shows_in_the_log_the_events_and_the_ledger(
    installation: Site,
) -> None:
    site = installation
    worker = site.start_worker()
    first = site.occupy()
    with site.events("task-skipped") as so_far:
        second = site.send("barrier")
        wait_until(so_far)
        [event] = so_far()
    assert (event["uuid"], event["reason"]) == (second.id, "locked")
    assert first.id in event["exception"]
    worker.wait_for(rf"WARNING.*barrier\[{second.id}\] skipped: locked, held by task {first.id}")
    assert site.total("barrier", "skipped_locked") == 1
    with pytest.raises(NotImplementedError, match="No result backend"):
        second.get(timeout=1)
    site.open()
    wait_until(lambda: site.outcomes("barrier") == ["skipped_locked", "ran"])
    assert worker.count("Traceback|ERROR") == 0


def test_where_results_are_ignored_a_skip_shows_in_the_log_the_events_and_the_ledger(
    start_site: Callable[..., Site], redis_url: str
) -> None:
    site = start_site(redis_url, conf={"task_ignore_result": True})
    worker = site.start_worker()
    site.side.lpush("gate:entered", "nobody")  # `forgetful` has the lease of `barrier`, and no barrier
    site.leases.hset(site.key("barrier"), mapping={"token": "0" * 32, "task_id": "somebody", "pid": "1"})
    with site.events("task-skipped") as so_far:
        skipped = site.send("forgetful")
        wait_until(so_far)
    worker.wait_for(rf"WARNING.*\[{skipped.id}\] skipped: locked, held by task somebody")
    assert site.total("barrier", "skipped_locked") == 1
    with pytest.raises(NobodySaid):
        skipped.get(timeout=0.5)
    assert skipped.state == "PENDING"
