"""Fixtures for every test: real servers and real processes, all gone at the end."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.nodes.recipes import redis_server
from tests.nodes.sessions import Reaper
from tests.support.browser import chromium
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.site import Site
from tests.support.workers import Process, Worker

pytest_plugins = ["tests.nodes.plugin"]

# What a developer has set for their own services must not reach the tests'.
for _name in (
    "REDIS_URL",
    "BROKER_URL",
    "RESULT_BACKEND",
    "DATABASE_URL",
    "CELERY_BROKER_URL",
    "CELERY_RESULT_BACKEND",
):
    os.environ.pop(_name, None)


@pytest.fixture(scope="session")
def reaper() -> Iterator[Reaper]:
    """Ends what the test run leaves behind, also when it is killed."""
    watcher = Reaper()
    yield watcher
    watcher.close()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory, reaper: Reaper) -> Iterator[Server]:
    """One embedded server for all tests of a process that do it no harm."""
    server = Server(redis_server(), tmp_path_factory.mktemp("server"), reaper)
    yield server
    server.close()


@pytest.fixture
def redis_url(shared_server: Server) -> str:
    """The address of an empty embedded server. Do it no harm: others use it after this test."""
    with shared_server.client() as client:
        client.flushall()
    return shared_server.url


@pytest.fixture
def start_server(tmp_path: Path, reaper: Reaper) -> Iterator[Callable[..., Server]]:
    """Start servers of this test's own, to be stopped, frozen and killed at will."""
    servers: list[Server] = []

    def start(*options: str, program: str | None = None, persistent: bool = False) -> Server:
        directory = tmp_path / f"server{len(servers)}"
        servers.append(Server(program or redis_server(), directory, reaper, *options, persistent=persistent))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    """One server of this test's own."""
    return start_server()


@pytest.fixture
def start_worker(tmp_path: Path, reaper: Reaper) -> Iterator[Callable[..., Worker]]:
    """Start workers of the probe app (`tests.support.probe`), killed at the end."""
    workers: list[Worker] = []

    def start(
        *options: str, app: str = "tests.support.probe", concurrency: int = 2, **environment: str
    ) -> Worker:
        name = f"w{len(workers)}"
        log = tmp_path / f"{name}.log"
        worker = Worker(app, environment, log, reaper, *options, name=name, concurrency=concurrency)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.kill_tree()


@pytest.fixture
def start_process(tmp_path: Path, reaper: Reaper) -> Iterator[Callable[..., Process]]:
    """Start any command, killed at the end."""
    processes: list[Process] = []

    def start(*argv: str, **environment: str) -> Process:
        processes.append(Process(argv, environment, tmp_path / f"process{len(processes)}.log", reaper))
        return processes[-1]

    yield start
    for process in processes:
        process.kill_tree()


@pytest.fixture
def start_proxy() -> Iterator[Callable[[Server], Proxy]]:
    """Put a proxy with faults in front of a server."""
    proxies: list[Proxy] = []

    def start(server: Server) -> Proxy:
        proxies.append(Proxy(server.port))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def start_site(start_worker: Callable[..., Worker]) -> Iterator[Callable[..., Site]]:
    """Install the probe app on servers of the test's choice."""
    sites: list[Site] = []

    def start(broker: str, **options: Any) -> Site:
        sites.append(Site(start_worker, broker, **options))
        return sites[-1]

    yield start
    for site in sites:
        site.close()


@pytest.fixture
def site(start_site: Callable[..., Site], redis_url: str) -> Site:
    """The probe app with everything on one embedded server, to which no harm is done."""
    return start_site(redis_url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium. As long as it runs, its thread has an event loop, and no test there can start one."""
    with chromium() as started:
        yield started
