"""Servers, protocols and addresses of the lease store, and what happens to them while a job runs."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from celery_lease import SKIPPED
from tests.nodes.missing import missing
from tests.nodes.ports import free_port
from tests.nodes.recipes import redis_server
from tests.support.servers import Server
from tests.support.site import Site, ends

LEASE_SECONDS = 3


def debian_redis() -> str:
    return shutil.which("redis-server") or missing("no redis-server on PATH")


@pytest.fixture(params=[redis_server, debian_redis], ids=["embedded", "redis"])
def leases(request: pytest.FixtureRequest, start_server: Callable[..., Server]) -> Server:
    """The lease store, on the embedded server and on Redis, with what it has on disk."""
    return start_server(program=request.param(), persistent=True)


def assert_exclusive_until_done(
    site: Site, in_between: Callable[[], object] = lambda: None, seconds: float = LEASE_SECONDS + 0.5
) -> None:
    """A run keeps its lease over something that happens, skips another, and gives the lease back."""
    site.start_worker()
    first = site.occupy()
    token = site.held("barrier")["token"]
    in_between()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert site.held("barrier").get("token") == token
        time.sleep(0.05)
    assert ends(site.send("barrier")) == [SKIPPED]
    site.open()
    assert first.get(timeout=10) == "opened"
    assert site.held("barrier") == {}
    assert site.outcomes("barrier") == ["skipped_locked", "ran"]
    assert site.ledger("barrier")["total:ran"] == "1"


def test_the_server_forgets_its_scripts_during_a_run(
    start_site: Callable[..., Site], redis_url: str, leases: Server
) -> None:
    site = start_site(redis_url, leases=leases.url)
    assert_exclusive_until_done(site, site.leases.script_flush)


def test_the_server_is_restarted_during_a_run(
    start_site: Callable[..., Site], redis_url: str, leases: Server
) -> None:
    site = start_site(redis_url, leases=leases.url)

    def restart() -> None:
        leases.stop()
        leases.start()

    assert_exclusive_until_done(site, restart)


def test_the_server_is_restarted_empty_during_a_run(
    start_site: Callable[..., Site], redis_url: str, server: Server
) -> None:
    site = start_site(redis_url, leases=server.url)
    worker = site.start_worker()
    first = site.occupy()
    before = site.held("barrier")
    server.stop()
    server.start()
    worker.wait_for("barrier: the lease was gone and free, and has been retaken")
    after = site.held("barrier")
    assert (after["token"], after["fence"]) == (before["token"], before["fence"])
    assert ends(site.send("barrier")) == [SKIPPED]
    site.open()
    assert first.get(timeout=10) == "opened"
    assert site.held("barrier") == {}


@pytest.mark.parametrize(
    "options", ["?decode_responses=True&protocol=2", "?protocol=3", "?decode_responses=False&protocol=3"]
)
def test_whatever_the_address_says_about_the_protocol(
    start_site: Callable[..., Site], redis_url: str, server: Server, options: str
) -> None:
    site = start_site(redis_url, leases=server.url + options)
    assert_exclusive_until_done(site, seconds=1.5)


def test_a_unix_socket(
    start_site: Callable[..., Site], start_server: Callable[..., Server], redis_url: str, short_path: Path
) -> None:
    start_server("--unixsocket", str(short_path / "s"))
    site = start_site(redis_url, leases=f"unix://{short_path}/s?db=1")
    assert_exclusive_until_done(site, seconds=1.5)


def test_tls(
    start_site: Callable[..., Site], start_server: Callable[..., Server], redis_url: str, tmp_path: Path
) -> None:
    key, certificate, port = tmp_path / "key.pem", tmp_path / "certificate.pem", free_port()
    make_certificate(key, certificate)
    start_server(
        *("--tls-port", str(port), "--tls-auth-clients", "no"),
        *("--tls-key-file", str(key), "--tls-cert-file", str(certificate)),
        program=debian_redis(),
    )
    options = f"ssl_cert_reqs=required&ssl_ca_certs={certificate}"
    site = start_site(redis_url, leases=f"rediss://127.0.0.1:{port}/0?{options}")
    assert_exclusive_until_done(site, seconds=1.5)


def test_a_key_prefix_of_ones_own(start_site: Callable[..., Site], redis_url: str, server: Server) -> None:
    site = start_site(redis_url, leases=server.url)
    site.environment["PROBE_KEY_PREFIX"] = "acme:jobs:"
    site.start_worker()
    first = site.occupy()
    assert site.leases.hget("acme:jobs:{barrier}", "task_id") == first.id
    assert ends(site.send("barrier")) == [SKIPPED]
    site.open()
    assert ends(first) == ["SUCCESS"]
    keys = site.leases.keys()
    assert keys
    assert [key for key in map(str, keys) if not key.startswith("acme:jobs:")] == []


def test_without_an_address_of_their_own_the_leases_live_in_the_result_backend(
    start_site: Callable[..., Site], start_server: Callable[..., Server], redis_url: str, short_path: Path
) -> None:
    start_server("--unixsocket", str(short_path / "s"))
    backend = f"unix://{short_path}/s?db=2"
    site = start_site(redis_url, backend=f"redis+socket://{short_path}/s?virtual_host=2", leases=backend)
    del site.environment["PROBE_LEASE_URL"]
    assert_exclusive_until_done(site, seconds=0.5)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory for a socket, whose path may have a hundred characters at most."""
    path = Path("/tmp") / f"lease-{free_port()}"  # noqa: S108 - the shortest there is, and ours alone
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path)


def make_certificate(key: Path, certificate: Path) -> None:
    subprocess.run(
        [
            shutil.which("openssl") or missing("no openssl on PATH"),
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
