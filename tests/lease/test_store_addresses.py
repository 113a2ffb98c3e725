"""Every spelling of the store's address, on real servers: the lease is taken there, and every wait ends."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_lease._errors import StoreUnavailable
from celery_lease._store import Store
from tests.nodes.missing import missing
from tests.nodes.ports import free_port
from tests.support.leases import Job
from tests.support.servers import Server


def whole_life(job: Job) -> None:
    """Take, look, renew, give back, withdraw: every script once, with what its answer means."""
    claim, grant = job.acquire()
    assert job.is_held(), "another server, or another database"
    assert job.refused().holder["task_id"] == "one"
    holder = job.store.peek("job")
    assert holder
    assert holder["fence"] == str(grant.fence)
    assert job.renew(claim, grant) == "renewed"
    assert job.release(claim, grant) == "ran"
    job.store.withdraw(job.claim(), "2026-09-14T12:15:03.123Z")
    assert job.outcomes == ["skipped_locked", "ran", "skipped_lock_unavailable"]
    assert not job.is_held()


@pytest.fixture
def socket_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:  # a socket's path has to be short
        yield Path(directory) / "s"


@pytest.mark.parametrize(
    "query",
    [
        "decode_responses=True&protocol=2",
        "decode_responses=True&protocol=3",
        "decode_responses=False&protocol=2",
        "protocol=3",
        "encoding=latin-1",
        "health_check_interval=1",
        "max_connections=3",
    ],
)
def test_what_the_url_says_about_answers_makes_no_difference(
    start_store: Callable[..., Store], redis_url: str, client: Any, query: str
) -> None:
    whole_life(Job(start_store(lease_url=f"{redis_url}?{query}"), client))


@pytest.mark.parametrize(
    "options",
    [{"decode_responses": False}, {"protocol": 3}, {"retry_on_timeout": True}, {"client_name": "leases"}],
    ids=lambda options: next(iter(options)),
)
def test_what_the_options_say_makes_no_difference(
    start_store: Callable[..., Store], client: Any, options: dict[str, Any]
) -> None:
    whole_life(Job(start_store(lease_url_options=options), client))


def test_a_holder_of_another_alphabet_comes_back_as_it_was(job: Job) -> None:
    job.acquire(holder={"worker": "рабочий@zoë", "task_id": "\u2028"})
    refusal = job.refused()
    assert (refusal.holder["worker"], refusal.holder["task_id"]) == ("рабочий@zoë", "\u2028")


@pytest.mark.parametrize(
    ("spelling", "database"),
    [
        ("unix://{path}", 0),
        ("unix://{path}?db=3", 3),
        ("redis+socket://{path}", 0),
        ("redis+socket://{path}?virtual_host=2", 2),
        ("redis+socket://{path}?virtual_host=/2", 2),
        ("redis+socket://:pass%20word@{path}?virtual_host=2", 2),
    ],
)
def test_a_local_socket_is_spelt_as_redis_or_as_celery_spells_it(
    start_server: Callable[..., Server],
    start_store: Callable[..., Store],
    socket_file: Path,
    spelling: str,
    database: int,
) -> None:
    server = start_server("--unixsocket", str(socket_file))
    with server.client() as default:
        default.config_set("requirepass", "pass word")
    spelling = spelling if "@" in spelling else spelling.replace("://", "://:pass%20word@")
    store = start_store(lease_url=spelling.format(path=socket_file))
    with redis.Redis.from_url(
        f"redis://:pass%20word@localhost:{server.port}/{database}", decode_responses=True, protocol=2
    ) as client:
        whole_life(Job(store, client))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for localhost, with its key in the same file."""
    openssl = shutil.which("openssl") or missing("no openssl on PATH")
    file = tmp_path / "certificate.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(file), "-out", f"{file}.crt"),
        ],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + Path(f"{file}.crt").read_bytes())
    return file


@pytest.fixture
def tls_server(start_server: Callable[..., Server], certificate: Path) -> tuple[Server, str]:
    """A server with a port for TLS, and the address of that."""
    program = shutil.which("redis-server") or shutil.which("valkey-server") or missing("no server on PATH")
    port = free_port()
    try:
        server = start_server(
            *("--tls-port", str(port), "--tls-auth-clients", "no"),
            *("--tls-cert-file", f"{certificate}.crt", "--tls-key-file", str(certificate)),
            *("--tls-ca-cert-file", f"{certificate}.crt"),
            program=program,
        )
    except TimeoutError:
        missing(f"{program} was built without TLS")
    return server, f"rediss://localhost:{port}/0"


@pytest.mark.parametrize(
    "query", ["ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs={ca}", "ssl_cert_reqs=required&ssl_ca_certs={ca}"]
)
def test_a_store_behind_tls_is_reached_as_redis_or_as_celery_spells_it(
    tls_server: tuple[Server, str], certificate: Path, start_store: Callable[..., Store], query: str
) -> None:
    server, url = tls_server
    with server.client() as client:
        whole_life(Job(start_store(lease_url=f"{url}?{query.format(ca=f'{certificate}.crt')}"), client))


@pytest.mark.parametrize("spelling", ["CERT_NONE", "none"])
def test_a_certificate_is_left_unchecked_only_where_the_url_says_so(
    tls_server: tuple[Server, str], start_store: Callable[..., Store], spelling: str
) -> None:
    server, url = tls_server
    with server.client() as client:
        whole_life(Job(start_store(lease_url=f"{url}?ssl_cert_reqs={spelling}"), client))
        strict = Job(start_store(lease_url=url), client)
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
            strict.acquire()


def test_files_for_tls_may_come_as_options(
    tls_server: tuple[Server, str], certificate: Path, start_store: Callable[..., Store]
) -> None:
    server, url = tls_server
    store = start_store(lease_url=url, lease_url_options={"ssl_ca_certs": f"{certificate}.crt"})
    with server.client() as client:
        whole_life(Job(store, client))


@pytest.mark.parametrize(
    "query", ["", "?socket_timeout=60&socket_connect_timeout=60", "?retry_on_timeout=True"]
)
def test_no_call_waits_longer_than_its_bound_whatever_the_url_says(
    server: Server, start_store: Callable[..., Store], query: str
) -> None:
    with server.client() as client:
        job = Job(start_store(lease_url=f"{server.url}{query}"), client)
        job.run()
        server.freeze()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="Timeout"):
            job.acquire()
        assert 1.5 < time.monotonic() - began < 3
        server.thaw()
        server.close()


def test_a_shorter_bound_in_the_url_is_kept(server: Server, start_store: Callable[..., Store]) -> None:
    with server.client() as client:
        job = Job(start_store(lease_url=f"{server.url}?socket_timeout=0.2"), client)
        server.freeze()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="Timeout"):
            job.acquire()
        assert time.monotonic() - began < 1


def test_a_wrong_password_is_told_and_not_shown(
    start_server: Callable[..., Server], start_store: Callable[..., Store]
) -> None:
    server = start_server()
    with server.client() as client:
        client.config_set("requirepass", "right-one")
        store = start_store(lease_url=server.url.replace("//", "//:wr0ng-one@"))
        with pytest.raises(StoreUnavailable) as caught:
            Job(store, client).acquire()
    assert "wr0ng-one" not in str(caught.value)
    assert "Auth" in str(caught.value)
