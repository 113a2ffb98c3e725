"""What an operator sees of skips in Flower: its pages, its API and its metrics."""

import os
from pathlib import Path

from playwright.sync_api import Page, expect

from celery_lease import SKIPPED
from tests.flower.conftest import Flower
from tests.support.site import Site, ends

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "flower-skipped.png"


def test_skips_are_a_state_of_their_own_and_only_the_live_run_is_started(flower: Flower, site: Site) -> None:
    first = site.occupy()
    skips = [site.send("barrier") for _ in range(5)]
    listed = flower.wait_for("SKIPPED", 5)
    assert set(listed) == {skip.id for skip in skips}
    assert set(flower.tasks("STARTED")) == {first.id}
    assert flower.events("task-skipped") == 5

    held = site.held("barrier")
    said = f"barrier: locked, held by task {first.id} on {held['worker']} (pid {held['pid']})"
    for task in listed.values():
        assert task["exception"].startswith(said)
    assert said in flower.get(f"/task/{skips[0].id}")

    site.open()
    assert ends(first) == ["SUCCESS"]
    assert set(flower.wait_for("SUCCESS", 1)) == {first.id}
    assert set(flower.tasks("SKIPPED")) == {skip.id for skip in skips}
    assert flower.tasks("STARTED") == {}


def test_the_page_of_tasks_shows_both_words(flower: Flower, site: Site, page: Page) -> None:
    """With UPDATE_PICTURES set, also takes the picture for the documentation."""
    first = site.send("curation")
    site.entered()
    assert ends(*[site.send("curation") for _ in range(5)]) == [SKIPPED] * 5
    site.open()
    ends(first)
    live = site.send("curation")
    site.entered()
    ends(site.send("curation"))
    flower.wait_for("SKIPPED", 6)
    page.goto(f"{flower.url}/tasks")
    table = page.locator("#tasks-table")
    expect(table.get_by_text("SKIPPED", exact=True)).to_have_count(6)
    expect(table.get_by_text("SUCCESS", exact=True)).to_have_count(1)
    expect(table.get_by_text("STARTED", exact=True)).to_have_count(1)
    if os.environ.get("UPDATE_PICTURES"):
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURE)
    page.goto(f"{flower.url}/task/{live.id}")
    expect(page.get_by_text("STARTED", exact=True).first).to_be_visible()
