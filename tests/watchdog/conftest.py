"""The watchdog in this process, against a real store and real receivers of alerts."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import redis
from celery import Celery

from celery_lease import _run, _store
from celery_lease._renewer import Renewer
from celery_lease._store import store_of
from tests.support.leases import Job, make_app


@pytest.fixture(autouse=True)
def renewer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Renewer]:
    """A renewer of this test's own."""
    own = Renewer()
    monkeypatch.setattr(_run, "renewer", own)
    yield own
    for store in _store._stores.values():
        store.close()
    _store._stores.clear()


@pytest.fixture
def start_app(redis_url: str) -> Iterator[Callable[..., Celery]]:
    """Make apps with settings of the test's choice, on an empty shared server unless a URL is given."""
    apps: list[Celery] = []

    def start(url: str = redis_url, **settings: Any) -> Celery:
        apps.append(make_app(url, **settings))
        return apps[-1]

    yield start
    for app in apps:
        app.close()


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    """Looks at the shared server from outside."""
    with redis.Redis.from_url(redis_url, decode_responses=True, protocol=2) as outside:
        yield outside


@pytest.fixture
def start_job(client: Any) -> Callable[..., Job]:
    """A job's ledger, as a run of the app writes it."""
    return lambda app, name="job": Job(store_of(app), client, name)


class Hook:
    """A local web server that takes alerts and pings.

    Attributes:
        asked: method and path of each request.
        taken: the JSON that was posted.
        answer: the status to answer with.
        silent: takes requests and does not answer until the test is over.
        delay: seconds until it answers.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.taken: list[dict[str, Any]] = []
        self.answer = 200
        self.silent = False
        self.delay = 0.0
        self._over = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hook._take(self)

            def do_POST(self) -> None:
                hook._take(self)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def titles(self) -> list[str]:
        """Of the alerts that were posted."""
        return [alert["title"] for alert in self.taken]

    def close(self) -> None:
        """Answer whoever waits, and end."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        self.asked.append(f"{request.command} {request.path}")
        self._over.wait(60 if self.silent else self.delay)
        if body and self.answer == 200:
            self.taken.append(json.loads(body))
        request.send_response(self.answer)
        request.end_headers()


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A webhook on this machine."""
    server = Hook()
    yield server
    server.close()
