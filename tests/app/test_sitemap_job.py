"""The job in a real worker: killed between two batches, failing visibly, and run dry from the terminal."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from celery import Celery
from celery.result import AsyncResult

from tasks.store import Store
from tests.app.conftest import Rows
from tests.app.sitemaps import KEY, site_with_key, urlset
from tests.support.web_server import Request, Response, WebServer
from tests.support.workers import ROOT, Worker

# One run in a process of its own, and how much its memory grew by it.
MEASURED = """
import resource, sys
from tasks.settings import Settings
from tasks.sitemap import run_announcing
from tasks.store import Store
from tests.app.passes import FakeLease

def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

given = Settings().model_copy(update={"site_url": sys.argv[1], "indexnow_endpoint": sys.argv[1]})
with Store.open(sys.argv[2]) as store:
    before = peak()
    result = run_announcing(store, given, FakeLease(name="sitemap"))
    print(result["baseline"], round(peak() - before))
"""
# Two whole batches, and one that is not.
MANY = 20_500


@pytest.fixture
def site() -> Iterator[WebServer]:
    with site_with_key() as server:
        yield server


@pytest.fixture
def endpoint() -> Iterator[WebServer]:
    server = WebServer(lambda _: Response())
    yield server
    server.close()


class Job:
    """The job on one installation of the application."""

    def __init__(
        self, start_worker: Callable[..., Worker], redis_url: str, environment: dict[str, str]
    ) -> None:
        self.environment = {**environment, "REDIS_URL": redis_url}
        self._start_worker = start_worker
        self._client = Celery(broker=redis_url, backend=redis_url, set_as_current=False)

    def start(self, **environment: str) -> Worker:
        """Start a worker."""
        return self._start_worker(app="tasks", concurrency=1, **{**self.environment, **environment})

    def send(self, **arguments: bool) -> AsyncResult[dict[str, int | str]]:
        """Trigger it."""
        return self._client.send_task("sitemap", kwargs=arguments)


@pytest.fixture
def job(
    start_worker: Callable[..., Worker],
    redis_url: str,
    sqlite_url: str,
    tmp_path: Path,
    site: WebServer,
    endpoint: WebServer,
) -> Job:
    environment = {
        "DATABASE_URL": sqlite_url,
        "TASKS_DATA": str(tmp_path / "data"),
        "SITE_URL": site.url,
        "INDEXNOW_ENDPOINT": endpoint.url,
        "INDEXNOW_KEY": KEY,
    }
    return Job(start_worker, redis_url, environment)


@pytest.fixture
def url(sqlite_url: str) -> str:
    """For `rows`."""
    return sqlite_url


def many(site: WebServer) -> list[str]:
    return [f"{site.url}/{number:05}" for number in range(MANY)]


def test_a_worker_killed_between_two_batches_loses_no_url_and_repeats_at_most_one_batch(
    job: Job, site: WebServer, endpoint: WebServer, rows: Rows
) -> None:
    site.pages["/sitemap.xml"] = urlset([])
    worker = job.start()
    assert job.send().get(timeout=30)["baseline"] == 0
    site.pages["/sitemap.xml"] = urlset(many(site))
    second_is_in = Event()

    def behave(_: Request) -> Response:
        # The endpoint has the second batch, and the worker will never know.
        if len(endpoint.posts) == 2:
            second_is_in.set()
            endpoint.closing.wait(60)
        return Response()

    endpoint.behave = behave
    job.send()
    assert second_is_in.wait(30)
    worker.kill_tree()
    assert rows("SELECT state, count(*) FROM sitemap_url GROUP BY state ORDER BY state") == [
        ("announced", 10_000),
        ("due", MANY - 10_000),
    ]

    job.start()
    result = job.send().get(timeout=60)
    assert (result["worked"], result["backlog"], result["new"]) == (MANY - 10_000, 0, 0)
    assert [len(post.urls) for post in endpoint.posts] == [10_000, 10_000, 10_000, 500]
    times = Counter(url for post in endpoint.posts for url in post.urls)
    assert sorted(times) == many(site)
    assert Counter(times.values()) == {1: MANY - 10_000, 2: 10_000}
    assert rows("SELECT DISTINCT state FROM sitemap_url") == [("announced",)]


def test_what_is_wrong_ends_the_task_as_a_failure_that_names_it(
    job: Job, site: WebServer, endpoint: WebServer, rows: Rows
) -> None:
    worker = job.start(INDEXNOW_ENDPOINT="")
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/a"])
    sent = job.send()
    ended = sent.get(timeout=30, propagate=False)
    assert sent.state == "FAILURE"
    assert (type(ended).__name__, str(ended)[:28]) == ("NotConfigured", "INDEXNOW_ENDPOINT is not set")
    before = rows("SELECT * FROM sitemap_url")
    assert len(before) == 1
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/b"])[:-9]
    sent = job.send()
    ended = sent.get(timeout=30, propagate=False)
    assert sent.state == "FAILURE"
    assert type(ended).__name__ == "SitemapError"
    worker.wait_for(f"cut.*{site.url}/sitemap.xml: it ends before its end")
    assert rows("SELECT * FROM sitemap_url") == before
    assert KEY not in worker.log()


def test_a_run_in_a_worker_announces_and_keeps_the_key_out_of_its_log(
    job: Job, site: WebServer, endpoint: WebServer
) -> None:
    worker = job.start()
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/a"])
    job.send().get(timeout=30)
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/a", f"{site.url}/b"])
    assert job.send().get(timeout=30)["worked"] == 1
    assert [post.urls for post in endpoint.posts] == [[f"{site.url}/b"]]
    worker.wait_for("sent 1 URLs: status 200")
    assert KEY not in worker.log()
    # Half of the two is missing, and then both are.
    site.pages["/sitemap.xml"] = urlset([])
    ended = job.send().get(timeout=30, propagate=False)
    assert "drop" in str(ended)
    assert job.send(accept_drop=True).get(timeout=30)["urls"] == 0


def test_it_is_run_dry_from_the_terminal(
    job: Job, site: WebServer, endpoint: WebServer, sqlite_url: str, rows: Rows
) -> None:
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/a"])
    with Store.open(sqlite_url):
        pass
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tasks",
        "lease",
        "run",
        "sitemap",
        "--dry-run",
        "--json",
    ]
    environment = {**os.environ, **job.environment}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"would_be_baseline": 1' in done.stdout
    assert rows("SELECT count(*) FROM sitemap_url") == rows("SELECT count(*) FROM fence") == [(0,)]
    assert endpoint.requests == []
    assert KEY not in done.stdout + done.stderr


def test_fifty_thousand_urls_cost_one_request_and_less_than_thirty_megabytes(
    site: WebServer, sqlite_url: str
) -> None:
    date = "2024-05-08T08:53:11+00:00"
    urls = {f"{site.url}/answers/ingredient-number-{n}/in-the-language-en": date for n in range(50_000)}
    site.pages["/sitemap.xml"] = urlset(urls)
    command = [sys.executable, "-c", MEASURED, site.url, sqlite_url]
    printed = subprocess.check_output(command, cwd=ROOT, timeout=60, text=True)
    count, megabytes = map(int, printed.split())
    assert count == 50_000
    assert megabytes < 30
    assert site.paths == ["/robots.txt", "/sitemap.xml"]
