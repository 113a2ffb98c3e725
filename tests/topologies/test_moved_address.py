"""One name for the store, behind which another server takes over: a managed failover by DNS or a balancer."""

from collections.abc import Callable
from typing import Any

from celery_lease import hold
from celery_lease._store import store_of
from tests.nodes.waiting import wait_until
from tests.support.leases import Job, make_app
from tests.support.proxy import Proxy
from tests.support.servers import Server

LEASE_SECONDS = 300
SECONDS_TO_FOLLOW = 5


def subscribers(client: Any, channel: str) -> int:
    return int(client.pubsub_shardnumsub(channel)[0][1])


def test_a_live_connection_that_was_left_behind_follows_the_address(
    start_server: Callable[..., Server], start_proxy: Callable[[Server], Proxy]
) -> None:
    former, new = start_server(), start_server()
    address = start_proxy(former)
    app = make_app(address.url, lease_seconds=LEASE_SECONDS)
    with former.client() as at_former, new.client() as at_new, hold("moved", app=app) as lease:
        job, channel = Job(store_of(app), at_new, "moved"), lease.claim.channel
        new_has_it = at_former.dump(job.keys.lease), at_former.pttl(job.keys.lease)
        at_new.restore(job.keys.lease, new_has_it[1], new_has_it[0])  # as replication would
        before = job.held
        address.lead_to(new.port)
        at_former.client_kill_filter(_type="normal", skipme=True)
        assert subscribers(at_former, channel) == 1
        wait_until(lambda: subscribers(at_new, channel) == 1, SECONDS_TO_FOLLOW)
        wait_until(lambda: job.held["renewed"] > before["renewed"], SECONDS_TO_FOLLOW)
        wait_until(lambda: job.held.get("alive") == channel, SECONDS_TO_FOLLOW)
        assert subscribers(at_former, channel) == 0
        assert lease.check()
    assert not job.is_held()
