import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nodes.ports import free_port
from tests.nodes.sessions import Reaper
from tests.support.servers import Server
from tests.support.site import Site
from tests.support.workers import Process
from tests.web.server import SECRET, Web

Schedule = dict[str, tuple[str, float | str]]
#: The probe app's; the application's own is `tasks.web:web`.
WEB_APP = "tests.web.web_app:web"

StartWeb = Callable[..., Web]
RunWeb = Callable[..., Web]


@pytest.fixture(scope="session")
def run_web(tmp_path_factory: pytest.TempPathFactory, reaper: Reaper) -> Iterator[RunWeb]:
    """Start web apps that live as long as the test run."""
    running: list[Web] = []

    def run(schedule: Schedule | None = None, web_app: str = WEB_APP, **environment: str) -> Web:
        running.append(_start(schedule, environment, tmp_path_factory.mktemp("web"), reaper, web_app))
        return running[-1]

    yield run
    for web in running:
        _end(web)


@pytest.fixture
def start_web(tmp_path: Path, reaper: Reaper) -> Iterator[StartWeb]:
    """Start the web app of an installation; its schedule: entry → (task, seconds or a crontab's minute)."""
    running: list[Web] = []

    def start(site: Site, schedule: Schedule | None = None, **environment: str) -> Web:
        directory = tmp_path / f"web{len(running)}"
        directory.mkdir()
        running.append(_start(schedule, {**site.environment, **environment}, directory, reaper))
        return running[-1]

    yield start
    for web in running:
        _end(web)


@pytest.fixture(scope="session")
def shared_web(shared_server: Server, run_web: RunWeb) -> Web:
    """One web app, without a schedule, for all tests that do it and its server no harm."""
    return run_web(PROBE_URL=shared_server.url)


@pytest.fixture
def web(shared_web: Web, site: Site) -> Web:
    """The web app of the installation with everything on one server, whose store is empty."""
    return shared_web


def _start(
    schedule: Schedule | None,
    environment: dict[str, str],
    directory: Path,
    reaper: Reaper,
    web_app: str = WEB_APP,
) -> Web:
    port = free_port()
    argv = (sys.executable, "-m", "uvicorn", web_app, "--port", str(port))
    defaults = {"CRON_SECRET": SECRET, "PROBE_SCHEDULE": json.dumps(schedule or {})}
    return Web(Process(argv, {**defaults, **environment}, directory / "web.log", reaper), port)


def _end(web: Web) -> None:
    web.close()
    web.process.kill_tree()
