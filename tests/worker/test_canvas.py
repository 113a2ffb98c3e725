"""A skipped member ends its group, chain or chord; nothing waits for ever."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError
from celery.result import AsyncResult

from celery_lease import SKIPPED, Skipped
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends
from tests.support.workers import Worker


class Held(NamedTuple):
    """A site with one worker and one run of `barrier`, which goes on."""

    site: Site
    worker: Worker

    def was_sent(self, result: Any) -> bool:
        """Whether the worker has received that task. Another one goes behind it, so that it would have."""
        assert ends(self.site.send("plain")) == ["SUCCESS"]
        return self.worker.count(rf"{result.id}\] received") > 0


@pytest.fixture
def held(site: Site) -> Held:
    worker = site.start_worker()
    site.occupy()
    return Held(site, worker)


def test_a_chain_stops_at_a_skip_and_its_end_says_skipped(held: Held) -> None:
    site = held.site
    jobs = site.signature("plain", 1), site.signature("barrier"), site.signature("plain", "last")
    result: Any = chain(*jobs, app=site.app).apply_async()
    assert ends(result, seconds=5) == [SKIPPED]
    with pytest.raises(Skipped, match="barrier: locked, held by task"):
        result.get(timeout=5)
    assert result.parent.state == SKIPPED
    assert result.parent.parent.state == "SUCCESS"
    assert held.was_sent(result.parent)
    assert not held.was_sent(result)


def test_a_group_with_a_skipped_member_is_ready_and_the_others_have_run(held: Held) -> None:
    members = [held.site.signature(*job) for job in (("plain", 1), ("barrier",), ("plain", 3))]
    result: Any = group(members, app=held.site.app).apply_async()
    wait_until(result.ready, 5)
    assert [member.state for member in result] == ["SUCCESS", SKIPPED, "SUCCESS"]
    assert not result.successful()
    with pytest.raises(Skipped):
        result.get(timeout=5)
    assert [type(value) for value in result.get(timeout=5, propagate=False)] == [int, Skipped, int]


@pytest.mark.parametrize("members", [["barrier"], ["plain", "barrier"], ["barrier", "barrier", "plain"]])
def test_a_chord_with_a_skipped_member_fails_and_its_body_never_runs(held: Held, members: list[str]) -> None:
    header = [held.site.signature(job) for job in members]
    result = chord(header, held.site.app.signature("plain"), app=held.site.app).apply_async()
    assert ends(result, seconds=5) == ["FAILURE"]
    assert isinstance(result.result, ChordError)
    assert "Skipped" in str(result.result)
    assert not held.was_sent(result)


def test_a_chord_whose_body_is_skipped_says_so(held: Held) -> None:
    header = [held.site.signature("plain", 1), held.site.signature("plain", 2)]
    result = chord(header, held.site.signature("barrier"), app=held.site.app).apply_async()
    assert ends(result, seconds=5) == [SKIPPED]


def test_a_chord_inside_a_chain_does_not_stay_pending(held: Held) -> None:
    inner = chord(
        [held.site.signature("barrier"), held.site.signature("plain")],
        held.site.app.signature("plain"),
        app=held.site.app,
    )
    result = chain(
        held.site.signature("plain"), inner, held.site.signature("plain"), app=held.site.app
    ).apply_async()
    [state] = ends(result, seconds=10)
    assert state in {"FAILURE", SKIPPED}


def test_errbacks_of_a_chain_and_of_a_chord_hear_of_the_skip(held: Held) -> None:
    errback = held.site.app.signature("errback")
    chain(held.site.signature("barrier"), held.site.signature("plain"), app=held.site.app).apply_async(
        link_error=errback
    )
    body = held.site.app.signature("plain").on_error(errback)
    chord(
        [held.site.signature("barrier"), held.site.signature("plain")], body, app=held.site.app
    ).apply_async()
    wait_until(lambda: len(held.site.errbacks()) >= 2)
    assert {entry["exc"] for entry in held.site.errbacks()} == {"Skipped", "ChordError"}


def test_a_success_callback_is_not_called_for_a_skip(held: Held) -> None:
    callback = held.site.signature("plain", "callback").set(task_id="callback")
    skip = held.site.send("barrier", link=callback)
    assert ends(skip) == [SKIPPED]
    assert held.was_sent(skip)
    assert not held.was_sent(AsyncResult("callback", app=held.site.app))


def test_in_a_database_a_skipped_member_ends_its_group_chain_or_chord_too(
    start_site: Callable[..., Site], redis_url: str, tmp_path: Path
) -> None:
    database = start_site(redis_url, backend=f"db+sqlite:///{tmp_path}/results.sqlite", leases=redis_url)
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
