"""The lease store fails over from one server to another while a job runs."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from celery_lease import SKIPPED, Skipped, hold
from celery_lease._settings import GRACE_SECONDS
from celery_lease._store import store_of
from tests.nodes.sessions import Reaper
from tests.nodes.waiting import wait_until
from tests.support.leases import Job, make_app
from tests.support.site import Site, ends
from tests.topologies.sentinels import NAME, Sentinels

pytestmark = pytest.mark.slow

# As in production: what is seen within seconds is not the end of a lease, and no renewal that was due anyway.
LEASE_SECONDS = 300
SECONDS_TO_FOLLOW = 5


@pytest.fixture
def sentinels(
    redis_program: str, tmp_path_factory: pytest.TempPathFactory, reaper: Reaper
) -> Iterator[Sentinels]:
    sentinels = Sentinels(redis_program, tmp_path_factory.mktemp("sentinels"), reaper)
    yield sentinels
    sentinels.close()


def settings(sentinels: Sentinels) -> dict[str, Any]:
    return {
        "lease_url": sentinels.url,
        "lease_url_options": {"master_name": NAME},
        "lease_seconds": LEASE_SECONDS,
    }


@pytest.fixture
def site(start_site: Callable[..., Site], redis_url: str, sentinels: Sentinels) -> Site:
    """Two workers with a queue each; only the leases are under Sentinel."""
    conf = settings(sentinels)
    return start_site(redis_url, leases=conf["lease_url"], looking=sentinels.client, conf=conf)


def connected(site: Site, channel: str) -> int:
    """How many subscribers the present primary sees."""
    answer: Any = site.leases.pubsub_shardnumsub(channel)
    return int(answer[0][1])


def assert_is_kept(site: Site, sentinels: Sentinels, before: dict[str, str]) -> None:
    """The present primary has the lease, renewed since, and sees its holder connected."""
    site.leases.close()
    site.leases = sentinels.primary.client()  # the open connections of the other lead to the former primary

    def followed() -> bool:
        try:
            held = site.held("barrier")
            return held.get("renewed", "") > before["renewed"] and connected(site, before["alive"]) == 1
        except redis.RedisError:
            return False

    wait_until(followed, SECONDS_TO_FOLLOW)
    held = site.held("barrier")
    assert {name: held[name] for name in ("token", "fence", "alive", "task_id")} == {
        name: before[name] for name in ("token", "fence", "alive", "task_id")
    }


def test_a_held_lease_survives_the_primary_and_its_holders_death_is_noticed_at_the_new_one(
    site: Site, sentinels: Sentinels
) -> None:
    holder = site.start_worker("-Q", "one")
    other = site.start_worker("-Q", "two")
    first = site.send("barrier", queue="one")
    site.entered()
    before = site.held("barrier")
    dead = sentinels.primary
    dead.close()
    wait_until(lambda: sentinels.primary is not dead, 20)
    assert_is_kept(site, sentinels, before)
    skip = site.send("barrier", queue="two")
    assert ends(skip) == [SKIPPED]
    assert isinstance(skip.result, Skipped)
    assert skip.result.holder["task_id"] == first.id
    holder.kill_tree()
    wait_until(lambda: not site.is_holder_connected("barrier"))
    second = site.send("barrier", "second", queue="two")
    site.entered("second", seconds=round(GRACE_SECONDS) + 3)
    assert int(site.held("barrier")["fence"]) > int(before["fence"])
    site.open("second")
    assert second.get(timeout=10) == "opened"
    assert site.outcomes("barrier") == ["skipped_locked", "abandoned", "ran"]
    assert other.count("Traceback") == 0


def test_the_live_connection_does_not_stay_with_a_primary_that_became_a_replica(
    site: Site, sentinels: Sentinels
) -> None:
    site.start_worker()
    first = site.occupy()
    before = site.held("barrier")
    sentinels.fail_over()
    assert_is_kept(site, sentinels, before)
    site.open()
    assert ends(first) == ["SUCCESS"]
    assert site.outcomes("barrier") == ["ran"]
    assert site.held("barrier") == {}


def detach_replica(sentinels: Sentinels) -> None:
    """From here on, what the primary confirms is lost with it."""
    with sentinels.replica.client() as client:
        client.replicaof("NO", "ONE")


def test_a_lease_that_the_new_primary_never_heard_of_is_retaken_with_the_same_fence(
    site: Site, sentinels: Sentinels
) -> None:
    worker = site.start_worker()
    dead = sentinels.primary
    detach_replica(sentinels)
    first = site.occupy()
    before = site.held("barrier")
    dead.close()
    wait_until(lambda: sentinels.primary is not dead, 20)
    assert_is_kept(site, sentinels, before)
    worker.wait_for("barrier: the lease was gone and free, and has been retaken")
    assert ends(site.send("barrier")) == [SKIPPED]
    site.open()
    assert ends(first) == ["SUCCESS"]
    assert site.outcomes("barrier") == ["skipped_locked", "ran"]


def test_a_lease_that_somebody_else_took_at_the_new_primary_is_lost_and_the_fence_tells_the_runs_apart(
    site: Site, sentinels: Sentinels
) -> None:
    one = site.start_worker("-Q", "one")
    site.start_worker("-Q", "two")
    dead = sentinels.primary
    detach_replica(sentinels)
    first = site.send("barrier", "first", queue="one")
    child = site.entered("first")
    before = site.held("barrier")
    os.kill(child, signal.SIGSTOP)  # else it would be the first to come
    dead.close()
    wait_until(lambda: sentinels.primary is not dead, 20)
    second = site.send("barrier", "second", queue="two")
    site.entered("second")
    held = site.held("barrier")
    os.kill(child, signal.SIGCONT)
    one.wait_for("barrier: lease lost")
    site.open("first")
    site.open("second")
    assert ends(first, second) == ["SUCCESS", "SUCCESS"]
    assert site.outcomes("barrier") == ["lost", "ran"] or site.outcomes("barrier") == ["ran", "lost"]
    assert int(held["fence"]) > int(before["fence"])


def test_a_lease_is_exclusive_renewed_and_given_back(sentinels: Sentinels) -> None:
    app = make_app(sentinels.primary.url, **{**settings(sentinels), "lease_seconds": 3})
    job = Job(store_of(app), sentinels.client, "kept")
    with hold("kept", app=app):
        assert job.held["alive"]
        wait_until(lambda: job.held["renewed"] > job.held["since"], 3)
        with pytest.raises(Skipped, match="locked"), hold("kept", app=app):
            pass
    assert not job.is_held()
    assert job.outcomes == ["skipped_locked", "ran"]


def test_without_a_majority_of_sentinels_and_a_primary_the_run_is_skipped_within_five_seconds(
    site: Site, sentinels: Sentinels
) -> None:
    site.start_worker()
    sentinels.close()
    skip = site.send("barrier")
    wait_until(skip.ready, 5)
    assert isinstance(skip.result, Skipped)
    assert skip.result.reason == "lock_unavailable"
