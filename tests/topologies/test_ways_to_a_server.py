"""One server, reached in every way that an address or an option can say."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import redis

from celery_lease import Skipped, hold
from celery_lease._settings import GRACE_SECONDS
from celery_lease._store import store_of
from tests.nodes.missing import missing
from tests.nodes.ports import free_port
from tests.nodes.sessions import Reaper
from tests.nodes.waiting import wait_until
from tests.support.leases import SECONDS, Job, make_app
from tests.support.servers import Server
from tests.support.site import Site
from tests.topologies.certificates import Certificates, make_certificates

QUOTED = "p%40ss%3Aw0rd%2F%25"


@dataclass(frozen=True)
class Address:
    """How an app is told where its leases live. The numbers in `url` are filled in for the server."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)
    prefix: str = "cron:"
    tls: bool = False


ADDRESSES = {
    "plain": Address("redis://127.0.0.1:{port}/0"),
    "another database": Address("redis://127.0.0.1:{port}/3"),
    "a user with a password": Address(f"redis://keeper:{QUOTED}@127.0.0.1:{{port}}/0"),
    "unix socket": Address("unix://{socket}?db=1"),
    "Celery's unix socket": Address("redis+socket://{socket}?virtual_host=2"),
    "TLS": Address("rediss://127.0.0.1:{tls}/0", tls=True),
    "prefix": Address("redis://127.0.0.1:{port}/4", prefix="acme:eu:"),
    "protocol 2, decoding": Address("redis://127.0.0.1:{port}/5?protocol=2&decode_responses=True"),
    "protocol 3, decoding": Address("redis://127.0.0.1:{port}/6?protocol=3&decode_responses=True"),
    "protocol 3, not decoding": Address("redis://127.0.0.1:{port}/7?protocol=3&decode_responses=False"),
    "options": Address("redis://127.0.0.1:{port}/8", {"protocol": 3, "decode_responses": False}),
}


class Place:
    """One server with all its doors open."""

    def __init__(self, program: str, directory: Path, reaper: Reaper) -> None:
        self.certificates: Certificates = make_certificates(directory)
        self._tls_port = free_port()
        self._socket = directory / "s"
        self.server = Server(
            program,
            directory / "server",
            reaper,
            *("--tls-port", str(self._tls_port), *self.certificates.server_options),
            *("--unixsocket", str(self._socket)),
            *("--user", "keeper", "on", f">{unquote(QUOTED)}", "~cron:*", "&cron:*", "+@all"),
        )

    def client(self, way: str) -> redis.Redis:
        """A plain client of the database that this way leads to, for looking."""
        number = int(re.findall(r"(?:db=|host=|/)(\d)", ADDRESSES[way].url)[-1])
        return redis.Redis(port=self.server.port, db=number, decode_responses=True, protocol=2)

    def settings(self, address: Address) -> dict[str, Any]:
        """What an app's configuration says."""
        doors = {"port": self.server.port, "tls": self._tls_port, "socket": self._socket}
        tls = self.certificates.client_options if address.tls else {}
        return {
            "lease_url": address.url.format(**doors),
            "lease_url_options": {**address.options, **tls},
            "lease_key_prefix": address.prefix,
        }


@pytest.fixture(scope="module")
def place(redis_program: str, tmp_path_factory: pytest.TempPathFactory, reaper: Reaper) -> Iterator[Place]:
    if shutil.which("openssl") is None:
        missing("no openssl on PATH")
    place = Place(redis_program, tmp_path_factory.mktemp("s"), reaper)
    yield place
    place.server.close()


@pytest.mark.parametrize("way", ADDRESSES)
def test_a_lease_is_exclusive_renewed_and_given_back(place: Place, way: str) -> None:
    app = make_app(place.server.url, **place.settings(ADDRESSES[way]))
    name = way  # each its own: a process has one channel a name on a server
    job = Job(store_of(app), place.client(way), name)
    with hold(name, app=app) as lease:
        assert job.held["alive"].startswith(f"{job.keys.lease}:alive:")
        wait_until(lambda: job.held["renewed"] > job.held["since"], SECONDS)
        with pytest.raises(Skipped) as skip, hold(name, app=app):
            pass
        assert (skip.value.reason, skip.value.holder["pid"]) == ("locked", job.held["pid"])
        assert lease.check()
    assert job.outcomes == ["skipped_locked", "ran"]
    assert not job.is_held()
    assert str(lease.fence) == job.client.get(job.keys.fence)


def test_a_server_whose_certificate_nobody_vouches_for_is_not_used(place: Place) -> None:
    settings = place.settings(Address("rediss://127.0.0.1:{tls}/0"))
    app = make_app(place.server.url, **settings)
    with pytest.raises(Skipped) as skip, hold("untrusted", app=app):
        pass
    assert skip.value.reason == "lock_unavailable"
    assert "certificate verify failed" in skip.value.detail


@pytest.mark.slow
def test_a_killed_worker_is_noticed_whichever_way_it_reached_the_server(
    place: Place, shared_server: Server, redis_url: str, start_site: Callable[..., Site]
) -> None:
    """All ways at once, because the wait is the same for all."""
    sites = []
    for number, way in enumerate(["unix socket", "TLS", "prefix", "protocol 3, not decoding", "options"]):
        settings = place.settings(ADDRESSES[way])
        site = start_site(
            redis_url.replace("/0", f"/{number}"),
            leases=settings["lease_url"],
            looking=place.client(way),
            conf={**settings, "lease_seconds": 300},
        )
        sites.append((site, site.start_worker("-P", "solo")))
        site.occupy()
        assert site.held("barrier")["alive"], way
    for site, worker in sites:
        worker.kill_tree()
        site.start_worker("-P", "solo")  # takes longer than the server to notice
        site.send("barrier")
    began = time.monotonic()
    for site, _ in sites:
        site.entered(seconds=round(GRACE_SECONDS) + 3)
        assert site.outcomes("barrier") == ["abandoned"]
    assert time.monotonic() - began < GRACE_SECONDS + 3


def test_without_an_address_of_their_own_the_leases_live_in_the_result_backend(
    place: Place, redis_url: str, start_site: Callable[..., Site]
) -> None:
    way = "Celery's unix socket"
    url = place.settings(ADDRESSES[way])["lease_url"]
    site = start_site(redis_url, backend=url, looking=place.client(way))
    del site.environment["PROBE_LEASE_URL"]
    site.start_worker()
    first = site.occupy()
    assert site.held("barrier")["task_id"] == first.id
    site.open()
    assert first.get(timeout=10) == "opened"
