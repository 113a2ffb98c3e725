"""What visitors read: the list and the page of an answer, on both databases."""

import json
import re
from urllib.parse import urlencode

import pytest
from sqlalchemy import select

from tasks import published, review
from tasks.facts import Facts, Fodmap, Gluten, Lactose, State
from tasks.knowledge import shipped
from tasks.pages import MEANINGS
from tasks.store import Store
from tasks.tables import IngredientRow, IngredientState
from tests.app.passes import add
from tests.app.site.conftest import Serve
from tests.app.site.served import PUBLIC, Served, put

_ROW = re.compile(
    r'<tr><th scope="row"><a href="(?P<path>[^"]+)"><bdi>(?P<name>.*?)</bdi></a></th>'
    r'<td><span class="state [a-z-]+">(?P<state>[a-z ]+)</span></td><td>(?P<reason>.*?)</td></tr>'
)


def rows(page: str) -> list[dict[str, str]]:
    return [match.groupdict() for match in _ROW.finditer(page)]


def walk(site: Served, **asked: str) -> list[dict[str, str]]:
    """All rows of the list, page after page."""
    found = []
    path = f"/answers?{urlencode(asked)}"
    while path:
        page = site.text(path)
        found += rows(page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        path = following[1].replace("&amp;", "&") if following else ""
    return found


def test_the_list_leads_through_every_answer_once_in_the_order_of_names(
    site: Served, shipped_names: list[str]
) -> None:
    names = [row["name"].replace("&#39;", "'") for row in walk(site)]
    assert sorted(names) == sorted(shipped_names)
    assert names == sorted(names)  # both databases sort these by their bytes
    assert len(names) > 3 * 50


def test_a_search_finds_the_names_with_all_its_words_in_any_spelling(
    site: Served, shipped_names: list[str]
) -> None:
    wanted = [name for name in shipped_names if "wheat" in name and "flour" in name]
    assert len(wanted) > 1
    for asked in ("wheat flour", "FLOUR,  Wheat", "wheats flours"):
        assert sorted(row["name"] for row in walk(site, q=asked)) == sorted(wanted)


def test_a_search_may_ask_for_one_kind_of_answer(site: Served, shipped_names: list[str]) -> None:
    every = {state: walk(site, state=state) for state in State}
    assert all({row["state"] for row in found} == {state} for state, found in every.items())
    assert sum(map(len, every.values())) == len(shipped_names)


@pytest.mark.parametrize("asked", ["%", "_", "", " ", "' UNION SELECT 1 --", "\0", "🧂", "a" * 100])
def test_what_is_asked_for_is_a_text_and_no_pattern(site: Served, asked: str) -> None:
    page = site.text(f"/answers?{urlencode({'q': asked})}")
    words = any(character.isalnum() for character in asked)
    assert len(rows(page)) == (0 if words else 50)


@pytest.mark.parametrize(
    "query", ["after=x", "after=0", "after=99999999999", "state=harmless", f"q={'a' * 101}"]
)
def test_what_cannot_be_meant_is_refused_by_name(site: Served, query: str) -> None:
    response = site.get(f"/answers?{query}")
    assert response.status_code == 422
    assert f"query.{query.partition('=')[0]}" in response.json()["detail"]


def test_a_page_after_an_answer_that_is_not_there_is_empty(site: Served) -> None:
    page = site.text("/answers?after=2000000000")
    assert rows(page) == []
    assert 'href="/answers"' in page


def test_search_results_are_kept_out_of_search_engines_and_pages_of_the_list_are_not(site: Served) -> None:
    assert "noindex" in site.text("/answers?q=oil")
    assert "noindex" not in site.text("/answers?after=1")
    assert f'<link rel="canonical" href="{PUBLIC}/answers">' in site.text("/answers")


def test_an_answer_has_its_word_its_reason_its_sources_and_how_far_to_trust_them(site: Served) -> None:
    [row] = [row for row in walk(site, q="garlic") if row["name"] == "garlic"]
    page = site.text(row["path"])
    assert f'<link rel="canonical" href="{PUBLIC}{row["path"]}">' in page
    assert "<h1><bdi>garlic</bdi></h1>" in page
    assert MEANINGS[State.AVOID] in page
    assert "FODMAP: fructan" in page
    known = shipped().row("garlic")
    assert known
    assert f"confidence {known.confidence}" in page
    assert "Monash University: label reading and FODMAPs" in page
    assert f"with knowledge {shipped().version}" in page
    assert "Not medical advice" in page


def test_every_source_of_the_knowledge_has_a_title(site: Served, shipped_names: list[str]) -> None:
    pages = " ".join(site.text(row["path"]) for row in walk(site, state="avoid")[:40])
    codes = {code for name in shipped_names for row in shipped().match(name).rows for code in row.sources}
    assert len(codes) > 10
    assert not [code for code in codes if re.search(rf"[:;] {code}\b[;<]", pages)]


def test_the_bare_number_leads_to_the_page_and_other_words_lead_nowhere(site: Served) -> None:
    path = walk(site, q="garlic")[0]["path"]
    number = path.removeprefix("/answers/").partition("-")[0]
    response = site.get(f"/answers/{number}")
    assert (response.status_code, response.headers["location"]) == (301, path)
    for address in (f"{path}-x", f"/answers/{number}-milk", f"/answers/{number}-", f"/answers/0{number}"):
        assert site.get(address).status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "0",
        "-1",
        "999999",
        "2147483648",
        "9" * 400,
        "x",
        "1e3",
        "1%00",
        "%F0%9F%A7%82",
        "1-%3Cb%3E",
        "%D9%A1",
    ],
)
def test_an_address_without_an_answer_is_a_page_that_says_so(site: Served, address: str) -> None:
    response = site.get(f"/answers/{address}")
    assert response.status_code == 404
    assert "There is no such page" in response.text


def test_what_a_person_decided_is_shown_and_who_it_was_is_not(
    filled: Store, own_url: str, serve: Serve
) -> None:
    add(filled, "garlic")
    with filled.writing(None) as session:
        session.scalars(select(IngredientRow)).one().state = IngredientState.NEEDS_HUMAN
    facts = Facts(frozenset({Fodmap.FRUCTAN}), Gluten.NONE, Lactose.NONE)
    review.answer(filled, 1, facts, None, "Agatha Persson")
    page = serve(own_url).text("/answers/1-garlic")
    assert "A person looked at this" in page
    assert "Agatha" not in page


def test_an_answer_by_an_earlier_knowledge_says_so(filled: Store, own_url: str, serve: Serve) -> None:
    put(filled, ["garlic"], e_number="E420")
    page = serve(own_url).text("/answers/1-garlic")
    assert "earlier state of the knowledge" in page
    assert "E420" in page


def test_an_address_is_readable_and_plain_however_the_name_is() -> None:
    assert published.path_of(412, "wheat flour [durum]") == "/answers/412-wheat-flour-durum"
    assert published.path_of(7, "小麦粉") == "/answers/7"
    assert published.path_of(7, "a" * 500) == f"/answers/7-{'a' * 60}"
    odd = published.path_of(7, "a/b?c#d%e&f\n<g> h" + "é" * 200)
    assert re.fullmatch(r"/answers/7[a-z0-9-]*", odd)
    assert published.id_in(odd.removeprefix("/answers/")) == 7


def test_no_page_says_that_anything_is_safe(pages: dict[str, str]) -> None:
    words = {path: set(re.findall("[a-z]+", page.lower())) for path, page in pages.items()}
    assert not [path for path, found in words.items() if found & {"safe", "safely", "harmless"}]
    assert all("Not medical advice" in page for page in pages.values())
    assert json.dumps(list(MEANINGS)) == '["avoid", "caution", "no trigger known", "unknown"]'
