"""What a trigger becomes while another run has the lease: in the backend, in the log, for who waits."""

import os
import re
import time
from typing import Any

import pytest
from celery.result import AsyncResult

from celery_lease import SKIPPED, Skipped
from tests.nodes.ports import free_port
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends, seconds_of


def skipped(result: AsyncResult[Any]) -> Skipped:
    """What a waiting caller gets."""
    with pytest.raises(Skipped) as caught:
        result.get(timeout=5)
    return caught.value


def test_a_second_trigger_is_skipped_within_a_second_and_the_first_succeeds(site: Site) -> None:
    site.start_worker()
    first = site.occupy()
    began = time.monotonic()
    second = site.send("barrier")
    wait_until(second.ready)
    assert time.monotonic() - began < 1
    assert second.state == SKIPPED
    site.open()
    assert first.get(timeout=10) == "opened"
    assert first.state == "SUCCESS"
    assert site.side.llen("gate:entered") == 0, "the second body was entered"
    assert site.outcomes("barrier") == ["skipped_locked", "ran"]


def test_who_waits_for_a_skip_gets_it_at_once_with_the_holder(site: Site) -> None:
    worker = site.start_worker()
    first = site.occupy()
    second = site.send("barrier")
    assert seconds_of(lambda: skipped(second)) < 1
    skip = skipped(second)
    assert (skip.reason, skip.name) == ("locked", "barrier")
    holder = skip.holder
    assert holder["task_id"] == first.id
    assert holder["worker"].startswith("w0@")
    assert int(holder["pid"]) in worker.children()
    assert 0 < holder["expires_in"] <= 3
    assert "token" not in holder


def test_a_skip_reads_the_same_in_a_process_that_asks_later(site: Site) -> None:
    site.start_worker()
    first = site.occupy()
    second = site.send("barrier")
    ends(second)
    later: AsyncResult[Any] = AsyncResult(second.id, app=site.app)
    assert later.ready()
    assert later.failed() is False
    assert later.successful() is False
    assert isinstance(later.result, Skipped)
    assert later.result.holder["task_id"] == first.id
    assert str(later.result) == str(skipped(second))


def test_one_warning_says_who_holds_it_since_when_and_when_the_lease_ends(site: Site) -> None:
    worker = site.start_worker()
    first = site.occupy()
    since = site.held("barrier")["since"]
    second = site.send("barrier")
    ends(second)
    site.open()
    ends(first)
    worker.wait_for(rf"{first.id}\] succeeded")
    [line] = [line for line in worker.log().splitlines() if "skipped" in line]
    assert re.search(r"\bWARNING\b", line)
    said = (
        rf"barrier\[{second.id}\] skipped: locked, held by task {first.id} on w0@\S+ \(pid \d+\)"
        rf" since {re.escape(since)}; the lease ends in \d s unless renewed$"
    )
    assert re.search(said, line), line
    assert worker.count(r"\bERROR\b") == 0


def test_a_lease_that_cannot_be_asked_for_is_told_apart_from_one_that_is_held(
    site: Site, start_site: Any, redis_url: str
) -> None:
    deaf = start_site(redis_url, leases=f"redis://127.0.0.1:{free_port()}/0", side=redis_url)
    worker = deaf.start_worker()
    result = deaf.send("barrier", "gate")
    skip = skipped(result)
    assert (skip.reason, skip.name, skip.holder) == ("lock_unavailable", "barrier", {})
    assert "ConnectionError" in skip.detail
    assert result.state == SKIPPED
    [line] = [line for line in worker.log().splitlines() if "skipped" in line]
    assert re.search(
        rf"\bERROR\b.*barrier\[{result.id}\] skipped: lock_unavailable, so the body did not run", line
    )
    assert site.side.llen("gate:entered") == 0


def test_started_is_written_for_the_run_and_never_for_a_skip(site: Site) -> None:
    site.start_worker(concurrency=4)
    with site.states() as so_far:
        first = site.occupy()
        skips = [site.send("barrier") for _ in range(5)]
        ends(*skips)
        site.open()
        ends(first)
        written = so_far()
    assert [state for task_id, state in written if task_id == first.id] == ["STARTED", "SUCCESS"]
    for skip in skips:
        assert [state for task_id, state in written if task_id == skip.id] == [SKIPPED]


def test_errbacks_of_both_kinds_hear_of_a_skip(site: Site) -> None:
    site.start_worker()
    site.occupy()
    new = site.send("barrier", link_error=site.app.signature("errback"))
    old = site.send("barrier", link_error=site.app.signature("old_errback"))
    wait_until(lambda: len(site.errbacks()) == 2)
    heard = {entry.pop("task_id"): entry for entry in site.errbacks()}
    assert heard == {new.id: {"exc": "Skipped", "reason": "locked"}, old.id: {}}


@pytest.mark.parametrize(
    ("job", "options", "is_stored"),
    [
        ("forgetful", {}, False),
        ("half_forgetful", {}, True),
        ("barrier", {"ignore_result": True}, False),
        ("barrier", {"ignore_result": False}, True),
    ],
)
def test_a_skip_is_stored_exactly_where_a_failure_would_be(
    site: Site, job: str, options: dict[str, bool], *, is_stored: bool
) -> None:
    worker = site.start_worker()
    site.occupy()
    with site.states() as so_far:
        result = site.send(job, **options)
        worker.wait_for(rf"{job}\[{result.id}\] ignored|\[{result.id}\] skipped")
        last = site.send("barrier", ignore_result=False)
        ends(last)
        written = [task_id for task_id, _ in so_far()]
    assert (result.id in written) is is_stored
    assert site.total("barrier", "skipped_locked") == 2


def test_a_skip_sends_one_event_with_the_reason_and_the_holder(site: Site) -> None:
    site.start_worker()
    first = site.occupy()
    with site.events("task-skipped") as so_far:
        second = site.send("barrier")
        wait_until(so_far)
        [event] = so_far()
    assert (event["uuid"], event["reason"]) == (second.id, "locked")
    assert first.id in event["exception"]
    assert event["result"] == event["exception"]


def test_the_pool_child_that_skipped_takes_the_next_job(site: Site) -> None:
    site.start_worker(concurrency=1)
    token = "0" * 32
    site.leases.hset(site.key("barrier"), mapping={"token": token, "task_id": "somebody", "pid": os.getpid()})
    assert ends(*[site.send("barrier") for _ in range(20)]) == [SKIPPED] * 20
    assert site.held("barrier")["token"] == token
    site.leases.delete(site.key("barrier"))
    first = site.occupy()
    site.open()
    assert ends(first) == ["SUCCESS"]
