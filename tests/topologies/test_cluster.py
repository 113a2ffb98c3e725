"""The lease store is a cluster: leases on several nodes, slots that move, nodes that die."""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from redis.exceptions import RedisError

from celery_lease import SKIPPED, Skipped, hold
from celery_lease._settings import GRACE_SECONDS
from celery_lease._store import store_of
from tests.nodes.sessions import Reaper
from tests.nodes.waiting import wait_until
from tests.support.leases import SECONDS, Job, make_app
from tests.support.site import Site, ends
from tests.topologies.cluster import Cluster

pytestmark = pytest.mark.slow

# As in production: what is seen within seconds is not the end of a lease, and no renewal that was due anyway.
LEASE_SECONDS = 300
SECONDS_TO_FOLLOW = 10


@pytest.fixture
def cluster(
    redis_program: str, tmp_path_factory: pytest.TempPathFactory, reaper: Reaper
) -> Iterator[Cluster]:
    cluster = Cluster(redis_program, tmp_path_factory.mktemp("cluster"), reaper)
    yield cluster
    cluster.close()


@pytest.fixture
def site(start_site: Callable[..., Site], redis_url: str, cluster: Cluster) -> Site:
    """Only the leases are in the cluster."""
    return start_site(
        redis_url, leases=cluster.url, looking=cluster.client, conf={"lease_seconds": LEASE_SECONDS}
    )


def is_connected(cluster: Cluster, channel: str) -> bool:
    """Whether the node that has the channel's slot now sees somebody there."""
    answer = cluster.node_of(channel).client.pubsub_shardnumsub(channel)
    return bool(answer[0][1] == 1)


def wait_until_kept(site: Site, cluster: Cluster, name: str, before: dict[str, str]) -> None:
    """The node that has the lease now has renewed it, and sees its holder connected."""

    def is_kept() -> bool:
        with contextlib.suppress(RedisError, LookupError):
            channel, renewed = (site.held(name).get(field, "") for field in ("alive", "renewed"))
            return renewed > before["renewed"] and is_connected(cluster, channel)
        return False

    wait_until(is_kept, SECONDS_TO_FOLLOW)
    assert {**site.held(name), "renewed": ""} == {**before, "renewed": ""}


def test_one_process_keeps_leases_on_every_node_for_longer_than_they_are(cluster: Cluster) -> None:
    app = make_app("redis://127.0.0.1:1/0", lease_url=cluster.url)
    store = store_of(app)
    jobs = [Job(store, cluster.client, f"job{number}") for number in range(9)]
    assert len({cluster.node_of(job.keys.lease).port for job in jobs}) == 3
    with contextlib.ExitStack() as held:
        for job in jobs:
            held.enter_context(hold(job.keys.name, app=app))
        before = [job.held for job in jobs]
        deadline = time.monotonic() + SECONDS + 1
        while time.monotonic() < deadline:
            for job in jobs:
                with pytest.raises(Skipped, match="locked"), hold(job.keys.name, app=app):
                    pass
        for job, lease in zip(jobs, before, strict=True):
            assert job.held["renewed"] > lease["renewed"]
            assert {**job.held, "renewed": ""} == {**lease, "renewed": ""}
            assert is_connected(cluster, lease["alive"])
    for job in jobs:
        assert not job.is_held()
        assert set(job.outcomes) == {"skipped_locked", "ran"}
    assert cluster.client.smembers("cron:jobs") == {job.keys.name for job in jobs}


def test_a_lease_follows_its_slot_and_its_holders_death_is_noticed_where_it_went(
    site: Site, cluster: Cluster
) -> None:
    holder = site.start_worker("-Q", "one")
    other = site.start_worker("-Q", "two")
    first = site.send("barrier", queue="one")
    site.entered()
    before = site.held("barrier")
    key = site.key("barrier")
    source = cluster.node_of(key)
    target = next(node for node in cluster.nodes[:3] if node is not source)
    cluster.move(cluster.slot_of(key), source, target)
    assert cluster.node_of(key) is target
    wait_until_kept(site, cluster, "barrier", before)
    skip = site.send("barrier", queue="two")
    assert ends(skip) == [SKIPPED]
    assert isinstance(skip.result, Skipped)
    assert skip.result.holder["task_id"] == first.id
    holder.kill_tree()
    wait_until(lambda: not is_connected(cluster, before["alive"]))
    second = site.send("barrier", "second", queue="two")
    site.entered("second", seconds=round(GRACE_SECONDS) + 3)
    site.open("second")
    assert second.get(timeout=10) == "opened"
    assert site.outcomes("barrier") == ["skipped_locked", "abandoned", "ran"]
    assert other.count("Traceback") == 0


def test_a_lease_outlives_its_node(site: Site, cluster: Cluster) -> None:
    site.start_worker()
    first = site.occupy()
    before = site.held("barrier")
    dead = cluster.node_of(site.key("barrier"))
    dead.kill()
    wait_until(lambda: cluster.is_served(site.key("barrier")), 20)
    wait_until_kept(site, cluster, "barrier", before)
    skip = site.send("barrier")
    assert ends(skip) == [SKIPPED]
    assert isinstance(skip.result, Skipped)
    assert skip.result.holder["task_id"] == first.id
    site.open()
    assert first.get(timeout=10) == "opened"
    assert site.held("barrier") == {}
    assert site.outcomes("barrier") == ["skipped_locked", "ran"]
    site.send("barrier", "second")
    site.entered("second")
    assert is_connected(cluster, site.held("barrier")["alive"])


def test_while_a_slot_is_served_by_nobody_its_job_is_skipped_within_five_seconds_and_others_run(
    site: Site, cluster: Cluster
) -> None:
    for node in cluster.nodes:
        node.client.config_set("cluster-require-full-coverage", "no")
    worker = site.start_worker()
    tenants = {cluster.node_of(site.key(f"export:{letter}")).port: letter for letter in "abcdefghij"}
    (served, other), *_ = [
        (tenants[port], tenants[next(p for p in tenants if p != port)]) for port in tenants
    ]
    dead = cluster.node_of(site.key(f"export:{other}"))
    replica = next(
        node for node in cluster.nodes[3:] if dead.id in node.ask("NODES").split("myself,slave ")[1][:41]
    )
    replica.kill()
    dead.kill()
    skip = site.send("per_tenant", other)
    wait_until(skip.ready, 5)
    assert isinstance(skip.result, Skipped)
    assert skip.result.reason == "lock_unavailable"
    assert site.send("per_tenant", served).get(timeout=5) == f"export:{served}"
    assert worker.count("Traceback") == 0
