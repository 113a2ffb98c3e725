"""Leases in this process, against real servers; no worker is needed here."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from celery import Celery

from celery_lease import _renewer, _run, _store
from celery_lease._renewer import Renewer
from celery_lease._settings import read_settings
from celery_lease._store import Store
from tests.support.leases import Job, make_app
from tests.support.proxy import Proxy
from tests.support.servers import Server


@pytest.fixture(autouse=True)
def renewer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Renewer]:
    """A renewer of this test's own: what another test's dead server left unsettled is not its business."""
    own = Renewer()
    monkeypatch.setattr(_run, "renewer", own)
    yield own
    _end(own)
    for store in _store._stores.values():
        store.close()
    _store._stores.clear()


def _end(renewer: Renewer) -> None:
    """Let the thread end now, whatever a failed test has left to it."""
    thread = renewer._thread
    if thread is None:
        return

    def drop_everything(work: Any) -> None:
        work.unsettled.clear()
        work._entries.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_renewer, "_IDLE_SECONDS", 0.0)
        renewer._tell(drop_everything)
        thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def start_app(redis_url: str) -> Iterator[Callable[..., Celery]]:
    """Make apps with settings of the test's choice, on an empty shared server unless a URL is given."""
    apps: list[Celery] = []

    def start(url: str = redis_url, **settings: Any) -> Celery:
        apps.append(make_app(url, **settings))
        return apps[-1]

    yield start
    for app in apps:
        app.close()


@pytest.fixture
def app(start_app: Callable[..., Celery]) -> Celery:
    """One app on an empty shared server."""
    return start_app()


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    """Looks at the shared server from outside."""
    with redis.Redis.from_url(redis_url, decode_responses=True, protocol=2) as outside:
        yield outside


@pytest.fixture
def start_store(start_app: Callable[..., Celery]) -> Iterator[Callable[..., Store]]:
    """Make lease stores with settings of the test's choice."""
    stores: list[Store] = []

    def start(*url: str, **settings: Any) -> Store:
        stores.append(Store(read_settings(start_app(*url, **settings))))
        return stores[-1]

    yield start
    for store in stores:
        store.close()


@pytest.fixture
def job(start_store: Callable[..., Store], client: Any) -> Job:
    """A job that never ran, on the shared server."""
    return Job(start_store(), client)


@pytest.fixture
def proxy(server: Server, start_proxy: Callable[[Server], Proxy]) -> Proxy:
    """A way to this test's own server that can be made bad."""
    return start_proxy(server)
