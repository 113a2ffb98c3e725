"""The site while something is down, and what it shares a port with."""

import shutil
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from tasks.database import NEWEST
from tasks.store import Store
from tests.app.site.conftest import Serve
from tests.app.site.served import KEY, Served, put
from tests.nodes.ports import free_port
from tests.nodes.waiting import wait_until
from tests.support.postgres import Postgres

FROM_THE_DATABASE = ("/answers", "/answers/1-garlic", "/sitemap.xml", "/sitemap-1.xml")
FROM_NOWHERE = ("/robots.txt", f"/{KEY}.txt", "/answers.css")
#: Longer than the site waits for a database; shorter than anybody waits for a page.
SECONDS = 5


def assert_unavailable(site: Served) -> None:
    """All that needs the database says so in time, and the rest is there."""
    began = time.monotonic()
    with ThreadPoolExecutor() as threads:
        responses = list(threads.map(site.get, FROM_THE_DATABASE))
    assert time.monotonic() - began < SECONDS
    for response in responses:
        assert response.status_code == 503, response.url
        assert int(response.headers["retry-after"]) > 0
        assert response.headers["cache-control"] == "no-store"
        assert "cannot be read just now" in response.text
        assert "Traceback" not in site.process.log()
    assert {site.get(path).status_code for path in FROM_NOWHERE} == {200}


def assert_available(site: Served) -> None:
    """By itself, and soon."""
    wait_until(lambda: {site.get(path).status_code for path in FROM_THE_DATABASE} == {200}, 3)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Let nobody read, as a backup or a repair may."""
    with sqlite3.connect(file, isolation_level=None) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
    connection.close()


def test_a_database_is_missing_comes_is_locked_is_broken_and_is_well_again(
    tmp_path: Path, serve: Serve
) -> None:
    file = tmp_path / "tasks.sqlite3"
    site = serve(f"sqlite:///{file}")
    assert_unavailable(site)
    assert not file.exists()
    with Store.open(f"sqlite:///{file}") as store:
        put(store, ["garlic"])
    assert_available(site)
    with locked(file):
        assert_unavailable(site)
    assert_available(site)
    shutil.copy(file, tmp_path / "copy")
    file.write_bytes(b"no database at all" * 1000)
    assert_unavailable(site)
    shutil.copy(tmp_path / "copy", file)
    assert_available(site)


def test_many_who_come_while_the_database_is_locked_all_hear_so_in_time(tmp_path: Path, serve: Serve) -> None:
    file = tmp_path / "tasks.sqlite3"
    with Store.open(f"sqlite:///{file}") as store:
        put(store, ["garlic"])
    site = serve(f"sqlite:///{file}")

    def get(path: str) -> tuple[int, float]:
        began = time.monotonic()
        status = httpx.get(f"{site.url}{path}", timeout=30, trust_env=False).status_code
        return status, time.monotonic() - began

    with locked(file), ThreadPoolExecutor(120) as threads:
        asked = threads.map(get, FROM_THE_DATABASE * 30)
        status, seconds = get(FROM_NOWHERE[0])
        answers = list(asked)
    assert (status, seconds < SECONDS / 2) == (200, True)
    assert {status for status, _ in answers} == {503}
    assert max(seconds for _, seconds in answers) < SECONDS
    assert_available(site)


def test_a_database_of_another_version_is_not_read(filled: Store, own_url: str, serve: Serve) -> None:
    put(filled, ["garlic"])
    site = serve(own_url)
    assert_available(site)
    with sqlite3.connect(own_url.removeprefix("sqlite:///")) as connection:
        # What a newer program may do while this one runs.
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("ALTER TABLE answer RENAME TO answers")
    connection.close()
    assert_unavailable(site)
    assert_unavailable(serve(own_url))
    site.get("/answers")
    assert f"reads {NEWEST}" in site.process.log()
    assert NEWEST not in site.get("/answers").text


def test_a_postgresql_that_is_locked_changed_or_frozen_is_waited_for_in_vain_and_not_for_long(
    postgres: Postgres, serve: Serve
) -> None:
    url = postgres.database()
    with Store.open(url) as store:
        put(store, ["garlic"])
    site = serve(url)
    assert_available(site)
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE answer IN ACCESS EXCLUSIVE MODE")
        assert_unavailable(site)
        connection.rollback()
    assert_available(site)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE answer RENAME TO elsewhere")
        assert_unavailable(site)
        connection.execute("ALTER TABLE elsewhere RENAME TO answer")
    assert_available(site)
    with postgres.frozen():
        assert_unavailable(site)
    assert_available(site)


def test_a_postgresql_that_is_not_there_is_no_reason_not_to_start(serve: Serve) -> None:
    site = serve(f"postgresql://tests:hunter2@127.0.0.1:{free_port()}/tests")
    assert_unavailable(site)
    assert "hunter2" not in site.process.log()


def test_without_a_secret_and_without_redis_the_site_is_open_and_the_rest_is_not(
    filled: Store, own_url: str, serve: Serve
) -> None:
    put(filled, ["garlic"])
    site = serve(own_url)
    assert_available(site)
    for path in ("/", "/metrics", "/openapi.json"):
        assert site.get(path).status_code == 503
    assert site.client.post("/api/cron/curation").status_code == 503
    assert site.client.post("/answers").status_code == 405


@pytest.mark.parametrize(
    "path", [*FROM_THE_DATABASE, *FROM_NOWHERE, "/answers/0", "/answers?after=x", "/nothing"]
)
def test_every_answer_has_the_headers_of_the_web_app(site: Served, path: str) -> None:
    headers = site.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "set-cookie" not in headers
