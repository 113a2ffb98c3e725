"""A holder that lives and cannot reach the store: a blip costs nothing, and no overlap goes unnoticed."""

import os
import signal
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from celery_lease import SKIPPED
from tests.faults.stage import Stage
from tests.nodes.waiting import wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.site import ends

pytestmark = pytest.mark.slow

GRACE_SECONDS = 10
BLIP_SECONDS = 3

FAULTS = [Proxy.cut, Proxy.black_hole]


def said_by(stage: Stage, fence: int) -> list[str]:
    """What a holder heard when it asked its lease, each change once."""
    samples = [event.said for event in stage.of("sample", fence=fence)]
    return samples[:1] + [after for before, after in pairwise(samples) if after != before]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_blip_of_three_seconds_costs_a_holder_nothing(
    set_up: Callable[..., Stage], start_proxy: Callable[[Server], Proxy], fault: Callable[[Proxy], None]
) -> None:
    stage = set_up()
    proxy = start_proxy(stage.store)
    stage.start_worker("cut", PROBE_LEASE_URL=proxy.url)
    stage.start_worker("others")
    holder = stage.send("job", queue="cut")
    stage.entered("job")
    before = stage.site.held("job")
    fault(proxy)
    other = stage.send("job", queue="others")
    time.sleep(BLIP_SECONDS)
    proxy.heal()
    assert ends(other) == [SKIPPED]
    assert stage.site.held("job")["token"] == before["token"]
    stage.open("job")
    fence = holder.get(timeout=10)
    assert said_by(stage, fence) == ["trusted"]
    assert stage.site.total("job", "ran") == 1
    stage.assert_promises_kept()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_holder_cut_off_for_longer_than_the_grace_knows_before_anybody_takes_over(
    set_up: Callable[..., Stage], start_proxy: Callable[[Server], Proxy], fault: Callable[[Proxy], None]
) -> None:
    stage = set_up()
    proxy = start_proxy(stage.store)
    stage.start_worker("cut", PROBE_LEASE_URL=proxy.url)
    stage.start_worker("others")
    first = stage.send("job", gate="first", queue="cut")
    stage.entered("first")
    fence = stage.body_of(first).fence
    fault(proxy)
    second = stage.send_until_entered("job", gate="second", queue="others", seconds=2 * GRACE_SECONDS)
    stage.entered("second")
    assert said_by(stage, fence) == ["trusted", "suspect"]
    proxy.heal()
    wait_until(lambda: said_by(stage, fence)[-1] == "lost", 5)
    stage.open("first")
    stage.open("second")
    assert ends(first, second) == ["SUCCESS", "SUCCESS"]
    assert said_by(stage, fence) == ["trusted", "suspect", "lost"]
    assert stage.of("wrote", fence=fence, said="refused")
    assert (stage.site.total("job", "lost"), stage.site.total("job", "ran")) == (1, 1)
    stage.assert_promises_kept()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_holder_that_nobody_took_over_from_trusts_its_lease_again(
    set_up: Callable[..., Stage], start_proxy: Callable[[Server], Proxy], fault: Callable[[Proxy], None]
) -> None:
    stage = set_up()
    proxy = start_proxy(stage.store)
    stage.start_worker("cut", PROBE_LEASE_URL=proxy.url)
    holder = stage.send("job", queue="cut")
    stage.entered("job")
    fence = stage.body_of(holder).fence
    fault(proxy)
    wait_until(lambda: said_by(stage, fence)[-1] == "suspect", GRACE_SECONDS)
    proxy.heal()
    wait_until(lambda: said_by(stage, fence)[-1] == "trusted", 5)
    stage.open("job")
    assert holder.get(timeout=10) == fence
    assert stage.site.outcomes("job") == ["ran"]
    stage.assert_promises_kept()


@pytest.mark.parametrize(
    "forbidden",
    [["-ssubscribe", "-sunsubscribe", "-pubsub"], ["-pubsub"]],
    ids=["to subscribe", "to count subscribers"],
)
def test_a_holder_whose_death_the_store_cannot_notice_is_left_to_the_expiry(
    set_up: Callable[..., Stage], forbidden: list[str]
) -> None:
    """A user without the permissions, as on a server that is too old to know the commands."""
    lease_seconds = 3
    stage = set_up(lease_seconds=lease_seconds)
    with stage.store.client() as client:
        client.execute_command("ACL", "SETUSER", "old", "on", ">old", "~*", "&*", "+@all", *forbidden)
    url = stage.store.url.replace("//", "//old:old@")
    worker = stage.start_worker("old", concurrency=1, PROBE_LEASE_URL=url)
    stage.start_worker("others")
    first = stage.send("job", queue="old")
    stage.entered("job")
    end = time.monotonic() + 2 * lease_seconds
    while time.monotonic() < end:
        assert ends(stage.send("job", queue="others")) == [SKIPPED]
        time.sleep(0.2)
    stage.open("job")
    assert said_by(stage, first.get(timeout=10)) == ["trusted"]
    stage.send("job", gate="again", queue="old")
    pid = stage.entered("again")
    assert worker.count("a killed run costs up to a lease") == 1
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert stage.run_once_more("job", queue="others").at - killed < lease_seconds + 1
    stage.assert_promises_kept()
