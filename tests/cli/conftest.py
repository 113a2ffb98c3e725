"""The command, for the probe app on one embedded server."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from celery_lease._settings import read_settings
from celery_lease._store import Store
from tests.cli.command import COMMAND, Lease
from tests.run.terminal import Terminal
from tests.support.leases import Job, make_app
from tests.support.site import Site
from tests.support.workers import ROOT


@pytest.fixture
def lease(site: Site) -> Lease:
    """Type `celery lease …`."""
    return Lease(site.environment)


@pytest.fixture
def job(site: Site) -> Iterator[Job]:
    """The job `counts`, as the store sees it; its runs are the test's own."""
    app = make_app(site.environment["PROBE_URL"], lease_seconds=60)
    store = Store(read_settings(app))  # not the process's own, which has known its jobs since earlier tests
    yield Job(store, site.leases, "counts")
    store.close()
    app.close()


@pytest.fixture
def in_terminal(site: Site) -> Iterator[Callable[..., Terminal]]:
    """Type `celery lease …` at a terminal."""
    terminals: list[Terminal] = []

    def start(*arguments: str, **environment: Any) -> Terminal:
        inherited = {**os.environ, "PYTHONPATH": str(ROOT), **site.environment, **environment}
        terminals.append(Terminal([*COMMAND, *arguments], cwd=ROOT, env=inherited))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()
