"""What holds for every proposal, whoever makes it."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.engine import Verdict, decide
from tasks.facts import Facts, Fodmap, Gluten, Lactose, joined, rank, state_of
from tasks.ingredients import Part, split
from tasks.knowledge import shipped
from tasks.proposal import Question
from tasks.proposer import LexiconProposer
from tasks.rules import RULES

KNOWLEDGE = shipped()
NAMES = sorted(KNOWLEDGE._rows)
SOURCES = ("wheat", "milk", "soya", "maize", "barley", "oats")
STRANGERS = ("dragonfruit", "extract", "chips", "E250", "E420", "E330")

names = st.sampled_from([*NAMES, *STRANGERS])
plain = st.builds(" ".join, st.lists(names, min_size=1, max_size=2))
sourced = st.builds("{} ({})".format, plain, st.sampled_from(SOURCES))


def compounds(members: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    listed = st.lists(members, min_size=2, max_size=4).map(", ".join)
    return st.builds("{} ({})".format, plain, listed)


texts = plain | sourced | compounds(plain | sourced) | st.builds("sugar. May contain {}".format, plain)


def read(text: str) -> Part:
    return split(text)[-1]


parts = texts.map(read)

facts = st.builds(
    Facts,
    st.frozensets(st.sampled_from(Fodmap), max_size=3),
    st.sampled_from(Gluten),
    st.sampled_from(Lactose),
)


@st.composite
def proposals(draw: st.DrawFn) -> tuple[Question, str]:
    """A question, and what the lexicon says about it with any of its fields replaced."""
    question = Question("1", draw(parts))
    data: dict[str, Any] = json.loads(LexiconProposer(KNOWLEDGE).propose(question))
    claim = draw(facts)
    refs = [row.name for row in KNOWLEDGE.known(question.part).rows]
    replaced: dict[str, Any] = {
        "fodmap": sorted(claim.fodmap),
        "gluten": claim.gluten,
        "lactose": claim.lactose,
        "confidence": draw(st.sampled_from([0.0, 0.6, 0.9, 1.0])),
        "e_number": draw(st.none() | st.sampled_from(["E420", "E250", "E9", ""])),
        "evidence": [{"kind": "kb", "ref": ref, "quote": ""} for ref in draw(st.permutations(refs))[:3]],
    }
    for name in draw(st.sets(st.sampled_from(sorted(replaced)))):
        data[name] = replaced[name]
    return question, json.dumps(data)


@settings(max_examples=400, deadline=None)
@given(proposals())
def test_no_proposal_makes_an_answer_milder_than_the_knowledge(case: tuple[Question, str]) -> None:
    question, text = case
    decision = decide(question, text, KNOWLEDGE, "test")
    if decision.answer is not None:
        known = KNOWLEDGE.known(question.part)
        assert decision.answer.facts.milder_than(known.facts) == ()
        assert rank(decision.answer.state) >= rank(state_of(known.facts, portion=known.portion))


@st.composite
def near_misses(draw: st.DrawFn) -> tuple[Question, str]:
    """A question, and a sound, confident proposal that differs from the lexicon in one field."""
    question = Question("1", draw(parts))
    data: dict[str, Any] = json.loads(LexiconProposer(KNOWLEDGE).propose(question))
    claim = draw(facts)
    refs = [row.name for row in KNOWLEDGE.known(question.part).rows]
    label = {"kind": "label", "ref": "", "quote": question.part.text}
    data["evidence"] = [*({"kind": "kb", "ref": ref, "quote": ""} for ref in refs[:2]), label]
    data["confidence"] = 0.95
    field = draw(st.sampled_from(["fodmap", "gluten", "lactose"]))
    data[field] = sorted(claim.fodmap or {Fodmap.NONE}) if field == "fodmap" else getattr(claim, field)
    return question, json.dumps(data)


@settings(max_examples=600, deadline=None)
@given(near_misses())
def test_no_proposal_that_is_almost_right_makes_an_answer_milder_either(case: tuple[Question, str]) -> None:
    question, text = case
    decision = decide(question, text, KNOWLEDGE, "test")
    if decision.answer is not None:
        known = KNOWLEDGE.known(question.part)
        assert decision.answer.facts.milder_than(known.facts) == ()
        assert rank(decision.answer.state) >= rank(state_of(known.facts, portion=known.portion))


@given(facts, facts, st.booleans())
def test_what_holds_two_foods_is_at_least_as_serious_as_each(one: Facts, other: Facts, portion: bool) -> None:
    both = rank(state_of(joined((one, other)), portion=portion))
    assert both >= max(rank(state_of(each, portion=portion)) for each in (one, other))


@settings(max_examples=100, deadline=None)
@given(proposals(), st.permutations(RULES))
def test_the_order_of_rules_changes_nothing(case: tuple[Question, str], rules: Any) -> None:
    question, text = case
    usual = decide(question, text, KNOWLEDGE, "test")
    assert decide(question, text, KNOWLEDGE, "test", rules).to_text() == usual.to_text()


@settings(max_examples=100, deadline=None)
@given(proposals())
def test_the_same_input_gives_the_same_bytes(case: tuple[Question, str]) -> None:
    question, text = case
    again = Question(question.ingredient_id, Part.from_json(question.part.to_json()))
    first = decide(question, text, KNOWLEDGE, "test").to_text()
    assert decide(again, text, KNOWLEDGE, "test").to_text().encode() == first.encode()


def test_no_name_in_the_knowledge_breaks_a_rule() -> None:
    lexicon = LexiconProposer(KNOWLEDGE)
    for term in KNOWLEDGE._terms:
        question = Question("1", Part(" ".join(term), " ".join(term)))
        decision = decide(question, lexicon.propose(question), KNOWLEDGE, "test")
        assert decision.verdict is not Verdict.REJECTED, f"{term}: {decision.reason}"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_no_text_is_more_than_a_rejected_proposal(text: str) -> None:
    decision = decide(Question("1", split("rice")[0]), text, KNOWLEDGE, "test")
    assert decision.verdict is Verdict.REJECTED


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abeEé 0123456789().,;:*%/&[]{}'-\nßœ", max_size=120))
def test_no_text_breaks_the_splitter(text: str) -> None:
    for part in split(text):
        assert part.name
        assert Part.from_json(part.to_json()) == part
        KNOWLEDGE.known(part)


@given(st.lists(facts, max_size=4), st.randoms())
def test_joining_facts_is_as_serious_as_each_in_any_order(many: list[Facts], random: Any) -> None:
    whole = joined(many)
    assert all(whole.milder_than(joined([each])) == () for each in many)
    random.shuffle(many)
    assert joined(many) == whole
