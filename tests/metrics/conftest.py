from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from celery import Celery

from celery_lease import _store
from celery_lease._store import Store, store_of
from tests.support.leases import Job, leased, make_app


def _harvest() -> None:
    pass


def _report(tenant: str) -> None:
    pass


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    """An app with a job, and with a task that has one lease per tenant."""
    with make_app(redis_url) as app:
        leased(app, "harvest")(_harvest)
        leased(app, "report", lease="report:{tenant}")(_report)
        yield app
    for store in _store._stores.values():
        store.close()
    _store._stores.clear()


@pytest.fixture
def store(app: Celery) -> Store:
    return store_of(app)


@pytest.fixture
def start_job(store: Store, redis_url: str) -> Iterator[Callable[..., Job]]:
    """Jobs whose runs the test makes itself."""
    with redis.Redis.from_url(redis_url, decode_responses=True, protocol=2) as outside:
        client: Any = outside
        yield lambda name, **options: Job(store, client, name, **options)


@pytest.fixture
def job(start_job: Callable[..., Job]) -> Job:
    return start_job("harvest")
