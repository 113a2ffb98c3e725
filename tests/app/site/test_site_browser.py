"""The public pages in a real browser."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tasks.store import Store
from tests.app.site.conftest import Serve
from tests.app.site.served import Served, curate_what_is_shipped, put
from tests.support.browser import AXE

PICTURES = Path(__file__).parents[3] / "docs" / "images"
HOSTILE = (
    "<script>document.title='taken over'</script>\"'><img src=x onerror=\"document.title='taken over'\">"
)
LONG = "aardappel" * 35
RIGHT_TO_LEFT = "\N{RIGHT-TO-LEFT OVERRIDE}קמח"
NAMES = [HOSTILE, LONG, RIGHT_TO_LEFT, "{{ 7 * 7 }}", "<b>", "&amp;", "小麦粉", "javascript:alert(1)"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Served:
    """A site with names that nobody would choose."""
    url = f"sqlite:///{tmp_path_factory.mktemp('odd') / 'tasks.sqlite3'}"
    with Store.open(url) as store:
        put(store, NAMES, reason=HOSTILE)
    return serve(url)


@pytest.fixture(scope="module")
def shipped_site(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Served:
    url = f"sqlite:///{tmp_path_factory.mktemp('shipped') / 'tasks.sqlite3'}"
    with Store.open(url) as store:
        curate_what_is_shipped(store)
    return serve(url)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a page as anybody; what the browser complains about fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_(site: Served, path: str = "/answers", **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1100, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(site.url + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not [each for each in complaints if "status of 404" not in each and "status of 503" not in each]


def test_a_visitor_finds_an_answer_and_reads_why(
    shipped_site: Served, open_page: Callable[..., Page]
) -> None:
    page = open_page(shipped_site, java_script_enabled=False)
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name="From the beginning").click()
    page.get_by_label("Ingredient", exact=True).fill("Wheat Flour")
    page.get_by_label("Answer", exact=True).select_option("avoid")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_label("Ingredient", exact=True)).to_have_value("Wheat Flour")
    expect(page.get_by_label("Answer", exact=True)).to_have_value("avoid")
    page.get_by_role("link", name="wheat flour", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("wheat flour")
    expect(page).to_have_title("wheat flour: avoid")
    expect(page.get_by_text("contains gluten; FODMAP: fructan")).to_be_visible()
    expect(page.get_by_text("Not medical advice.")).to_be_visible()
    expect(page.get_by_role("link", name="Status of the jobs")).to_have_attribute("href", "/")


def test_names_and_reasons_are_shown_and_never_carried_out(
    odd: Served, open_page: Callable[..., Page]
) -> None:
    page = open_page(odd)
    expect(page.locator("tbody th")).to_have_count(len(NAMES))
    assert sorted(page.locator("tbody th").all_inner_texts()) == sorted(NAMES)
    page.locator("tbody th a").filter(has_text="<script>").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    expect(page).to_have_title(f"{HOSTILE}: avoid")
    page.goto(f"{odd.url}/answers?q=%3Cscript%3E%22'")
    expect(page.get_by_label("Ingredient", exact=True)).to_have_value("<script>\"'")
    assert page.locator("script, img").count() == 0


@pytest.mark.parametrize("width", [360, 1100])
def test_no_name_is_too_long_for_any_screen(odd: Served, open_page: Callable[..., Page], width: int) -> None:
    for path in ("/answers", *odd.entries()):
        page = open_page(odd, path)
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_in_the_way_of_assistive_technology(
    shipped_site: Served, serve: Serve, tmp_path: Path, open_page: Callable[..., Page], scheme: str
) -> None:
    by_state = {}
    for state in ("avoid", "caution", "no trigger known", "unknown"):
        found = re.search(r'href="(/answers/\d[^"]*)"', shipped_site.text(f"/answers?state={state}"))
        assert found
        by_state[state] = found[1]
    paths = ["/answers", "/answers?q=oil&state=unknown", "/answers?q=nothing-like-it", *by_state.values()]
    for path in [*paths, "/answers/0"]:
        page = open_page(shipped_site, path, color_scheme=scheme)
        found_there = Axe().run(page, options=AXE)
        assert found_there.violations_count == 0, f"{path}: {found_there.generate_report()}"
        page.context.close()


def test_a_page_of_a_missing_database_and_one_of_an_empty_one_are_pages_too(
    tmp_path: Path, serve: Serve, open_page: Callable[..., Page]
) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.sqlite3'}"
    site = serve(url)
    for said in ("cannot be read just now", "There are no answers yet"):
        page = open_page(site)
        expect(page.get_by_text(said)).to_be_visible()
        assert Axe().run(page, options=AXE).violations_count == 0
        with Store.open(url):  # makes it
            pass
    assert site.entries() == {"/answers": None}


def test_the_keyboard_reaches_the_content_at_once(
    shipped_site: Served, open_page: Callable[..., Page]
) -> None:
    page = open_page(shipped_site)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_picture_for_the_documentation(shipped_site: Served, open_page: Callable[..., Page]) -> None:
    if not os.environ.get("UPDATE_PICTURES"):
        pytest.skip("written with UPDATE_PICTURES=1")
    page = open_page(shipped_site, "/answers?q=wheat")
    page.set_viewport_size({"width": 1000, "height": 640})
    page.screenshot(path=PICTURES / "answers.png")
