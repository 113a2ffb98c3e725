"""What is different where many runs share one thread."""

import time
from collections.abc import Callable

import pytest
from celery.exceptions import TimeLimitExceeded

from celery_lease import SKIPPED
from tests.nodes.missing import needs_package
from tests.nodes.waiting import wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.site import Site, ends

pytestmark = pytest.mark.slow


@pytest.fixture(params=["gevent", "eventlet"])
def pool(request: pytest.FixtureRequest) -> str:
    needs_package(request.param)
    return str(request.param)


def test_a_limit_that_strikes_while_the_lease_is_given_back_does_not_keep_it(
    start_site: Callable[..., Site],
    redis_url: str,
    shared_server: Server,
    start_proxy: Callable[[Server], Proxy],
) -> None:
    needs_package("gevent")
    slow = start_proxy(shared_server)
    site = start_site(redis_url, leases=slow.url, looking=shared_server.client())
    site.environment["PROBE_LEASE_SECONDS"] = "300"
    site.start_worker("-P", "gevent", concurrency=4)
    struck = site.send("barrier", time_limit=2)
    site.entered()
    slow.delay(0.9)
    time.sleep(0.8)  # the release has to be under way when the limit strikes
    site.open()
    with pytest.raises(TimeLimitExceeded):
        struck.get(timeout=10)
    slow.heal()
    wait_until(lambda: site.held("barrier") == {}, 5)
    assert len(site.outcomes("barrier")) == 1


def test_a_run_that_is_terminated_gives_its_lease_back_at_once(site: Site, pool: str) -> None:
    site.environment["PROBE_LEASE_SECONDS"] = "300"
    site.start_worker("-P", pool, concurrency=4)
    first = site.occupy()
    site.app.control.revoke(first.id, terminate=True)
    wait_until(lambda: site.held("barrier") == {}, 5)
    assert site.outcomes("barrier") == ["failed"]
    second = site.send("barrier", "second")
    site.entered("second")
    site.open("second")
    assert second.get(timeout=10) == "opened"


def test_a_body_that_never_lets_go_of_the_thread_loses_its_lease_and_says_so(site: Site, pool: str) -> None:
    """The renewer shares that thread. With the real length, it takes three and a half minutes of this."""
    worker = site.start_worker("-P", pool, "-Q", "one", concurrency=4)
    site.start_worker("-Q", "two")
    first = site.send("burn", 7, queue="one")
    wait_until(lambda: site.held("burn"))
    second = site.run_as_soon_as_possible("burn", 5, seconds=6, queue="two")
    assert ends(first) == ["SUCCESS"]
    worker.wait_for("burn: lease lost")
    assert ends(second) == ["SUCCESS"]
    assert site.outcomes("burn")[-2:] == ["lost", "ran"]


def test_a_start_does_not_keep_the_other_runs_of_its_thread_waiting(site: Site, pool: str) -> None:
    site.start_worker("-P", pool, concurrency=10)
    first = site.occupy()
    began = time.monotonic()
    assert ends(*[site.send("barrier") for _ in range(3)]) == [SKIPPED] * 3
    assert time.monotonic() - began < 0.5
    site.open()
    assert ends(first) == ["SUCCESS"]
