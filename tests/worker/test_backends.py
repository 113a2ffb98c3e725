"""How a skip shows through result backends other than Redis."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError

from celery_lease import SKIPPED, Skipped
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends


@pytest.fixture
def database(start_site: Callable[..., Site], redis_url: str, tmp_path: Path) -> Site:
    """Results in an SQLite file."""
    return start_site(redis_url, backend=f"db+sqlite:///{tmp_path}/results.sqlite", leases=redis_url)


def assert_reads_as_a_skip(result: Any, holder: Any) -> None:
    with pytest.raises(Skipped) as caught:
        result.get(timeout=5)
    assert (caught.value.reason, caught.value.holder["task_id"]) == ("locked", holder.id)
    assert result.ready()
    assert result.state == SKIPPED
    assert isinstance(result.result, Skipped)


def test_a_skip_through_a_database(database: Site) -> None:
    database.start_worker()
    first = database.occupy()
    second = database.send("barrier")
    assert_reads_as_a_skip(second, first)
    assert_reads_as_a_skip(database.app.AsyncResult(second.id), first)
    database.open()
    assert first.get(timeout=10) == "opened"


def test_canvas_through_a_database(database: Site) -> None:
    database.start_worker()
    database.occupy()
    app, skip, plain = database.app, database.signature("barrier"), database.signature("plain")
    tail = chain(skip, plain, app=app).apply_async()
    members: Any = group(plain, skip, app=app).apply_async()
    body: Any = chord([plain, skip], plain, app=app).apply_async()
    assert ends(tail, *members, seconds=5) == [SKIPPED, "SUCCESS", SKIPPED]
    assert members.ready()
    # Without counters in the backend, a chord looks at its members once a second.
    with pytest.raises((ChordError, Skipped)):
        body.get(timeout=10)


def test_a_skip_through_rpc(start_site: Callable[..., Site], redis_url: str) -> None:
    site = start_site(redis_url, backend="rpc://", leases=redis_url)
    site.start_worker()
    first = site.occupy()
    assert_reads_as_a_skip(site.send("barrier"), first)
    site.open()
    assert first.get(timeout=10) == "opened"


def test_without_a_result_backend_a_skip_is_an_event_and_a_line(
    start_site: Callable[..., Site], redis_url: str
) -> None:
    site = start_site(redis_url, backend="disabled://", leases=redis_url)
    worker = site.start_worker()
    first = site.occupy()
    with site.events("task-skipped") as so_far:
        second = site.send("barrier")
        wait_until(so_far)
        [event] = so_far()
    assert (event["uuid"], event["reason"]) == (second.id, "locked")
    assert first.id in event["exception"]
    worker.wait_for(rf"WARNING/.*barrier\[{second.id}\] skipped: locked, held by task {first.id}")
    assert worker.count("could not be recorded") == 0
    assert site.outcomes("barrier") == ["skipped_locked"]
    site.open()
    wait_until(lambda: site.outcomes("barrier") == ["skipped_locked", "ran"])
