"""A real Flower beside the probe's worker, and a real browser."""

import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.nodes.ports import free_port
from tests.nodes.waiting import wait_until
from tests.support.site import Site
from tests.support.workers import Process


class Flower:
    """A running Flower.

    Attributes:
        url: where its pages are.
    """

    def __init__(self, start_process: Callable[..., Process], site: Site) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        argv = (sys.executable, "-m", "celery", "-A", "tests.support.probe", "flower")
        self._process = start_process(
            *(*argv, "--address=127.0.0.1", f"--port={port}"),
            **site.environment,
            FLOWER_UNAUTHENTICATED_API="1",
        )
        self._process.wait_for("Connected to redis")

    def get(self, path: str) -> str:
        """A page as text."""
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:  # noqa: S310 - our own address
            return str(answer.read().decode())

    def tasks(self, state: str) -> dict[str, dict[str, Any]]:
        """What the API lists for a state, by task id."""
        return dict(json.loads(self.get(f"/api/tasks?state={state}")))

    def wait_for(self, state: str, count: int) -> dict[str, dict[str, Any]]:
        """Wait until the API lists so many tasks in a state."""
        wait_until(lambda: len(self.tasks(state)) == count)
        return self.tasks(state)

    def events(self, kind: str) -> float:
        """How many events of that kind the metrics count."""
        counts = re.findall(
            rf'flower_events_total{{[^}}]*type="{kind}"[^}}]*}} ([\d.]+)', self.get("/metrics")
        )
        return sum(map(float, counts))


@pytest.fixture
def flower(start_process: Callable[..., Process], site: Site) -> Flower:
    """Flower, which has heard of the one worker there is."""
    flower = Flower(start_process, site)
    site.start_worker()
    wait_until(lambda: "w0@" in flower.get("/workers?json=1"))
    return flower


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in Chromium, 1280 pixels wide."""
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    yield page
    page.close()
