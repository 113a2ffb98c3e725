"""The store, on SQLite and PostgreSQL: the queue, and the fence that guards it."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from celery_lease import LeaseLost
from tasks.engine import Decision, Verdict, decide
from tasks.fence import StaleFence
from tasks.knowledge import shipped
from tasks.labels import Label
from tasks.proposal import Question
from tasks.proposer import LexiconProposer
from tasks.store import Due, Store
from tests.app.conftest import Rows

KNOWLEDGE = shipped()
NOW = "now"


@dataclass(frozen=True)
class Holder:
    fence: int
    token: str = "t"  # noqa: S105  # proves a grant in this test, opens nothing
    name: str = "curation"


def add(store: Store, text: str, ref: str = "1", contributor: str = "anna") -> None:
    label = Label(ref, text, contributor=contributor)
    store.add_label(label, label.parts())


def judge(item: Due, prompt: str = "p", **changes: object) -> tuple[Decision, str]:
    question = Question(str(item.id), item.part)
    text = json.dumps(json.loads(LexiconProposer(KNOWLEDGE).propose(question)) | changes)
    return decide(question, text, KNOWLEDGE, prompt), text


def test_a_label_queues_its_ingredients_children_first(store: Store) -> None:
    add(store, "chocolate (sugar, cocoa mass), salt")
    names = [item.name for item in store.due(NOW, 10)]
    assert names == ["sugar", "cocoa mass", "chocolate (sugar, cocoa mass)", "salt"]


def test_loading_again_changes_nothing(store: Store) -> None:
    label = Label("1", "sugar, salt")
    assert store.add_label(label, label.parts()) == ("new", 2, 2)
    assert store.add_label(label, label.parts()) == ("unchanged", 2, 0)


def test_a_label_with_another_text_replaces_the_old_one(store: Store, rows: Rows) -> None:
    add(store, "sugar")
    label = Label("1", "sugar, salt")
    assert store.add_label(label, label.parts()) == ("changed", 2, 1)
    assert rows("SELECT ingredients FROM label") == [("sugar, salt",)]


def test_an_ingredient_belongs_to_the_first_label_that_needed_it(store: Store, rows: Rows) -> None:
    add(store, "sugar", "1", "anna")
    add(store, "sugar, salt", "2", "bilal")
    found = rows("SELECT name, contributor FROM ingredient ORDER BY id")
    assert found == [("sugar", "anna"), ("salt", "bilal")]


def test_an_accepted_answer_is_stored_with_its_fence(store: Store, rows: Rows) -> None:
    add(store, "garlic")
    store.claim(Holder(7))
    (item,) = store.due(NOW, 10)
    decision, text = judge(item)
    store.record(item, decision, text, Holder(7))
    assert store.answers() == [("garlic", "avoid", "FODMAP: fructan")]
    stored = rows("SELECT fence, decision, proposal FROM answer")
    assert stored == [(7, decision.to_text(), text)]
    assert store.backlog(NOW) == 0


def test_a_rejected_ingredient_is_not_asked_again_until_a_version_changes(store: Store, rows: Rows) -> None:
    add(store, "garlic, salt")
    store.claim(Holder(7))
    garlic, _ = store.due(NOW, 10)
    decision, text = judge(garlic, fodmap=["none"])
    assert decision.verdict is Verdict.REJECTED
    store.record(garlic, decision, text, Holder(7))
    same = decision.versions.key
    assert [item.name for item in store.due(same, 10)] == ["salt"]
    assert store.backlog(same) == 1
    # What was never asked about comes first.
    assert [item.name for item in store.due("other", 10)] == ["salt", "garlic"]
    assert store.backlog("other") == 2
    (rejection,) = rows("SELECT verdict, rules, fence FROM rejection")
    assert rejection == ("rejected", "C2 F1 K1", 7)


def test_an_answer_of_unknown_is_asked_again_when_a_version_changes(store: Store, rows: Rows) -> None:
    add(store, "dragon fruit")
    store.claim(Holder(7))
    (item,) = store.due(NOW, 10)
    decision, text = judge(item)
    store.record(item, decision, text, Holder(7))
    before = rows("SELECT answered_at FROM answer")
    assert store.due(decision.versions.key, 10) == []
    (again,) = store.due("other", 10)
    store.record(again, *judge(again, prompt="other"), Holder(7))
    assert rows("SELECT answered_at FROM answer") == before
    assert rows("SELECT attempts FROM ingredient") == [(2,)]


def test_earlier_proposals_of_the_same_versions_come_with_the_question(store: Store) -> None:
    add(store, "garlic")
    store.claim(Holder(7))
    (item,) = store.due(NOW, 10)
    first, text = judge(item, prompt="one", fodmap=["none"])
    store.record(item, first, text, Holder(7))
    second, text = judge(item, prompt="two", fodmap=["none"])
    store.record(item, second, text, Holder(7))
    (again,) = store.due(first.versions.key, 10)
    assert [facts.fodmap for facts in again.earlier] == [{"none"}]


# --- the fence ----------------------------------------------------------------------------------------------


def test_a_run_with_a_lower_fence_writes_nothing(store: Store, rows: Rows) -> None:
    add(store, "garlic, salt")
    old, new = Holder(1, "old"), Holder(2, "new")
    store.claim(old)
    garlic, salt = store.due(NOW, 10)
    store.record(salt, *judge(salt), old)
    store.claim(new)
    with pytest.raises(StaleFence, match="fence 1 is stale"):
        store.record(garlic, *judge(garlic), old)
    assert [answer.ingredient for answer in store.answers()] == ["salt"]
    assert rows("SELECT state, attempts FROM ingredient WHERE name = 'garlic'") == [("open", 0)]
    store.record(garlic, *judge(garlic), new)
    assert len(store.answers()) == 2


def test_a_run_with_a_lower_fence_cannot_claim(store: Store) -> None:
    store.claim(Holder(2))
    with pytest.raises(StaleFence):
        store.claim(Holder(1))


def test_of_two_runs_with_one_fence_the_second_is_refused(store: Store) -> None:
    store.claim(Holder(2, "first"))
    store.claim(Holder(2, "first"))
    with pytest.raises(StaleFence):
        store.claim(Holder(2, "second"))


def test_fences_of_other_jobs_do_not_count(store: Store) -> None:
    store.claim(Holder(2))
    store.claim(Holder(1, name="sitemap"))


def test_fences_are_as_wide_as_microseconds_need(store: Store) -> None:
    store.claim(Holder(2**62))
    with pytest.raises(StaleFence):
        store.claim(Holder(2**62 - 1))


def test_of_many_runs_at_once_only_the_highest_fence_stays(url: str, store: Store, rows: Rows) -> None:
    add(store, "garlic")
    (item,) = store.due(NOW, 10)

    def run(fence: int) -> bool:
        with Store.open(url) as own:
            try:
                own.claim(Holder(fence, str(fence)))
                own.record(item, *judge(item), Holder(fence, str(fence)))
            except StaleFence:
                return False
            return True

    fences = [3, 12, 7, 1, 10, 5, 11, 2, 8, 4, 9, 6]
    with ThreadPoolExecutor(len(fences)) as pool:
        wrote = dict(zip(fences, pool.map(run, fences), strict=True))
    assert wrote[12]
    assert rows("SELECT fence FROM fence") == [(12,)]
    assert rows("SELECT fence FROM answer") == [(12,)]


def test_a_stale_run_is_recorded_as_lost() -> None:
    assert issubclass(StaleFence, LeaseLost)


def test_a_newer_run_waits_for_a_transaction_that_has_passed_the_fence(
    store: Store, url: str, rows: Rows
) -> None:
    add(store, "garlic")
    store.claim(Holder(1))
    with ThreadPoolExecutor(1) as pool, Store.open(url) as other:
        with store.writing(Holder(1)) as session:
            claimed = pool.submit(other.claim, Holder(2))
            session.execute(text("UPDATE ingredient SET attempts = 7"))
            with pytest.raises(TimeoutError):
                claimed.result(timeout=0.3)
        claimed.result(timeout=10)
    assert rows("SELECT attempts FROM ingredient") == [(7,)]
    with pytest.raises(StaleFence), store.writing(Holder(1)) as session:
        session.execute(text("UPDATE ingredient SET attempts = 8"))
    assert rows("SELECT attempts FROM ingredient") == [(7,)]


def test_a_transaction_that_fails_leaves_nothing(store: Store, rows: Rows) -> None:
    add(store, "garlic")
    store.claim(Holder(1))

    def fail_in_the_middle() -> None:
        with store.writing(Holder(1)) as session:
            session.execute(text("UPDATE ingredient SET attempts = 8"))
            session.execute(text("SELECT no_such_column"))

    with pytest.raises(DBAPIError):
        fail_in_the_middle()
    assert rows("SELECT attempts FROM ingredient") == [(0,)]


def test_first_claims_at_the_same_moment_leave_one_row(url: str, store: Store, rows: Rows) -> None:
    def claim(fence: int) -> None:
        with Store.open(url) as own, suppress(StaleFence):
            own.claim(Holder(fence, str(fence)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(claim, range(1, 9)))
    assert rows("SELECT resource, fence FROM fence") == [("curation", 8)]


def test_loaders_of_the_same_ingredients_do_not_get_in_each_other_s_way(
    url: str, store: Store, rows: Rows
) -> None:
    names = ["garlic", "salt", "honey", "sugar", "water", "rice"]

    def load(number: int) -> None:
        with Store.open(url) as own:
            for at in range(5):
                listed = names if number % 2 else reversed(names)
                add(own, ", ".join(listed), f"{number} {at}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(load, range(6)))
    assert sorted(rows("SELECT name FROM ingredient")) == sorted((name,) for name in names)
    assert rows("SELECT count(*) FROM label") == [(30,)]


def test_what_a_model_wrote_is_kept_without_what_no_database_takes(store: Store, rows: Rows) -> None:
    add(store, "garlic")
    store.claim(Holder(1))
    (item,) = store.due(NOW, 10)
    decision = decide(Question(str(item.id), item.part), "\0\ud800", KNOWLEDGE, "p")
    store.record(item, decision, "a\0b\ud800c", Holder(1))
    assert rows("SELECT proposal FROM rejection") == [
        ("a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c",)
    ]
