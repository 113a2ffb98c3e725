"""The site with 50,000 answers."""

import re
import sqlite3
import sys
import time
import zlib
from pathlib import Path

import httpx
import pytest

from tasks import published
from tasks.store import Store
from tests.app.site.conftest import Serve
from tests.app.site.served import LONG_AGO, PUBLIC, Served, put, unpacked

ANSWERS = 50_000
#: One near the end of the first part.
BROKEN = 39_000
#: Of the protocol, for one file.
MOST_ADDRESSES, MOST_BYTES = 50_000, 52_428_800


def name(number: int) -> str:
    return f"ingredient {number} of many kinds and words"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "tasks.sqlite3"
    with Store.open(f"sqlite:///{path}") as store:
        put(store, map(name, range(1, ANSWERS + 1)))
    return path


@pytest.fixture(scope="module")
def many(file: Path, serve: Serve) -> Served:
    return serve(f"sqlite:///{file}")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Served:
    url = f"sqlite:///{tmp_path_factory.mktemp('few') / 'tasks.sqlite3'}"
    with Store.open(url) as store:
        put(store, map(name, range(1, 501)))
    return serve(url)


def quickest(site: Served, path: str) -> float:
    """Seconds; the best of many, because others use this machine as well."""

    def once() -> float:
        began = time.perf_counter()
        assert site.get(path).status_code == 200
        return time.perf_counter() - began

    return min(once() for _ in range(15))


def peak_kilobytes(site: Served) -> int:
    """The most memory that the process ever had."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{site.process.pid}/status").read_text())
    assert found
    return int(found[1])


def test_there_is_an_index_of_parts_that_hold_every_address_once(many: Served) -> None:
    index = many.entries()
    assert index == {"/sitemap-1.xml": LONG_AGO, "/sitemap-2.xml": LONG_AGO}
    parts = [many.entries(path) for path in index]
    assert [len(part) for part in parts] == [published.ANSWERS_IN_A_PART + 1, 10_000]
    expected = {published.path_of(number, name(number)) for number in range(1, ANSWERS + 1)}
    assert {path for part in parts for path in part} == expected | {"/answers"}


def test_no_part_can_outgrow_the_protocol(many: Served) -> None:
    longest = f"https://{'x' * 253}:65535{published.path_of(published.GREATEST_ID, 'x' * 400)}"
    entry = f"<url><loc>{longest}</loc><lastmod>{LONG_AGO}</lastmod></url>\n"
    assert published.ANSWERS_IN_A_PART + 1 <= MOST_ADDRESSES
    assert published.ANSWERS_IN_A_PART * len(entry) < MOST_BYTES
    assert entry.replace(longest, f"{PUBLIC}/answers/1-{name(1).replace(' ', '-')}") in many.text(
        "/sitemap-1.xml"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process had")
def test_a_part_is_never_in_memory_as_a_whole(many: Served) -> None:
    for path in ("/answers", "/sitemap-2.xml"):
        many.text(path)
    before = peak_kilobytes(many)
    _, plain = many.raw("/sitemap-1.xml", "identity")
    _, packed = many.raw("/sitemap-1.xml", "gzip")
    grown = peak_kilobytes(many) - before
    assert unpacked(packed) == plain
    assert len(plain) > 5_000_000
    assert grown * 1024 < len(plain) / 2


def test_a_hundred_times_the_answers_cost_a_page_little(many: Served, few: Served) -> None:
    for path in ("/answers", "/answers?after=400", published.path_of(77, name(77))):
        assert quickest(many, path) < 10 * quickest(few, path)


@pytest.mark.parametrize("accepted", ["identity", "gzip"])
def test_a_sitemap_that_breaks_off_cannot_pass_for_a_whole_one(
    file: Path, many: Served, accepted: str
) -> None:
    received: list[bytes] = []
    rename(file, "CAST(x'ff' AS TEXT)")  # no UTF-8: it cannot be read
    with pytest.raises(httpx.RemoteProtocolError):
        receive(many, accepted, received)
    rename(file, f"'{name(BROKEN)}'")
    if accepted == "gzip":
        unpacker = zlib.decompressobj(wbits=31)
        unpacker.decompress(b"".join(received))
        assert not unpacker.eof
    assert many.get("/sitemap-1.xml").status_code == 200


def receive(site: Served, accepted: str, pieces: list[bytes]) -> None:
    with site.client.stream("GET", "/sitemap-1.xml", headers={"Accept-Encoding": accepted}) as response:
        assert response.status_code == 200
        pieces.extend(response.iter_raw())


def rename(file: Path, expression: str) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE ingredient SET name = {expression} WHERE id = {BROKEN}")  # noqa: S608
    connection.close()
