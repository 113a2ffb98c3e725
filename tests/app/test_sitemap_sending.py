"""Announcing: what is sent in which run, what each answer means, and what is never said aloud."""

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from celery_lease import LeaseLost
from tasks.announcing.failures import EndpointRefused, KeyFileError, NotConfigured, SitemapError
from tasks.announcing.origin import Origin
from tasks.fence import StaleFence
from tasks.rehearsal import Result
from tasks.store import Store
from tests.app.conftest import Rows
from tests.app.passes import FakeLease
from tests.app.sitemaps import KEY, Runs, urlset
from tests.support.web_server import Request, Response, WebServer

KEY_FILE = f"/{KEY}.txt"


@pytest.fixture
def runs(store: Store) -> Iterator[Runs]:
    site, endpoint = WebServer(), WebServer()
    yield Runs(store, site, endpoint)
    site.close()
    endpoint.close()


@pytest.fixture
def url(sqlite_url: str) -> str:
    """Both databases are in the tests of the inventory."""
    return sqlite_url


def counts(result: Result, *names: str) -> list[int | str]:
    return [result[name] for name in names or ("worked", "backlog")]


# --- what is sent -------------------------------------------------------------------------------------------


def test_what_changed_since_the_first_run_is_sent_and_then_nothing(runs: Runs) -> None:
    runs.serve(*"abc")
    first = runs.run()
    assert counts(first, "worked", "backlog", "baseline", "urls", "files") == [0, 0, 3, 3, 1]
    runs.serve("a", "d", b="2026-01-01", c=None)
    second = runs.run()
    assert counts(second, "worked", "backlog", "new", "changed") == [2, 0, 1, 1]
    assert runs.sent() == [["b", "d"]]
    for _ in range(2):
        assert counts(runs.run()) == [0, 0]
    assert runs.sent() == []


def test_an_announcement_is_as_the_protocol_wants_it(runs: Runs) -> None:
    runs.serve()
    runs.run()
    runs.serve("ä b")
    runs.run()
    (post,) = runs.endpoint.posts
    assert post.headers["content-type"] == "application/json; charset=utf-8"
    assert post.json == {
        "host": "127.0.0.1",
        "key": KEY,
        "keyLocation": f"{runs.site.url}{KEY_FILE}",
        "urlList": [f"{runs.site.url}/%C3%A4%20b"],
    }


def test_removed_pages_are_sent_after_two_readings_without_them(runs: Runs) -> None:
    runs.serve(*"abc")
    runs.run()
    runs.serve(*"ab")
    assert counts(runs.run()) == [0, 0]
    assert counts(runs.run(), "worked", "removed") == [1, 1]
    assert runs.sent() == [["c"]]
    assert counts(runs.run()) == [0, 0]


def test_of_very_many_urls_two_batches_are_sent_and_what_cannot_be_is_a_line_each(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    runs.serve()
    runs.run()
    urls = [f"{runs.site.url}/{number}" for number in range(10_000)] + [f"{runs.site.url}/ü"]
    runs.site.pages["/sitemap.xml"] = urlset([*urls, "https://www.example.org/x", "/relative", urls[0]])
    with caplog.at_level(logging.WARNING, "tasks.sitemap"):
        result = runs.run()
    assert counts(result, "worked", "backlog", "dropped") == [10_001, 0, 2]
    posts = [post.urls for post in runs.endpoint.posts]
    assert [len(batch) for batch in posts] == [10_000, 1]
    assert len({url for batch in posts for url in batch}) == 10_001
    assert sum(f"{runs.site.url}/%C3%BC" in batch for batch in posts) == 1
    assert [record.getMessage().split()[1] for record in caplog.records] == [
        "'https://www.example.org/x',",
        "'/relative',",
    ]
    runs.endpoint.requests.clear()
    assert counts(runs.run()) == [0, 0]
    assert runs.sent() == []


def test_nothing_is_changed_or_sent_when_the_sitemap_is_not_whole(runs: Runs, rows: Rows) -> None:
    runs.serve(*"abc")
    runs.run()
    runs.serve(*"abcd")
    whole = runs.site.pages["/sitemap.xml"]
    assert isinstance(whole, bytes)
    before = rows("SELECT * FROM sitemap_url"), rows("SELECT * FROM sitemap_site")
    for broken in (whole[:-20], Response(whole, cut=True), Response(whole, status=500), urlset([])):
        runs.site.pages["/sitemap.xml"] = broken
        with pytest.raises(SitemapError):
            runs.run()
    assert (rows("SELECT * FROM sitemap_url"), rows("SELECT * FROM sitemap_site")) == before
    assert runs.endpoint.requests == []
    runs.site.pages["/sitemap.xml"] = whole
    assert counts(runs.run()) == [1, 0]


def test_a_first_reading_that_fails_is_no_baseline(runs: Runs) -> None:
    runs.site.pages["/sitemap.xml"] = b"<urlset>"
    with pytest.raises(SitemapError):
        runs.run()
    runs.serve("a")
    assert counts(runs.run(), "worked", "baseline") == [0, 1]


# --- what the answers mean ----------------------------------------------------------------------------------


@pytest.fixture
def changed(runs: Runs) -> Runs:
    """Four URLs are due."""
    runs.serve()
    runs.run()
    runs.serve(*"abcd")
    return runs


def test_204_is_as_good_as_200(changed: Runs) -> None:
    changed.answer(204)
    assert counts(changed.run()) == [4, 0]


@pytest.mark.parametrize("status", [500, 502, 503, 408])
def test_an_endpoint_in_trouble_is_asked_again_in_the_next_run(changed: Runs, status: int) -> None:
    changed.answer(status, 200)
    result = changed.run()
    assert counts(result) == [0, 4]
    assert result["stopped"] == f"status {status}"
    assert counts(changed.run()) == [4, 0]
    assert changed.sent() == [list("abcd")] * 2


def test_an_endpoint_that_hangs_up_or_is_not_there_is_asked_again_too(changed: Runs) -> None:
    changed.answer(200, body=b"x", cut=True)
    result = changed.run()
    assert counts(result) == [0, 4]
    assert str(result["stopped"]).startswith("no answer: RemoteProtocolError")
    result = changed.run(indexnow_endpoint="http://127.0.0.1:9/indexnow")
    assert str(result["stopped"]).startswith("no answer: ConnectError")


@pytest.mark.parametrize("retry_after", ["7200", "date"])
def test_asked_too_often_it_is_left_alone_for_as_long_as_it_says(
    changed: Runs, rows: Rows, retry_after: str
) -> None:
    at = datetime.now(UTC) + timedelta(hours=2)
    value = at.strftime("%a, %d %b %Y %H:%M:%S GMT") if retry_after == "date" else retry_after
    changed.answer(429, headers={"Retry-After": value})
    result = changed.run()
    assert counts(result) == [0, 4]
    assert "status 429: nothing is sent before" in str(result["stopped"])
    until = datetime.fromisoformat(str(rows("SELECT not_before FROM sitemap_site")[0][0]))
    assert abs((until - at).total_seconds()) < 5
    changed.answer()
    again = changed.run()
    assert counts(again) == [0, 4]
    assert str(again["stopped"]).startswith("the endpoint wants a pause until 20")
    assert len(changed.endpoint.posts) == 1
    rows("UPDATE sitemap_site SET not_before = '2001-01-01T00:00:00+00:00'")
    assert counts(changed.run()) == [4, 0]


def test_what_was_taken_before_the_limit_stays_taken(changed: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    in_batches_of(3, monkeypatch)
    changed.answer(200, 429)
    assert counts(changed.run()) == [3, 1]
    assert changed.sent() == [list("abc"), ["d"]]


def in_batches_of(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.announcing.sending.MOST_URLS", size)


def test_while_the_key_is_being_checked_one_url_asks_and_the_batch_is_sent_once_more(changed: Runs) -> None:
    changed.answer(202)
    assert counts(changed.run(), "worked", "backlog", "provisional") == [0, 0, 4]
    assert counts(changed.run(), "worked", "backlog", "provisional") == [0, 0, 4]
    assert changed.sent() == [list("abcd"), ["a"]]
    changed.answer(200)
    assert counts(changed.run(), "worked", "backlog", "provisional") == [4, 0, 0]
    assert changed.sent() == [["a"], list("bcd")]
    assert counts(changed.run(), "worked", "provisional") == [0, 0]
    assert changed.sent() == []


def test_the_first_url_that_is_taken_brings_the_others_along_and_each_only_once(changed: Runs) -> None:
    changed.answer(202)
    changed.run()
    changed.serve(*"abcde")
    changed.answer(200, 202)
    assert counts(changed.run(), "worked", "provisional") == [5, 0]
    assert changed.sent() == [list("abcd"), ["e"], list("abcd")]


def refusing(names: str) -> Callable[[Request], Response]:
    """An endpoint that takes no batch with one of these pages in it."""

    def behave(request: Request) -> Response:
        paths = {url.rpartition("/")[2] for url in request.urls}
        return Response(status=422 if paths & set(names) else 200)

    return behave


def test_bad_urls_are_found_and_named_and_hold_up_no_other(
    changed: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_batches_of(4, monkeypatch)
    changed.serve(*"abcdefgh")
    changed.endpoint.behave = refusing("bd")
    says = r"status 422 for 2 URLs, such as '.*/b'; they stay due; 6 others were announced"
    with pytest.raises(EndpointRefused, match=says):
        changed.run()
    pieces = [list("abcd"), list("ab"), ["a"], ["b"], list("cd"), ["c"], ["d"], list("efgh")]
    assert changed.sent() == pieces
    with pytest.raises(EndpointRefused, match="status 422 for 2 URLs"):
        changed.run()
    assert changed.sent() == [list("bd"), ["b"], ["d"]]
    changed.answer()
    assert counts(changed.run()) == [2, 0]


def test_an_endpoint_that_takes_no_url_is_asked_so_often_and_no_more(changed: Runs) -> None:
    changed.serve(*map(str, range(100)))
    changed.answer(422)
    with pytest.raises(EndpointRefused, match=r"status 422.*30 requests were refused"):
        changed.run()
    assert len(changed.sent()) == 30
    changed.answer()
    assert counts(changed.run()) == [100, 0]


@pytest.mark.parametrize(("status", "stopped"), [(429, "nothing is sent before"), (503, "status 503")])
def test_what_stops_a_run_stops_it_between_two_halves_too(
    changed: Runs, rows: Rows, status: int, stopped: str
) -> None:
    answers = iter([Response(status=422), Response(status=status, headers={"Retry-After": "7200"})])
    changed.endpoint.behave = lambda _: next(answers)
    with pytest.raises(EndpointRefused, match=stopped):
        changed.run()
    assert changed.sent() == [list("abcd"), list("ab")]
    ((until,),) = rows("SELECT not_before FROM sitemap_site")
    assert (until is not None) == (status == 429)


def test_a_url_that_is_refused_does_not_hide_that_the_key_has_been_checked(changed: Runs) -> None:
    changed.answer(202)
    changed.run()
    changed.sent()
    changed.endpoint.behave = refusing("a")
    with pytest.raises(EndpointRefused, match=r"such as '.*/a'"):
        changed.run()
    assert changed.sent()[:2] == [["a"], ["b"]]
    changed.answer()
    assert counts(changed.run(), "provisional") == [0]


def error_code(code: str) -> bytes:
    return json.dumps({"errorCode": code, "message": f"sorry, {KEY}", "details": None}).encode()


def test_a_key_that_is_not_checked_yet_is_no_error(changed: Runs) -> None:
    changed.answer(403, body=error_code("SiteVerificationNotCompleted"))
    result = changed.run()
    assert counts(result) == [0, 4]
    assert "SiteVerificationNotCompleted" in str(result["stopped"])
    changed.answer()
    assert counts(changed.run()) == [4, 0]


@pytest.mark.parametrize(
    ("status", "response", "says"),
    [
        (403, {"body": error_code("KeyNotFound")}, "key file, which was right when this run looked"),
        (403, {"body": error_code("UserForbiddedToAccessSite")}, "set INDEXNOW_KEY to a new key"),
        (403, {"body": b"no"}, "see that the endpoint knows INDEXNOW_KEY"),
        (403, {"body": b"[" * 9_000}, "see that the endpoint knows INDEXNOW_KEY"),
        (307, {"headers": {"Location": f"https://x/?key={KEY}"}}, "to 'https://x/?key=***'"),
        (403, {"body": b'{"error": {"code": "KeyNotFound"}}'}, "was right when this run looked"),
        (403, {"body": b'{"error": [], "errorCode": 7}'}, "see that the endpoint knows INDEXNOW_KEY"),
        (400, {}, "see that INDEXNOW_ENDPOINT is an endpoint of IndexNow"),
        (405, {}, "see that INDEXNOW_ENDPOINT is an endpoint of IndexNow"),
        (
            301,
            {"headers": {"Location": "https://elsewhere.example/i"}},
            "to 'https://elsewhere.example/i'; set",
        ),
    ],
)
def test_what_a_person_has_to_change_fails_the_run_at_once(
    changed: Runs, monkeypatch: pytest.MonkeyPatch, status: int, response: dict[str, object], says: str
) -> None:
    in_batches_of(2, monkeypatch)
    changed.answer(status, **response)
    with pytest.raises(EndpointRefused) as refused:
        changed.run()
    assert says in str(refused.value)
    assert f"status {status}" in str(refused.value)
    assert "4 are due" in str(refused.value)
    assert KEY not in str(refused.value)
    assert changed.sent() == [list("ab")]
    changed.answer()
    assert counts(changed.run()) == [4, 0]


# --- before anything is sent --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (Response(status=404), "status 404"),
        (b"", "it holds something else than the key"),
        (f"{KEY} and more".encode(), "it holds something else than the key"),
        (b"<html>hello</html>", "a web page"),
        (Response(status=302, headers={"Location": "/robots.txt"}), "it redirects"),
        (Response(status=302, headers={"Location": "http://127.0.0.1:9/"}), "foreign"),
        (Response(KEY.encode(), cut=True), "cut"),
    ],
)
def test_without_its_own_key_file_nothing_is_sent_and_the_error_says_why(
    changed: Runs, page: Response | bytes, says: str
) -> None:
    changed.site.pages[KEY_FILE] = page
    with pytest.raises(KeyFileError) as wrong:
        changed.run()
    assert says in str(wrong.value)
    assert f"{changed.site.url}/<INDEXNOW_KEY>.txt" in str(wrong.value)
    assert KEY not in str(wrong.value)
    assert changed.endpoint.requests == []
    changed.site.pages[KEY_FILE] = f"\ufeff{KEY}\r\n".encode()
    assert counts(changed.run()) == [4, 0]


def test_a_run_without_changes_does_not_need_the_key_file(runs: Runs) -> None:
    runs.serve("a")
    runs.run()
    runs.run()
    assert KEY_FILE not in runs.site.paths


def test_without_an_endpoint_the_inventory_is_kept_and_the_run_says_what_to_set(changed: Runs) -> None:
    for _ in range(2):
        with pytest.raises(
            NotConfigured, match=r"INDEXNOW_ENDPOINT is not set.*4 URLs are waiting; set it to"
        ):
            changed.run(indexnow_endpoint="")
    assert counts(changed.run()) == [4, 0]


def test_the_key_is_in_no_log(changed: Runs, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        changed.answer(202, body=error_code("x"))
        changed.run()
    assert "sent 4 URLs: status 202" in caplog.text
    assert not [record for record in caplog.records if KEY in record.getMessage()]


# --- overlaps -----------------------------------------------------------------------------------------------


def test_a_run_that_lost_its_lease_sends_nothing_more(changed: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    in_batches_of(1, monkeypatch)
    lease = FakeLease(100, name="sitemap")

    def behave(_: Request) -> Response:
        lease.checks_left = 0
        return Response()

    changed.endpoint.behave = behave
    with pytest.raises(LeaseLost):
        changed.run(lease=lease)
    assert changed.sent() == [["a"]]
    changed.answer()
    changed.fence = 100
    assert counts(changed.run()) == [3, 0]


def test_of_two_overlapping_runs_the_older_one_writes_nothing_more_and_no_url_is_lost(
    changed: Runs, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_batches_of(2, monkeypatch)
    newer: list[Result] = []

    def behave(_: Request) -> Response:
        if not newer:
            changed.answer()
            newer.append({})  # it comes in while the older one waits for its first answer
            newer.append(changed.run(lease=FakeLease(200, name="sitemap")))
        return Response()

    changed.endpoint.behave = behave
    with pytest.raises(StaleFence):
        changed.run(lease=FakeLease(100, name="sitemap"))
    assert counts(newer[1]) == [4, 0]
    assert changed.sent() == [list("ab"), list("ab"), list("cd")]
    assert rows("SELECT state, count(*) FROM sitemap_url GROUP BY state") == [("announced", 4)]


# --- dry runs -----------------------------------------------------------------------------------------------


def test_a_rehearsal_shows_what_would_be_announced_and_writes_and_sends_nothing(
    runs: Runs, url: str, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    runs.serve(*"abcd")
    with Store.open(url, read_only=True) as readable:
        assert counts(runs.rehearse(readable), "worked", "would_be_baseline", "dry_run") == [0, 4, True]
        runs.run()
        runs.serve(*"abc")
        runs.run()
        runs.serve("b", "c", a="2026", e=None)
        before = (
            rows("SELECT * FROM sitemap_url"),
            rows("SELECT * FROM sitemap_site"),
            rows("SELECT * FROM fence"),
        )
        with caplog.at_level(logging.INFO, "tasks.sitemap"):
            result = runs.rehearse(readable)
    assert counts(result, "worked", "would_announce", "would_be_removed", "urls") == [0, 3, 1, 4]
    root = Origin(runs.site.url).root
    assert [record.getMessage() for record in caplog.records] == [
        f"would announce '{root}a'",
        f"would announce '{root}d', which is gone",
        f"would announce '{root}e'",
    ]
    after = rows("SELECT * FROM sitemap_url"), rows("SELECT * FROM sitemap_site"), rows("SELECT * FROM fence")
    assert after == before
    assert runs.endpoint.requests == []
    assert counts(runs.run()) == [3, 0]
