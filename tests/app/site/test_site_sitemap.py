"""What search engines ask for, on both databases."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from tasks import published
from tasks.store import Store
from tasks.tables import AnswerRow, IngredientRow
from tests.app.site.conftest import Serve
from tests.app.site.served import KEY, PUBLIC, Served, put, unpacked


def test_the_sitemap_has_every_answer_with_when_it_was_decided_and_each_address_has_its_page(
    site: Served, shipped_url: str, pages: dict[str, str]
) -> None:
    with Store.open(shipped_url, read_only=True) as store, store.reading() as session:
        query = select(IngredientRow.id, IngredientRow.name, AnswerRow.decided_at).join(
            AnswerRow, AnswerRow.ingredient_id == IngredientRow.id
        )
        stored = {published.path_of(row.id, row.name): row.decided_at for row in session.execute(query)}
    entries = site.entries()
    assert entries == {**stored, "/answers": None}
    assert len(entries) > 600
    assert all(path.isascii() and len(path) < 100 for path in entries)
    assert pages.keys() == entries.keys()


def test_it_is_packed_for_those_who_take_that_and_the_same(site: Served) -> None:
    plain_headers, plain = site.raw("/sitemap.xml", "identity")
    assert "content-encoding" not in plain_headers
    for accepting in ("gzip", "br, GZIP;q=0.5"):
        headers, packed = site.raw("/sitemap.xml", accepting)
        assert headers["content-encoding"] == "gzip"
        assert "accept-encoding" in headers["vary"].lower()
        assert unpacked(packed) == plain
        assert len(packed) < len(plain) / 4
    assert site.raw("/sitemap.xml", "gzip;q=0, x-gzip2")[1] == plain


def test_robots_are_shown_the_sitemap_and_kept_from_what_is_for_operators(site: Served) -> None:
    response = site.get("/robots.txt")
    lines = response.text.splitlines()
    assert response.headers["content-type"].startswith("text/plain")
    assert f"Sitemap: {PUBLIC}/sitemap.xml" in lines
    assert "Disallow: /api/" in lines
    assert not [line for line in lines if line.startswith("Disallow: /answers") or line == "Disallow: /"]


def test_the_key_file_is_the_key_and_nothing_else_and_there_is_no_other(site: Served) -> None:
    response = site.get(f"/{KEY}.txt")
    assert response.content == KEY.encode()
    assert response.headers["content-type"].startswith("text/plain")
    for name in (KEY.lower(), KEY.upper(), KEY[:-1], f"{KEY}x", "key"):
        assert site.get(f"/{name}.txt").status_code == 404


def test_asking_for_the_head_alone_is_allowed_everywhere(site: Served) -> None:
    for path in ("/answers", "/sitemap.xml", "/sitemap-1.xml", "/robots.txt", f"/{KEY}.txt", "/answers.css"):
        response = site.client.head(path)
        assert (path, response.status_code, response.content) == (path, 200, b"")


def test_a_part_that_is_not_there_is_not_found(site: Served) -> None:
    assert site.entries("/sitemap-1.xml") == site.entries()
    for number in ("0", "2", "01", "x", "9" * 30):
        assert site.get(f"/sitemap-{number}.xml").status_code == 404


# --- whether it has changed ---------------------------------------------------------------------------------


@pytest.fixture
def old(filled: Store, own_url: str, serve: Serve) -> Iterator[Served]:
    """A site whose answers were decided long ago."""
    put(filled, ["garlic", "wheat"])
    served = serve(own_url)
    yield served
    served.close()


def decide(store: Store, number: int, moment: str) -> None:
    with store.writing(None) as session:
        session.execute(update(AnswerRow).where(AnswerRow.ingredient_id == number).values(decided_at=moment))


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds")


def test_who_has_it_already_is_told_so_and_gets_it_again_after_a_change(old: Served, filled: Store) -> None:
    first = old.get("/sitemap.xml")
    assert first.headers["last-modified"] == "Mon, 14 Sep 2026 12:15:03 GMT"
    tag, date = first.headers["etag"], first.headers["last-modified"]
    for has in ({"If-None-Match": tag}, {"If-None-Match": f'"x", {tag}'}, {"If-Modified-Since": date}):
        again = old.get("/sitemap.xml", headers=has)
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert old.get("/sitemap.xml", headers={"If-None-Match": '"x"'}).status_code == 200
    decide(filled, 2, ago(3600))
    changed = old.get("/sitemap.xml", headers={"If-None-Match": tag, "If-Modified-Since": date})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_while_a_change_may_still_be_under_way_nobody_is_told_that_nothing_changed(
    old: Served, filled: Store
) -> None:
    # Of two decisions in one second the first alone may be there when somebody looks.
    moment = ago(1)
    decide(filled, 1, moment)
    first = old.get("/sitemap.xml")
    assert not {"etag", "last-modified"} & set(first.headers)
    decide(filled, 2, moment)
    has = {"If-None-Match": "*", "If-Modified-Since": "Mon, 30 Nov 2099 00:00:00 GMT"}
    assert old.get("/sitemap.xml", headers=has).status_code == 200
