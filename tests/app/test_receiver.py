"""The receiver of IndexNow on this machine, as strict as the published protocol."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import httpx
import pytest
import uvicorn

from tasks.receiver import create_receiver
from tests.app.sitemaps import KEY, site_with_key
from tests.nodes.ports import free_port
from tests.nodes.waiting import wait_until
from tests.support.web_server import Response, WebServer
from tests.support.workers import Process


@pytest.fixture
def site() -> Iterator[WebServer]:
    with site_with_key() as server:
        yield server


@contextmanager
def receiver(site: WebServer, **options: int) -> Iterator[httpx.Client]:
    """A receiver on a real port, and who asks it."""
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(create_receiver(site.url, **options), port=port, log_level="critical")
    )
    thread = Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        yield client
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(site: WebServer) -> Iterator[httpx.Client]:
    with receiver(site) as client:
        yield client


def announcement(site: WebServer, **changes: Any) -> dict[str, Any]:
    usual = {"host": "127.0.0.1", "key": KEY, "urlList": [f"{site.url}/a", f"{site.url}/b"]}
    fields = {**usual, **changes}
    return {name: value for name, value in fields.items() if value is not None}


def shown(client: httpx.Client) -> list[str]:
    return [each["url"] for each in client.get("/").json()["announced"]]


def test_what_is_announced_is_shown_newest_first_and_without_the_key(
    client: httpx.Client, site: WebServer
) -> None:
    location = f"{site.url}/{KEY}.txt"
    for fields in (announcement(site), announcement(site, urlList=[f"{site.url}/c"], keyLocation=location)):
        assert client.post("/indexnow", json=fields).status_code == 200
    assert shown(client) == [f"{site.url}/{name}" for name in "cba"]
    assert KEY not in client.get("/").text
    assert client.get("/").json()["requests"] == 2


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"host": None}, 400, "InvalidRequest"),
        ({"host": 7}, 400, "InvalidRequest"),
        ({"host": "example.com"}, 422, "HostMismatch"),
        ({"host": "http://127.0.0.1"}, 422, "HostMismatch"),
        ({"host": "127.0.0.1:8080"}, 422, "HostMismatch"),
        ({"key": None}, 400, "InvalidRequest"),
        ({"key": "short"}, 422, "InvalidKey"),
        ({"key": "../../etc/passwd"}, 422, "InvalidKey"),
        ({"key": "with_underscore"}, 422, "InvalidKey"),
        ({"key": "another-key"}, 403, "KeyNotFound"),
        ({"urlList": None}, 400, "InvalidRequest"),
        ({"urlList": []}, 400, "InvalidRequest"),
        ({"urlList": "http://127.0.0.1/"}, 400, "InvalidRequest"),
        ({"urlList": [1]}, 400, "InvalidRequest"),
        ({"urlList": ["/relative"]}, 400, "InvalidRequest"),
        ({"urlList": ["http://127.0.0.1/ü"]}, 400, "InvalidRequest"),
        ({"urlList": ["http://127.0.0.1/\n"]}, 400, "InvalidRequest"),
        ({"urlList": ["http://127.0.0.1/a", "http://example.com/a"]}, 422, "UrlNotOfHost"),
        ({"urlList": ["http://127.0.0.1/a"] * 10_001}, 422, "TooManyUrls"),
        ({"urlList": ["http://127.0.0.1/\ud800"]}, 400, "InvalidRequest"),
        ({"urlList": ["http://127.0.0.1/a b"]}, 400, "InvalidRequest"),
        ({"urlList": ["http://127.0.0.1/a#b"]}, 400, "InvalidRequest"),
        ({"urlList": ["http://user@127.0.0.1/a"]}, 400, "InvalidRequest"),
        ({"urlList": ["http://127.0.0.1:99999999999/a"]}, 400, "InvalidRequest"),
        ({"urlList": ["http://127.0.0.1/f/%2e%2e/a"]}, 400, "InvalidRequest"),
        ({"urlList": ["http://127.0.0.1/a", "http://127.0.0.1/a"]}, 400, "InvalidRequest"),
        ({"keyLocation": "\ud800"}, 400, "InvalidRequest"),
        ({"keyLocation": "/relative.txt"}, 400, "InvalidRequest"),
        ({"keyLocation": "http://127.0.0.1:9/0123456789abcdef.txt"}, 422, "KeyLocationMismatch"),
    ],
)
def test_what_the_protocol_does_not_allow_is_refused_and_not_kept(
    client: httpx.Client, site: WebServer, changes: dict[str, Any], status: int, code: str
) -> None:
    body = json.dumps(announcement(site, **changes))  # also what httpx would not send
    response = client.post("/indexnow", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["errorCode"]) == (status, code)
    assert shown(client) == []


@pytest.mark.parametrize(
    ("content_type", "body", "says"),
    [
        ("text/plain", b"{}", "Content-Type must be application/json"),
        ("", b"{}", "Content-Type must be application/json"),
        ("application/json", b"{", "no JSON in UTF-8"),
        ("application/json", b"\xff", "no JSON in UTF-8"),
        ("application/json", b"[]", "must be a JSON object"),
        ("application/json", b"[" * 200_000, "no JSON in UTF-8"),
        ("application/json", b" " * 25_000_001, "more than 25000000 bytes"),
    ],
)
def test_a_body_that_is_no_announcement_is_refused(
    client: httpx.Client, content_type: str, body: bytes, says: str
) -> None:
    response = client.post("/indexnow", content=body, headers={"Content-Type": content_type})
    assert (response.status_code, response.json()["errorCode"]) == (400, "InvalidRequest")
    assert says in response.json()["message"]


def test_a_key_in_a_folder_covers_that_folder_alone(client: httpx.Client, site: WebServer) -> None:
    site.pages["/news/key.txt"] = KEY.encode()
    location = f"{site.url}/news/key.txt"
    inside, outside = [f"{site.url}/news/a"], [f"{site.url}/newspaper"]
    assert client.post("/indexnow", json=announcement(site, keyLocation=location, urlList=inside)).is_success
    response = client.post("/indexnow", json=announcement(site, keyLocation=location, urlList=outside))
    assert (response.status_code, response.json()["errorCode"]) == (422, "UrlNotCovered")


@pytest.mark.parametrize(
    ("page", "code"),
    [
        (b"something else", "KeyNotFound"),
        (f"{KEY}{KEY}".encode(), "KeyNotFound"),
        (Response(status=500), "KeyNotFound"),
        (Response(status=302, headers={"Location": "/elsewhere"}), "KeyNotFound"),
        (Response(b"", cut=True), "SiteVerificationNotCompleted"),
    ],
)
def test_the_key_file_must_hold_the_key(
    client: httpx.Client, site: WebServer, page: Response | bytes, code: str
) -> None:
    site.pages[f"/{KEY}.txt"] = page
    response = client.post("/indexnow", json=announcement(site))
    assert (response.status_code, response.json()["errorCode"]) == (403, code)
    assert "/elsewhere" not in site.paths
    site.pages[f"/{KEY}.txt"] = f"\ufeff{KEY}\n".encode()
    assert client.post("/indexnow", json=announcement(site)).status_code == 200


def test_nothing_but_the_key_file_of_the_site_is_ever_fetched(client: httpx.Client, site: WebServer) -> None:
    other = WebServer(lambda _: Response(KEY.encode()))
    for changes in (
        {"keyLocation": f"{other.url}/{KEY}.txt"},
        {"urlList": [f"{other.url}/a"]},
        {"host": other.url.removeprefix("http://")},
    ):
        client.post("/indexnow", json=announcement(site, **changes))
    assert other.requests == []
    assert set(site.paths) <= {f"/{KEY}.txt"}
    other.close()


def test_too_many_requests_are_refused_for_a_while(site: WebServer) -> None:
    with receiver(site, most_requests=2) as client:
        statuses = [client.post("/indexnow", json=announcement(site)).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        response = client.post("/indexnow", content=b"")
        assert (response.status_code, response.headers["Retry-After"]) == (429, "60")


def test_only_posts_announce(client: httpx.Client) -> None:
    assert client.get("/indexnow").status_code == 405
    assert client.get("/docs").status_code == client.get("/openapi.json").status_code == 404


def test_it_is_started_like_any_web_app(
    start_process: Callable[..., Process], site: WebServer, tmp_path: Any
) -> None:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "tasks.receiver:receiver",
        "--host=127.0.0.1",
        f"--port={port}",
    ]
    process = start_process(*command, SITE_URL=site.url, TASKS_DATA=str(tmp_path / "data"))
    process.wait_for("startup complete")
    address = f"http://127.0.0.1:{port}"
    body = json.dumps(announcement(site)).encode()
    sent = httpx.post(f"{address}/indexnow", content=body, headers={"Content-Type": "application/json"})
    assert sent.status_code == 200
    wait_until(lambda: len(httpx.get(address).json()["announced"]) == 2)
