"""Whatever is down or frozen, every answer is right and comes within 5 s, and the health check goes on.

Lease store, broker and result backend are three servers, each stopped and frozen in turn under 20 triggers at
once.
"""

import concurrent.futures
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.nodes.sessions import Reaper
from tests.nodes.waiting import wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.site import Site
from tests.topologies.rabbit import Rabbit
from tests.web.server import Answer, Web

LIMIT_SECONDS = 5.0
AT_ONCE = 20


class Installation(NamedTuple):
    web: Web
    site: Site
    servers: dict[str, Server]


@pytest.fixture
def installation(
    start_server: Callable[..., Server], start_site: Callable[..., Site], start_web: Callable[..., Web]
) -> Iterator[Installation]:
    servers = {name: start_server() for name in ("broker", "store", "backend")}
    site = start_site(servers["broker"].url, backend=servers["backend"].url, leases=servers["store"].url)
    yield Installation(start_web(site, PROBE_LEASE_SECONDS="300"), site, servers)
    for server in servers.values():
        if server._session:
            server.thaw()  # else it cannot end in peace


def triggers_and_health(web: Web) -> tuple[list[Answer], list[Answer]]:
    """Twenty triggers at once, and the health check asked all the time meanwhile."""
    health = []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        triggers = pool.submit(web.in_parallel, AT_ONCE, "barrier")
        while not triggers.done():
            health.append(web.ask("/healthz", secret=None))
        return triggers.result(), health


OUTAGES = {
    "store": ("lock_unavailable", 503),
    "broker": ("broker_unavailable", 200),
    "backend": ("result_backend_unavailable", 200),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "freeze"])
@pytest.mark.parametrize("what", OUTAGES)
def test_every_answer_is_right_and_in_time_while_something_does_not_answer(
    installation: Installation, what: str, how: str
) -> None:
    web, server = installation.web, installation.servers[what]
    error, health_status = OUTAGES[what]
    assert web.trigger("barrier").status == 202
    getattr(server, how)()
    for _ in range(2):  # the second time nothing of the first may be in the way
        triggers, health = triggers_and_health(web)
        assert {(answer.status, answer.error) for answer in triggers} == {(503, error)}
        assert {answer.response.headers["retry-after"] for answer in triggers} == {"30"}
        assert all(answer.response.json()["id"] is None for answer in triggers)
        assert max(answer.seconds for answer in triggers) < LIMIT_SECONDS
        assert health
        assert {answer.status for answer in health} == {health_status}
        assert max(answer.seconds for answer in health) < LIMIT_SECONDS
    for path in ("/", "/metrics", "/jobs/barrier", "/api/runs/nobody"):
        assert web.ask(path).seconds < LIMIT_SECONDS
    if how == "stop":
        server.start()
    else:
        server.thaw()
    wait_until(lambda: web.trigger("barrier").status == 202, 20)


@pytest.mark.slow
def test_nothing_that_was_refused_arrives_after_a_frozen_broker_wakes(installation: Installation) -> None:
    web, site, servers = installation
    servers["broker"].freeze()
    triggers = web.in_parallel(AT_ONCE, "barrier")
    assert {answer.error for answer in triggers} == {"broker_unavailable"}
    assert all("nothing was queued" in answer.response.json()["detail"] for answer in triggers)
    servers["broker"].thaw()
    accepted = web.trigger("barrier")
    assert accepted.status == 202
    assert site.side.llen("celery") == 1


@pytest.mark.slow
def test_nothing_that_was_refused_is_sent_by_a_broker_that_is_only_slow(
    start_site: Callable[..., Site],
    start_web: Callable[..., Web],
    start_proxy: Callable[[Server], Proxy],
    server: Server,
    redis_url: str,
) -> None:
    slow = start_proxy(server)
    slow.delay(0.4)  # each way: every answer is in time, and all together they are not
    web = start_web(start_site(slow.url, backend=redis_url, leases=redis_url, side=redis_url))
    refused = web.trigger("barrier")
    assert (refused.status, refused.error) == (503, "broker_unavailable")
    assert "nothing was queued" in refused.response.json()["detail"]
    with server.client() as client:
        wait_until(lambda: len(client.client_list()) == 1, 20)  # the slow one has been given up
        assert client.llen("celery") == 0


def test_a_run_that_is_waited_for_is_told_by_its_ledger_while_the_result_backend_is_gone(
    installation: Installation,
) -> None:
    web, site, servers = installation
    site.start_worker(PROBE_LEASE_SECONDS="300")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(web.trigger, "barrier", 30)
        site.entered()
        servers["backend"].stop()
        site.open()
        answer = waiting.result(60)
    assert answer.response.json()["outcome"] in ("ran", "failed")  # failed, once the result was given up


def test_a_scrape_says_that_the_store_is_down_and_nothing_old(installation: Installation) -> None:
    web, site, servers = installation
    site.start_worker(PROBE_LEASE_SECONDS="300")
    site.open()
    assert web.trigger("barrier", wait=20).status == 200
    assert web.samples()['celery_lease_last_ran_timestamp_seconds{job_name="barrier"}']
    servers["store"].stop()
    assert web.samples() == {"celery_lease_up": 0.0}
    servers["store"].start()
    servers["store"].freeze()
    assert web.samples() == {"celery_lease_up": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["freeze", "kill"])
def test_a_rabbitmq_that_does_not_answer_is_no_different(
    start_site: Callable[..., Site],
    start_web: Callable[..., Web],
    redis_url: str,
    tmp_path: Path,
    reaper: Reaper,
    number: int,
) -> None:
    directory = tmp_path / "rabbit"
    directory.mkdir()
    rabbit = Rabbit(directory, reaper)
    struck: list[psutil.Process] = []
    try:
        site = start_site(rabbit.url, backend=redis_url, leases=redis_url, side=redis_url)
        web = start_web(site)
        accepted = web.trigger("barrier")
        assert accepted.status == 202
        site.start_worker()
        site.entered()
        site.open()
        wait_until(lambda: web.json(accepted.response.headers["location"])["outcome"] == "ran")
        struck = psutil.Process(rabbit._session.pid).children(recursive=True)
        for process in struck:
            with suppress(psutil.NoSuchProcess):  # some are short-lived
                process.send_signal(number)
        triggers, health = triggers_and_health(web)
        assert {(answer.status, answer.error) for answer in triggers} == {(503, "broker_unavailable")}
        assert max(answer.seconds for answer in [*triggers, *health]) < LIMIT_SECONDS
        assert {answer.status for answer in health} == {200}
    finally:
        rabbit.close()
        for process in struck:  # its monitors have sessions of their own, and would stand still for ever
            with suppress(psutil.NoSuchProcess):
                process.kill()
