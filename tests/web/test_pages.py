"""The status page and the page of a job, in a real browser."""

import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.nodes.recipes import redis_server
from tests.nodes.sessions import Reaper
from tests.support.browser import AXE
from tests.support.servers import Server
from tests.web.incident import SKIPS, write_healthy_job, write_incident
from tests.web.past import Past
from tests.web.server import SECRET, Web

PICTURES = Path(__file__).parents[2] / "docs" / "images"

#: A live page looks every 5 s.
LIVE_MS = 12_000


@pytest.fixture(scope="module")
def incident_server(tmp_path_factory: pytest.TempPathFactory, reaper: Reaper) -> Iterator[Server]:
    server = Server(redis_server(), tmp_path_factory.mktemp("incident"), reaper)
    yield server
    server.close()


@pytest.fixture(scope="module")
def incident_web(incident_server: Server, run_web: Callable[..., Web]) -> Web:
    schedule = {"curation": ("barrier", "*/15")}
    return run_web(schedule, PROBE_URL=incident_server.url, FLOWER_URL="http://flower.invalid/")


@pytest.fixture
def incident(incident_server: Server, incident_web: Web) -> Web:
    """The web app in the third hour of the incident."""
    with incident_server.client() as client:
        client.flushall()
        write_incident(client, "barrier", "curation")
        write_healthy_job(client, "replaces")
    return incident_web


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a page as somebody who knows the secret; what the browser complains about fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_(web: Web, path: str = "/", **options: Any) -> Page:
        login: Any = {"username": "operator", "password": SECRET}
        context = browser.new_context(
            http_credentials=login, viewport={"width": 1200, "height": 900}, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: _same_origin(request.url, web, complaints))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(web.url + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not [each for each in complaints if "ERR_CONNECTION_REFUSED" not in each]


def _same_origin(url: str, web: Web, complaints: list[str]) -> None:
    if not url.startswith(web.url):
        complaints.append(f"asked elsewhere: {url}")


def contrast(one: str, other: str) -> float:
    """As WCAG defines it, of two colours such as rgb(0, 0, 0)."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def row(page: Page, job: str) -> Any:
    return page.locator("tbody").filter(has=page.get_by_role("link", name=job, exact=True))


def test_the_incident_looks_like_what_it_was(incident: Web, open_page: Callable[..., Page]) -> None:
    page = open_page(incident)
    expect(page).to_have_title(re.compile("⚠"))
    curation = row(page, "barrier")
    ticks = curation.locator(".strip .tick")
    assert ticks.count() == 96
    last = [ticks.nth(index) for index in range(96 - SKIPS, 96)]
    assert [tick.inner_text() for tick in last] == ["L"] * SKIPS
    amber = last[0].evaluate("tick => getComputedStyle(tick).backgroundColor")
    green = ticks.nth(5).evaluate("tick => getComputedStyle(tick).backgroundColor")
    assert {tick.evaluate("tick => getComputedStyle(tick).backgroundColor") for tick in last} == {amber}
    assert amber != green
    expect(curation).to_contain_text(f"{SKIPS} skipped_locked")
    expect(curation.get_by_role("cell", name=str(SKIPS), exact=True)).to_be_visible()
    expect(curation.locator(".alerts")).to_contain_text(f"{SKIPS} skips in a row, and no work in any of them")
    expect(curation).to_contain_text("unknown holder")
    expect(page.get_by_text("1 of 2 jobs needs you: barrier")).to_be_visible()


def test_a_job_that_is_well_comes_after_those_that_are_not(
    incident: Web, open_page: Callable[..., Page]
) -> None:
    page = open_page(incident)
    assert page.locator("tbody th a").all_inner_texts() == ["barrier", "replaces"]
    expect(row(page, "replaces").locator(".strip .tick")).to_have_text(["R"] * 20)


def test_every_tick_is_told_by_a_letter_and_every_letter_is_explained(
    incident: Web, open_page: Callable[..., Page]
) -> None:
    page = open_page(incident)
    letters = set(page.locator(".strip .tick").all_inner_texts())
    explained = page.locator(".legend .tick").all_inner_texts()
    assert letters <= set(explained)
    assert len(explained) == len(set(explained)), "one letter, one meaning"


def test_the_strip_can_be_read_in_words_with_the_keyboard(
    incident: Web, open_page: Callable[..., Page]
) -> None:
    page = open_page(incident)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the jobs")).to_be_focused()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    words = row(page, "barrier").locator(".stretches li")
    expect(words.last).to_contain_text("skipped_locked (skipped: another run held the lease)")


def test_the_page_is_live_and_keeps_focus_and_what_was_opened(
    incident: Web, incident_server: Server, open_page: Callable[..., Page]
) -> None:
    page = open_page(incident)
    summary = row(page, "replaces").locator("summary")
    summary.click()
    with incident_server.client() as client:
        Past(client, "replaces").add(datetime.now(UTC), "failed")
    expect(row(page, "replaces")).to_contain_text("1 failed", timeout=LIVE_MS)
    expect(row(page, "replaces").locator("details")).to_have_attribute("open", "")
    expect(row(page, "replaces").locator("summary")).to_be_focused()


def test_a_page_that_is_not_live_any_more_says_so_and_recovers(
    incident: Web, incident_server: Server, open_page: Callable[..., Page]
) -> None:
    page = open_page(incident)
    notice = page.get_by_role("status").filter(has_text="not live")
    expect(notice).to_be_hidden()
    page.route("**/*fragment*", lambda route: route.abort("connectionrefused"))
    expect(notice).to_be_visible(timeout=LIVE_MS)
    page.unroute("**/*fragment*")
    expect(notice).to_be_hidden(timeout=LIVE_MS)


def test_without_scripts_the_page_is_whole_and_reloads_itself(
    incident: Web, open_page: Callable[..., Page]
) -> None:
    page = open_page(incident, java_script_enabled=False)
    expect(row(page, "barrier").locator(".strip .tick")).to_have_count(96)
    assert page.locator('meta[http-equiv="refresh"]').get_attribute("content") == "30"
    row(page, "barrier").locator("summary").click()
    expect(row(page, "barrier").locator(".stretches")).to_be_visible()


def test_a_job_page_has_its_history_its_durations_and_links_into_flower(
    incident: Web, open_page: Callable[..., Page]
) -> None:
    page = open_page(incident)
    page.get_by_role("link", name="barrier", exact=True).click()
    expect(page.get_by_role("heading", name="barrier", level=1)).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Durations of the last .* runs: median"))).to_be_visible()
    rows = page.locator(".history tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("skipped_locked")
    link = rows.first.get_by_role("link")
    assert re.fullmatch(r"http://flower\.invalid/task/[0-9a-f-]{36}", link.get_attribute("href") or "")
    page.get_by_role("link", name="More").click()
    expect(page.locator(".history tbody tr")).to_have_count(103 + 2)


def test_the_holder_of_a_lease_is_shown_and_whether_it_is_still_there(
    incident: Web, incident_server: Server, open_page: Callable[..., Page]
) -> None:
    with incident_server.client() as client:
        client.delete("cron:{barrier}")
        task_id = Past(client, "barrier").hold(datetime.now(UTC) - timedelta(minutes=5), connected=False)
    page = open_page(incident)
    holder = row(page, "barrier").locator("td[data-label=Holder]")
    expect(holder).to_contain_text("worker@host")
    expect(holder).to_contain_text("not connected")
    assert holder.get_by_role("link").get_attribute("href") == f"http://flower.invalid/task/{task_id}"


def test_what_others_wrote_is_shown_and_never_carried_out(
    incident: Web, incident_server: Server, open_page: Callable[..., Page]
) -> None:
    hostile = "<script>document.title='taken over'</script>\"'/../?&#"
    with incident_server.client() as client:
        Past(client, hostile).add(datetime.now(UTC), "failed", error=hostile)
    page = open_page(incident)
    page.get_by_role("link", name=hostile).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(hostile)
    expect(page.locator(".history")).to_contain_text(hostile)
    expect(page).not_to_have_title("taken over")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/jobs/barrier"])
def test_nothing_is_in_the_way_of_assistive_technology(
    incident: Web, open_page: Callable[..., Page], path: str, scheme: str
) -> None:
    page = open_page(incident, path, color_scheme=scheme)
    for details in page.locator("summary").all():
        details.click()
    found = Axe().run(page, options=AXE)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_letter_stands_out_from_its_ground(
    incident: Web, open_page: Callable[..., Page], scheme: str
) -> None:
    # axe leaves out texts of one character.
    page = open_page(incident, color_scheme=scheme)
    for tick in page.locator(".legend .tick").all():
        ink, ground = tick.evaluate("t => [getComputedStyle(t).color, getComputedStyle(t).backgroundColor]")
        assert contrast(ink, ground) >= 4.5, tick.inner_text()


@pytest.mark.parametrize("path", ["/", "/jobs/barrier"])
def test_a_narrow_screen_needs_no_scrolling_sideways(
    incident: Web, open_page: Callable[..., Page], path: str
) -> None:
    page = open_page(incident, path)
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_pages_of_an_empty_store_are_pages_too(web: Web, open_page: Callable[..., Page]) -> None:
    expect(open_page(web).get_by_text("No job is scheduled, and none ever ran.")).to_be_visible()
    assert web.ask("/jobs/nobody").error == "unknown_job"


def test_pictures_for_the_documentation(
    incident_server: Server, run_web: Callable[..., Web], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    if not os.environ.get("UPDATE_PICTURES"):
        pytest.skip("written with UPDATE_PICTURES=1")
    with incident_server.client() as client:
        client.flushall()
        write_incident(client, "curation", "curation")
        write_healthy_job(client, "sitemap")
    surroundings = {"REDIS_URL": incident_server.url, "TASKS_DATA": str(tmp_path)}
    web = run_web(web_app="tasks.web:web", FLOWER_URL="http://127.0.0.1:5555", **surroundings)
    PICTURES.mkdir(parents=True, exist_ok=True)
    open_page(web).screenshot(path=PICTURES / "status.png", full_page=True)
    open_page(web, "/jobs/curation?limit=8").screenshot(path=PICTURES / "job.png", full_page=True)
