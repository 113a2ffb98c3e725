"""Reading a sitemap from a real server: dialects, disguises, loops, attacks; whole or not at all."""

import gzip
import json
import logging
import os
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from tasks.announcing.failures import SitemapError
from tasks.announcing.moments import moment
from tasks.announcing.origin import NotOurs, Origin
from tests.app.sitemaps import NAMESPACE, index, read, urlset
from tests.support.web_server import Request, Response, WebServer
from tests.support.workers import ROOT

MEGABYTE = 1_000_000


@pytest.fixture
def site() -> Iterator[WebServer]:
    server = WebServer()
    yield server
    server.close()


@pytest.fixture
def listener() -> Iterator[WebServer]:
    """Another host, which nobody may ever ask for anything."""
    server = WebServer(lambda _: Response(b"secret"))
    yield server
    assert server.requests == []
    server.close()


def names(site: WebServer) -> list[str]:
    return [url.removeprefix(f"{site.url}/") for url in read(site).pages]


def refused(site: WebServer) -> tuple[str, str]:
    """The reason and the whole message of the error, which comes soon."""
    began = time.monotonic()
    with pytest.raises(SitemapError) as error:
        read(site)
    assert time.monotonic() - began < 10
    return str(error.value.reason), str(error.value)


# --- where it is --------------------------------------------------------------------------------------------


def test_the_sitemaps_that_robots_txt_names_are_read_and_no_other(site: WebServer) -> None:
    site.pages["/robots.txt"] = (
        f"\ufeffUser-agent: *\r\nDisallow: /x\r\nSITEMAP : {site.url}/one.xml # ours\r\n\r\n"
        "Sitemap: /two.xml\nsitemap:\n"
    ).encode()
    site.pages["/one.xml"] = urlset([f"{site.url}/1"])
    site.pages["/two.xml"] = urlset([f"{site.url}/2"])
    assert names(site) == ["1", "2"]
    assert site.paths == ["/robots.txt", "/one.xml", "/two.xml"]


@pytest.mark.parametrize("robots", [None, b"User-agent: *\nDisallow:", b"<!DOCTYPE html><html>not found"])
def test_without_such_a_line_it_is_sitemap_xml(site: WebServer, robots: bytes | None) -> None:
    if robots is not None:
        site.pages["/robots.txt"] = robots
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/1"])
    assert names(site) == ["1"]


def test_a_packed_robots_txt_is_read_too(site: WebServer) -> None:
    robots = gzip.compress(b"Sitemap: /other.xml")
    site.pages["/robots.txt"] = Response(robots, headers={"Content-Encoding": "gzip"})
    site.pages["/other.xml"] = urlset([f"{site.url}/1"])
    assert names(site) == ["1"]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_a_robots_txt_that_cannot_be_had_now_may_name_another_sitemap(site: WebServer, status: int) -> None:
    site.pages["/robots.txt"] = Response(status=status)
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/1"])
    assert refused(site)[0] == "status"


def test_a_file_is_read_once_however_often_it_is_named(site: WebServer) -> None:
    site.pages["/robots.txt"] = b"Sitemap: /index.xml\nSitemap: /a.xml\nSitemap: /moved.xml"
    site.pages["/index.xml"] = index(f"{site.url}/a.xml", f"{site.url}/a.xml#x", "/b.xml")
    site.pages["/a.xml"] = urlset([f"{site.url}/1"])
    site.pages["/b.xml"] = urlset([f"{site.url}/2", f"{site.url}/1", "/relative"])
    site.pages["/moved.xml"] = Response(status=301, headers={"Location": "/b.xml"})
    reading = read(site)
    assert (len(reading.pages), reading.files, reading.dropped) == (2, 4, 1)
    assert [path for path in site.paths if path == "/a.xml"] == ["/a.xml"]


# --- what it is in ------------------------------------------------------------------------------------------


def _members(data: bytes) -> bytes:
    middle = len(data) // 2
    return gzip.compress(data[:middle]) + gzip.compress(data[middle:])


@pytest.mark.parametrize(
    ("path", "disguise", "headers"),
    [
        ("/s.xml.gz", lambda data: data, {}),
        ("/s.xml.gz", lambda data: data, {"Content-Type": "application/x-gzip"}),
        ("/s.xml", gzip.compress, {}),
        ("/s.xml", gzip.compress, {"Content-Encoding": "gzip"}),
        ("/s.xml.gz", gzip.compress, {"Content-Type": "application/gzip"}),
        ("/s.xml.gz", lambda data: gzip.compress(gzip.compress(data)), {"Content-Encoding": "gzip"}),
        ("/s.xml", lambda data: data, {"Content-Encoding": "gzip"}),
        ("/s.xml.gz", _members, {}),
        ("/s.xml.gz", lambda data: gzip.compress(data) + bytes(600), {}),
    ],
    ids=["plain.gz", "plain typed gzip", "unsaid", "encoded", "file", "twice", "lie", "members", "padded"],
)
def test_gzip_is_known_by_its_first_bytes_alone(
    site: WebServer, path: str, disguise: object, headers: dict[str, str]
) -> None:
    assert callable(disguise)
    site.pages["/robots.txt"] = f"Sitemap: {path}".encode()
    packed = disguise(urlset([f"{site.url}/{number}" for number in range(3000)]))
    site.pages[path] = Response(packed, headers=headers)
    assert len(names(site)) == 3000
    # And the same byte by byte.
    packed = disguise(urlset([f"{site.url}/{number}" for number in range(30)]))
    site.pages[path] = Response((packed[i : i + 1] for i in range(len(packed))), headers=headers)
    assert len(names(site)) == 30


@pytest.mark.parametrize(
    ("form", "names_in_it"),
    [
        ("<urlset><url><loc>{0}/a</loc></url></urlset>", ["a"]),
        (
            '<urlset xmlns="http://www.google.com/schemas/sitemap/0.84"><url><loc>{0}/a</loc></url></urlset>',
            ["a"],
        ),
        (
            '<urlset xmlns="https://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>{0}/a</loc></url></urlset>',
            ["a"],
        ),
        ('<urlset xmlns="urn:of-its-own"><url><loc>{0}/a</loc></url></urlset>', ["a"]),
        ('<s:urlset xmlns:s="{1}"><s:url><s:loc>{0}/a</s:loc></s:url></s:urlset>', ["a"]),
        ('<urlset><urlset xmlns="{1}"><url><loc>{0}/a</loc></url></urlset></urlset>', ["a"]),
        ('\ufeff<?xml version="1.0" encoding="UTF-8"?><urlset><url><loc>{0}/a</loc></url></urlset>', ["a"]),
        ('\n \t\r\n<?xml version="1.0"?><urlset><url><loc>{0}/a</loc></url></urlset>', ["a"]),
        ('\ufeff\n<?xml version="1.0"?><urlset><url><loc>{0}/a</loc></url></urlset>\n\n', ["a"]),
        ("<urlset><url><loc><![CDATA[{0}/a?b=1&c=2]]></loc></url></urlset>", ["a?b=1&c=2"]),
        ("<urlset><url><loc>\n   {0}/a \n</loc></url></urlset>", ["a"]),
        ("<urlset><url><loc>{0}/a?b=1&amp;c=&amp;amp;</loc></url></urlset>", ["a?b=1&c=&amp;"]),
        (
            (
                '<urlset xmlns="{1}" xmlns:i="urn:images"><url><i:loc>{0}/no</i:loc>'
                "<i:image><loc>{0}/nor-this</loc></i:image><loc>{0}/a</loc></url></urlset>"
            ),
            ["a"],
        ),
        ("<urlset/>", []),
    ],
)
def test_every_dialect_is_understood(site: WebServer, form: str, names_in_it: list[str]) -> None:
    site.pages["/sitemap.xml"] = form.format(site.url, NAMESPACE).encode()
    assert names(site) == names_in_it


def test_other_encodings_are_understood(site: WebServer) -> None:
    text = f"<urlset><url><loc>{site.url}/ä</loc></url></urlset>"
    for encoding in ("utf-16", "iso-8859-1"):
        site.pages["/sitemap.xml"] = f'<?xml version="1.0" encoding="{encoding}"?>{text}'.encode(encoding)
        assert names(site) == ["%C3%A4"]


@pytest.mark.parametrize(
    "encoding", ["shift_jis", "gb2312", "big5", "utf-32", "utf-7", "foo", "hex", "rot13", "idna", "undefined"]
)
def test_an_encoding_that_is_not_understood_is_named(site: WebServer, encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><urlset><url><loc>{site.url}/a</loc></url></urlset>'
    site.pages["/sitemap.xml"] = text.encode()
    reason, message = refused(site)
    assert reason in {"xml", "cut"}
    assert "not well-formed" in message or "ends before" in message


def test_the_names_in_a_file_are_bounded_for_each_is_kept_in_memory(site: WebServer) -> None:
    def sitemap(count: int) -> bytes:
        extras = "".join(f'<x a{number}=""/>' for number in range(count))
        return f"<urlset>{extras}<url><loc>{site.url}/a</loc></url></urlset>".encode()

    site.pages["/sitemap.xml"] = sitemap(500)
    assert names(site) == ["a"]
    site.pages["/sitemap.xml"] = sitemap(300_000)
    assert refused(site)[0] == "not_a_sitemap"


# --- what a change shows by ---------------------------------------------------------------------------------

DATES = {
    "2024": "2024-01-01T00:00:00+00:00",
    "2024-05": "2024-05-01T00:00:00+00:00",
    "2024-05-08": "2024-05-08T00:00:00+00:00",
    "2024-05-08T08:53": "2024-05-08T08:53:00+00:00",
    " 2024-05-08 08:53:11 ": "2024-05-08T08:53:11+00:00",
    "2024-05-08T08:53:11.25+02:00": "2024-05-08T06:53:11+00:00",
    "2024-05-08T23:59:59-1000": "2024-05-09T09:59:59+00:00",
    "2024-05-08T08:53:11Z": "2024-05-08T08:53:11+00:00",
    "2024-05-08 08:53:11 AM": None,
    "2024-13-01": None,
    "20240508": None,
    "2024-W05": None,
    "0001-01-01T00:00:00+14:00": None,
    "yesterday": None,
    "": None,
}
IN_ZONE = "import json, sys; from tests.app.test_sitemap_reading import in_this_zone; in_this_zone()"


def in_this_zone() -> None:
    """Print what the dialects and dates of this file mean to this process."""
    site = WebServer()
    site.pages["/sitemap.xml"] = urlset({f"{site.url}/{n}": date for n, date in enumerate(DATES)})
    pages = {url.removeprefix(site.url): print_ for url, print_ in read(site).pages.items()}
    print(json.dumps([pages, [moment(date) for date in DATES], time.tzname]))
    site.close()


def test_the_zone_of_the_machine_changes_nothing() -> None:
    found = []
    for zone in ("Asia/Tokyo", "America/Los_Angeles"):
        environment = {**os.environ, "TZ": zone, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", IN_ZONE]
        found.append(json.loads(subprocess.check_output(command, cwd=ROOT, env=environment, timeout=60)))
    (tokyo, dates, zone), (angeles, same_dates, other_zone) = found
    assert zone != other_zone
    assert tokyo == angeles
    assert dates == same_dates == list(DATES.values())


def test_a_date_is_kept_as_it_is_written_and_a_bad_one_fails_nothing(site: WebServer) -> None:
    dates = {f"{site.url}/{n}": date for n, date in enumerate(DATES)}
    site.pages["/sitemap.xml"] = urlset(dates)
    pages = read(site).pages
    assert [pages[url] for url, date in dates.items() if date] == [date.strip() for date in DATES if date]
    assert pages[f"{site.url}/{len(DATES) - 1}"].startswith("sha256:")  # an empty one is none


def test_without_a_date_it_is_the_rest_of_the_entry(site: WebServer) -> None:
    def fingerprint(rest: str) -> str:
        site.pages["/sitemap.xml"] = f"<urlset><url>{rest}<loc>{site.url}/a</loc></url></urlset>".encode()
        (found,) = read(site).pages.values()
        return found

    rests = [
        "",
        "<priority>0.5</priority>",
        "<priority>0.6</priority>",
        '<link href="/b"/>',
        '<link href="/c"/>',
    ]
    prints = [fingerprint(rest) for rest in rests]
    assert len(set(prints)) == len(rests)
    assert fingerprint("\n <priority> 0.5\n</priority> ") == prints[1]
    assert fingerprint(f"<lastmod>{'9' * 10_000}</lastmod>").startswith("sha256:")


# --- what is dropped ----------------------------------------------------------------------------------------


def test_what_cannot_be_announced_is_one_line_each(site: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    bad = ["https://elsewhere.example/a", "/relative", "", f"{site.url}/{'x' * 2048}", "ftp://127.0.0.1/a"]
    bad += [
        f"{site.url.replace('://', '://user:hunter2@')}/a",
        "http://127.0.0.1:1/other-port",
        "http://[::1",
    ]
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/good", *bad])
    with caplog.at_level(logging.WARNING, "tasks.sitemap"):
        reading = read(site)
    assert list(reading.pages) == [f"{site.url}/good"]
    assert reading.dropped == len(bad) == len(caplog.records)
    assert all(record.getMessage().startswith("dropped: ") for record in caplog.records)
    assert "hunter2" not in caplog.text


def test_a_sitemap_of_another_site_alone_is_an_error_and_no_empty_site(site: WebServer) -> None:
    site.pages["/sitemap.xml"] = urlset(["https://www.example.com/a", "https://www.example.com/b"])
    reason, message = refused(site)
    assert reason == "foreign"
    assert "none of its 2 URLs" in message
    assert "SITE_URL" in message


@pytest.mark.parametrize(
    ("loc", "normal"),
    [
        ("HTTP://Example.COM:80/A", "http://example.com/A"),
        ("https://example.com:443/a#part", "https://example.com/a"),
        ("http://example.com", "http://example.com/"),
        ("http://example.com/ä b?q=ö&r=%C3%B6", "http://example.com/%C3%A4%20b?q=%C3%B6&r=%C3%B6"),
        ("http://example.com/a/./../b", "http://example.com/b"),
    ],
)
def test_a_url_has_one_spelling(loc: str, normal: str) -> None:
    origin = Origin("https://example.com")
    assert origin.normalised(loc) == normal
    assert origin.normalised(normal) == normal


def test_a_host_name_in_another_alphabet_is_the_same_in_ascii() -> None:
    origin = Origin("https://bücher.example")
    assert origin.host == "xn--bcher-kva.example"
    assert origin.normalised("https://BÜCHER.example/x") == "https://xn--bcher-kva.example/x"
    assert origin.normalised("https://xn--bcher-kva.example/x") == "https://xn--bcher-kva.example/x"
    for foreign in ("https://www.bücher.example/", "https://bücher.example:8443/", "//bücher.example/x"):
        with pytest.raises(NotOurs):
            origin.normalised(foreign)


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (Response(status=404), "status"),
        (Response(status=204), "status"),
        (Response(b"<!DOCTYPE html><html><body>hello", headers={"Content-Type": "application/xml"}), "html"),
        (Response(b"<html><body/></html>"), "html"),
        (Response(b"<rss><channel/></rss>"), "not_a_sitemap"),
        (Response(b"<urlset><url></urlset>"), "xml"),
        (Response(b"<urlset>&nbsp;</urlset>"), "xml"),
        (Response(b"{}"), "xml"),
        (Response(b""), "cut"),
        (Response(b"<urlset><url><loc>http://127.0.0.1/</loc></url>"), "cut"),
        (Response(b"<urlset/>", cut=True), "cut"),
        (Response(gzip.compress(urlset(["x"] * 999))[:-9]), "cut"),
        (Response(gzip.compress(urlset(["x"]))[:-1]), "cut"),
        (Response(gzip.compress(b"<urlset/>") + b"rubbish"), "gzip"),
        (Response(b"\x1f\x8brubbish"), "gzip"),
        (Response(status=302, headers={"Location": "https://elsewhere.example/sitemap.xml"}), "foreign"),
        (Response(status=302, headers={"Location": "file:///etc/passwd"}), "foreign"),
        (Response(status=302, headers={"Location": "/sitemap.xml"}), "loop"),
        (Response(index("https://elsewhere.example/sitemap.xml")), "foreign"),
        (Response(index("")), "not_a_sitemap"),
        (Response(index("/missing.xml")), "status"),
    ],
)
def test_whatever_is_wrong_with_it_has_a_name(site: WebServer, page: Response, reason: str) -> None:
    site.pages["/sitemap.xml"] = page
    assert refused(site)[0] == reason


def test_a_site_that_is_not_there_is_an_error(site: WebServer) -> None:
    site.close()
    assert refused(site)[0] == "unreachable"


@pytest.mark.parametrize("child", ["/sitemap.xml", "/b.xml", "/moved.xml"])
def test_an_index_that_leads_to_itself_is_an_error(site: WebServer, child: str) -> None:
    site.pages["/sitemap.xml"] = index(f"{site.url}{child}")
    site.pages["/b.xml"] = index(f"{site.url}/sitemap.xml")
    site.pages["/moved.xml"] = Response(status=301, headers={"Location": "/sitemap.xml"})
    reason, message = refused(site)
    assert reason == "loop"
    assert "leads back" in message
    assert len(site.requests) <= 4


def test_indexes_below_indexes_end_after_three_files(site: WebServer) -> None:
    site.pages["/sitemap.xml"] = index("/1.xml")
    site.pages["/1.xml"] = index("/2.xml")
    site.pages["/2.xml"] = urlset([f"{site.url}/a"])
    assert names(site) == ["a"]
    site.behave = lambda request: Response(index(f"{request.path}x"))
    del site.pages["/2.xml"]
    assert refused(site)[0] == "too_deep"
    assert site.paths[-1] == "/2.xml"


def test_the_number_of_files_and_of_entries_is_bounded(
    site: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/{n}" for n in range(50_001)])
    assert refused(site)[0] == "too_many"
    monkeypatch.setattr("tasks.announcing.reading.MOST_FILES", 3)
    site.pages["/sitemap.xml"] = index("/1", "/2", "/3")
    site.pages.update(dict.fromkeys(("/1", "/2", "/3"), b"<urlset/>"))
    assert refused(site)[0] == "too_many"
    monkeypatch.setattr("tasks.announcing.reading.MOST_PAGES", 1)
    site.pages["/sitemap.xml"] = urlset([f"{site.url}/1", f"{site.url}/2"])
    assert refused(site)[0] == "too_many"


def test_a_server_that_drips_is_given_up(site: WebServer) -> None:
    def drip() -> Iterator[bytes]:
        yield b"<urlset>"
        while not site.closing.wait(0.02):
            yield b" "

    site.pages["/sitemap.xml"] = Response(drip())
    with pytest.raises(SitemapError, match=r"timeout: .*more than 0\.3 s"):
        read(site, seconds=0.3)


def test_reading_ends_when_the_run_is_to_end(site: WebServer) -> None:
    site.pages["/sitemap.xml"] = index("/1", "/2")
    site.pages.update(dict.fromkeys(("/1", "/2"), b"<urlset/>"))

    def go_on() -> None:
        if "/1" in site.paths:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        read(site, go_on=go_on)
    assert "/2" not in site.paths


# --- attacks ------------------------------------------------------------------------------------------------

LAUGHS = b"<!DOCTYPE lolz [<!ENTITY a 'ha'>%s]><urlset><url><loc>&j;</loc></url></urlset>" % b"".join(
    b"<!ENTITY %c '%s'>" % (name, b"&%c;" % (name - 1) * 10) for name in b"bcdefghij"
)


@pytest.mark.parametrize("packed", [False, True])
def test_an_entity_that_laughs_a_billion_times_is_refused_where_it_is_declared(
    site: WebServer, *, packed: bool
) -> None:
    site.pages["/sitemap.xml"] = gzip.compress(LAUGHS) if packed else LAUGHS
    tracemalloc.start()
    assert refused(site)[0] == "doctype"
    assert tracemalloc.get_traced_memory()[1] < 10 * MEGABYTE
    tracemalloc.stop()


@pytest.mark.parametrize(
    "dtd",
    [
        '<!DOCTYPE urlset [<!ENTITY x SYSTEM "{0}/entity">]>',
        '<!DOCTYPE urlset [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE urlset SYSTEM "{0}/dtd">',
        '<!DOCTYPE urlset [<!ENTITY % p SYSTEM "{0}/parameter"> %p; <!ENTITY x "y">]>',
        '<!DOCTYPE urlset PUBLIC "-//x" "{0}/dtd">',
    ],
)
def test_nothing_outside_of_the_file_is_fetched_for_it(
    site: WebServer, listener: WebServer, dtd: str
) -> None:
    text = dtd.replace("{0}", listener.url) + f"<urlset><url><loc>{site.url}/&x;</loc></url></urlset>"
    site.pages["/sitemap.xml"] = text.encode()
    reason, message = refused(site)
    assert reason == "doctype"
    assert "root:" not in message
    assert site.paths == ["/robots.txt", "/sitemap.xml"]


@pytest.mark.parametrize("where", ["robots", "redirect", "child", "page"])
def test_no_other_host_is_ever_asked(site: WebServer, listener: WebServer, where: str) -> None:
    """The listener is another port of the same machine, which is another site."""
    if where == "robots":
        site.pages["/robots.txt"] = f"Sitemap: {listener.url}/s.xml".encode()
    elif where == "redirect":
        site.pages["/sitemap.xml"] = Response(status=307, headers={"Location": f"{listener.url}/s.xml"})
    elif where == "child":
        site.pages["/sitemap.xml"] = index(f"{listener.url}/s.xml")
    else:
        site.pages["/sitemap.xml"] = urlset([f"{listener.url}/s.xml"])
    assert refused(site)[0] == "foreign"


def _bomb(opening: bytes, filling: bytes) -> bytes:
    """5 GB, as 5 to 20 MB of gzip: one compressed block, repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(opening) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(filling * (MEGABYTE // len(filling))) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * 5_000


@pytest.mark.parametrize(
    ("opening", "filling", "reason"),
    [
        (b"", b"\0", "xml"),
        (b"", b" ", "too_big"),
        (b"<urlset>", b" ", "too_big"),
        (b"<urlset><url><loc>", b"x", "too_big"),
        (b"<urlset><!--", b"x", "too_big"),
        (b"<urlset ", b"x", "too_big"),
        (b"<urlset", b" a='%s'" % (b"x" * 95), "too_big"),
        (b"<urlset>", b"<url><loc>http://127.0.0.1/</loc></url>\n", "too_many"),
        (b"<urlset>", b"<x/>", "too_many"),
        (b"<urlset>", b"<x>", "not_a_sitemap"),
        (b"<urlset>", b"<x>%s</x>" % (b"1" * 993), "too_big"),
    ],
    ids=[
        "zeros",
        "blanks",
        "text",
        "loc",
        "comment",
        "tag",
        "attributes",
        "entries",
        "tags",
        "depth",
        "size",
    ],
)
def test_a_bomb_of_five_gigabytes_ends_at_fifty_megabytes_unpacked(
    site: WebServer, opening: bytes, filling: bytes, reason: str
) -> None:
    bomb = _bomb(opening, filling)
    assert len(bomb) < 20 * MEGABYTE
    site.pages["/sitemap.xml"] = bomb
    assert refused(site)[0] == reason


def test_a_bomb_in_a_bomb_is_bounded_too(site: WebServer) -> None:
    site.pages["/sitemap.xml"] = gzip.compress(_bomb(b"<urlset>", b" "))
    assert refused(site)[0] == "too_big"


def test_more_than_a_sitemap_may_have_is_refused_unpacked_too(site: WebServer) -> None:
    def endless(_: Request) -> Response:
        return Response(chain([b"<urlset>"], repeat(b"<x>%s</x>" % (b"1" * 60_000))))

    site.behave = endless
    site.pages["/robots.txt"] = b""
    assert refused(site)[0] == "too_big"
