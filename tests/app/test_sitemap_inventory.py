"""The inventory, on SQLite and PostgreSQL: the baseline, what is due, and who may write."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tasks.announcing.failures import SitemapError
from tasks.announcing.inventory import Changes, Inventory, Known, after
from tasks.fence import StaleFence
from tasks.store import Store
from tasks.tables import UrlState
from tests.app.conftest import Rows
from tests.app.passes import FakeLease

HOLDER = FakeLease(name="sitemap")
A, B, C = "http://h/a", "http://h/b", "http://h/c"
DUE, PROVISIONAL, ANNOUNCED = UrlState


@pytest.fixture
def inventory(store: Store) -> Inventory:
    opened = Inventory(store, "h", HOLDER)
    opened.claim()
    return opened


def due(inventory: Inventory) -> list[str]:
    return inventory.batch(DUE, "", 100)


def test_a_first_reading_is_the_baseline_and_nothing_of_it_is_due(inventory: Inventory, rows: Rows) -> None:
    assert inventory.take({A: "2024-05", B: "x"}) == Changes(2, 0, 0, 0)
    assert due(inventory) == []
    found = rows(
        "SELECT url, fingerprint, announced, announced_at, modified_at FROM sitemap_url ORDER BY url"
    )
    assert found == [
        (A, "2024-05", "2024-05", None, "2024-05-01T00:00:00+00:00"),
        (B, "x", "x", None, None),
    ]


def test_what_is_new_and_what_has_another_fingerprint_is_due_until_it_is_taken(inventory: Inventory) -> None:
    inventory.take({A: "1", B: "1"})
    assert inventory.take({A: "1", B: "2", C: "1"}) == Changes(0, 1, 1, 0)
    assert due(inventory) == [B, C]
    assert inventory.take({A: "1", B: "2", C: "1"}) == Changes(0, 0, 0, 0)
    assert due(inventory) == [B, C]
    inventory.announced([B])
    assert due(inventory) == [C]
    inventory.take({A: "1", B: "2", C: "2"})
    assert due(inventory) == [C]
    inventory.announced([C])
    assert inventory.take({A: "1", B: "2", C: "2"}) == Changes(0, 0, 0, 0)
    assert due(inventory) == []


def test_a_change_that_is_taken_back_before_it_was_announced_is_none(inventory: Inventory) -> None:
    inventory.take({A: "1"})
    inventory.take({A: "2"})
    inventory.take({A: "1"})
    assert due(inventory) == []


def test_a_page_is_gone_when_two_readings_in_a_row_do_not_have_it(inventory: Inventory, rows: Rows) -> None:
    whole = {A: "1", B: "1", C: "1"}
    without = {A: "1", C: "1"}
    for reading in (whole, without, whole, without):
        assert inventory.take(reading).removed == 0
        assert due(inventory) == []
    assert inventory.take(without).removed == 1
    assert due(inventory) == [B]
    assert inventory.take(without).removed == 0
    inventory.announced([B])
    assert rows("SELECT url FROM sitemap_url ORDER BY url") == [(A,), (C,)]
    assert inventory.take(whole) == Changes(0, 1, 0, 0)


def test_a_page_that_comes_back_before_its_end_was_announced_is_as_before(inventory: Inventory) -> None:
    whole = {A: "1", B: "1"}
    for reading in (whole, {A: "1"}, {A: "1"}):
        inventory.take(reading)
    assert due(inventory) == [B]
    inventory.take(whole)
    assert due(inventory) == []


def test_a_provisional_announcement_stays_one_until_the_page_changes() -> None:
    known = Known(A, "2", "1", PROVISIONAL, 0)
    assert after(known, "2") == known
    assert after(known, "3").state == DUE
    assert after(known, "1").state == DUE, "what was sent last may have been taken"
    assert after(replace_missing(known, 1), None) == Known(A, "", "1", DUE, 2)
    gone = Known(A, "", "1", PROVISIONAL, 2)
    assert after(gone, None) == gone


def replace_missing(known: Known, missing: int) -> Known:
    return known._replace(missing=missing)


def test_a_reading_without_most_of_the_known_urls_changes_nothing_until_it_is_accepted(
    inventory: Inventory, rows: Rows
) -> None:
    urls = {f"http://h/{number}": "1" for number in range(10)}
    inventory.take(urls)
    before = rows("SELECT * FROM sitemap_url ORDER BY url"), rows("SELECT * FROM sitemap_site")
    some = dict(list(urls.items())[:4]) | {"http://h/0": "2"}
    with pytest.raises(SitemapError, match=r"^drop: 6 of 10 URLs.*--arg accept_drop=true"):
        inventory.take(some)
    with pytest.raises(SitemapError, match=r"^drop: "):
        inventory.compare(some)
    assert len(list(inventory.compare(some, accept_drop=True)[1])) == 10
    assert (rows("SELECT * FROM sitemap_url ORDER BY url"), rows("SELECT * FROM sitemap_site")) == before
    inventory.take(dict(list(urls.items())[:5]))
    inventory.take(urls)
    inventory.take(some, accept_drop=True)
    assert due(inventory) == ["http://h/0"]
    assert inventory.take(some).removed == 6


def test_a_reading_of_as_many_other_urls_is_one_without_the_known_ones(
    inventory: Inventory, rows: Rows
) -> None:
    inventory.take({f"http://h/{number}": "1" for number in range(10)})
    others = {f"http://h/new/{number}": "1" for number in range(10)}
    with pytest.raises(SitemapError, match=r"^drop: 10 of 10 URLs"):
        inventory.take(others)
    assert rows("SELECT count(*) FROM sitemap_url") == [(10,)]
    assert inventory.take(others, accept_drop=True).new == 10
    assert inventory.take(others).removed == 10, "accepting once is enough"


def test_sites_do_not_know_of_each_other(store: Store) -> None:
    one, other = Inventory(store, "h", HOLDER), Inventory(store, "h:8080", HOLDER)
    one.claim()
    assert one.take({}) == Changes(0, 0, 0, 0)
    assert one.take({A: "1"}).new == 1
    assert other.take({"http://h:8080/a": "1"}).baseline == 1
    assert one.take({A: "1"}) == other.take({"http://h:8080/a": "1"}) == Changes(0, 0, 0, 0)
    assert (due(one), due(other)) == ([A], [])
    one.announced([A])
    assert one.count(DUE) == 0
    assert one.count(ANNOUNCED) == other.count(ANNOUNCED) == 1


def test_a_reading_is_compared_without_writing(store: Store, inventory: Inventory, rows: Rows) -> None:
    first, then = inventory.compare({A: "1"})
    assert (first, [each.url for each in then]) == (True, [A])
    inventory.take({A: "1", B: "1"})
    inventory.take({A: "1", B: "2"})
    before = rows("SELECT * FROM sitemap_url ORDER BY url")
    first, then = inventory.compare({A: "2", C: "1"})
    assert first is False
    assert [(each.url, each.state.value, each.missing) for each in then] == [
        (A, "due", 0),
        (B, "due", 1),
        (C, "due", 0),
    ]
    assert rows("SELECT * FROM sitemap_url ORDER BY url") == before


def test_urls_come_in_batches_in_one_order(inventory: Inventory) -> None:
    inventory.take({})
    names = [f"http://h/{name}" for name in ("b", "A", "a", "%C3%A4", "B", "~", "-", "_", "z/1", "z1")]
    inventory.take(dict.fromkeys(names, "1"))
    found, last = [], ""
    while batch := inventory.batch(DUE, last, 3):
        found.extend(batch)
        last = batch[-1]
    assert sorted(found) == sorted(names)


def test_a_run_that_is_no_longer_the_newest_writes_nothing(
    store: Store, inventory: Inventory, rows: Rows
) -> None:
    inventory.take({A: "1"})
    inventory.take({A: "2"})
    Inventory(store, "h", replace(HOLDER, fence=2)).claim()
    before = rows("SELECT * FROM sitemap_url"), rows("SELECT * FROM sitemap_site")
    for write in (
        lambda: inventory.take({A: "3"}),
        lambda: inventory.announced([A]),
        lambda: inventory.provisional([A]),
        lambda: inventory.pause(None),
        inventory.claim,
    ):
        with pytest.raises(StaleFence):
            write()
    assert (rows("SELECT * FROM sitemap_url"), rows("SELECT * FROM sitemap_site")) == before


def test_a_reading_that_fails_halfway_leaves_everything_as_it_was(
    store: Store, inventory: Inventory, rows: Rows
) -> None:
    inventory.take({A: "1", B: "1"})
    before = rows("SELECT * FROM sitemap_url ORDER BY url"), rows("SELECT * FROM sitemap_site")
    with pytest.raises(UnicodeError):
        inventory.take({A: "2", B: "2", "http://h/\ud800": "1"})
    assert (rows("SELECT * FROM sitemap_url ORDER BY url"), rows("SELECT * FROM sitemap_site")) == before


def test_many_thousand_urls_take_few_statements(inventory: Inventory, store: Store) -> None:
    count = 5_000
    statements: list[str] = []

    @event.listens_for(store._engine, "before_cursor_execute")
    def seen(_connection: Engine, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    inventory.take({})
    statements.clear()
    inventory.take({f"http://h/{number}": "1" for number in range(count)})
    inventory.take({f"http://h/{number}": "2" for number in range(count)})
    inventory.announced(inventory.batch(DUE, "", count))
    assert len(statements) < 100
    assert inventory.count(ANNOUNCED) == count


def test_the_pause_grows_until_something_is_taken(inventory: Inventory, rows: Rows) -> None:
    inventory.take({A: "1"})
    assert inventory.paused_until() is None
    began = datetime.now(UTC)
    until = [inventory.pause(None) for _ in range(7)]
    minutes = [round((datetime.fromisoformat(each) - began).total_seconds() / 60) for each in until]
    assert minutes == [55, 110, 220, 440, 880, 1440, 1440]
    assert inventory.paused_until() == until[-1]
    inventory.announced([A])
    assert inventory.paused_until() is None
    assert rows("SELECT rate_limits, not_before FROM sitemap_site") == [(0, None)]
    assert inventory.pause(10) < inventory.pause(7_200) < inventory.pause(10**12) < "2100"
    rows("UPDATE sitemap_site SET not_before = '2001-01-01T00:00:00+00:00'")
    assert inventory.paused_until() is None
