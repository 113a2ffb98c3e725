"""A proposal: what somebody who may be wrong says about one ingredient, as JSON text.

Proposals come from outside (a model) or from the lexicon, always as text, because half of what can be wrong
with one is wrong with its form: `read` holds rules S1 and S2 of the engine. The schema is flat and has no
optional fields, so that providers of structured output can enforce it:

    {"ingredient_id": str, "fodmap": [str], "gluten": str, "lactose": str, "e_number": str | null,
     "confidence": number from 0 to 1, "evidence": [{"kind": str, "ref": str, "quote": str}], "note": str}
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from tasks.facts import Facts, Fodmap, Gluten, Lactose
from tasks.ingredients import Part

E = TypeVar("E", bound=StrEnum)

#: Changes with every change of the schema above or of what `read` accepts.
SCHEMA_VERSION = "1"

MOST_CHARACTERS = 8_000
MOST_NOTE_CHARACTERS = 500
MOST_EVIDENCE = 10


class Kind(StrEnum):
    """What a piece of evidence rests on."""

    KB = "kb"  # a row of the knowledge, or an E-number of the additive table
    LABEL = "label"  # the printed text
    CHEMISTRY = "chemistry"  # general knowledge about the substance; never enough alone


@dataclass(frozen=True, slots=True)
class Question:
    """The ingredient that is asked about.

    Attributes:
        ingredient_id: comes back in the proposal.
        part: the ingredient as read from the label.
        earlier: what earlier proposals of the same versions said about it.
    """

    ingredient_id: str
    part: Part
    earlier: tuple[Facts, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason for a claim: `ref` names a row or an additive, `quote` repeats words of the label."""

    kind: Kind
    ref: str
    quote: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal of sound form; whether it is right is the engine's business."""

    ingredient_id: str
    facts: Facts
    e_number: str | None
    confidence: float
    evidence: tuple[Evidence, ...]
    note: str

    def to_text(self) -> str:
        """Return the proposal as the JSON text that `read` accepts."""
        return json.dumps(
            {
                "ingredient_id": self.ingredient_id,
                "fodmap": sorted(self.facts.fodmap),
                "gluten": self.facts.gluten,
                "lactose": self.facts.lactose,
                "e_number": self.e_number,
                "confidence": self.confidence,
                "evidence": [{"kind": e.kind, "ref": e.ref, "quote": e.quote} for e in self.evidence],
                "note": self.note,
            },
            ensure_ascii=False,
        )


class MalformedProposal(ValueError):  # noqa: N818  # named like the outcomes it sits beside
    """The text is no proposal. `rule` is S1 (not the JSON asked for) or S2 (a value outside its bounds)."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def read(text: str) -> Proposal:
    """Read a proposal from JSON text, strictly: no fence around it, no extra, missing or repeated keys.

    Raises:
        MalformedProposal: with the rule it breaks and what is wrong.
    """
    if len(text) > MOST_CHARACTERS:
        raise MalformedProposal("S1", f"{len(text)} characters, more than {MOST_CHARACTERS}")
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except MalformedProposal:
        raise
    except (ValueError, RecursionError) as error:  # also for a number of too many digits
        raise MalformedProposal("S1", f"not JSON: {error}") from error
    _keys(data, _PROPOSAL_KEYS, "the proposal")
    return Proposal(
        ingredient_id=_string(data, "ingredient_id", MOST_NOTE_CHARACTERS),
        facts=Facts(
            frozenset(_enum(Fodmap, name, "fodmap") for name in _list(data, "fodmap")),
            _enum(Gluten, data["gluten"], "gluten"),
            _enum(Lactose, data["lactose"], "lactose"),
        ),
        e_number=None if data["e_number"] is None else _string(data, "e_number", MOST_NOTE_CHARACTERS),
        confidence=_confidence(data["confidence"]),
        evidence=tuple(_evidence(item) for item in _list(data, "evidence")),
        note=_note(data),
    )


_PROPOSAL_KEYS = frozenset(
    ("ingredient_id", "fodmap", "gluten", "lactose", "e_number", "confidence", "evidence", "note")
)
_EVIDENCE_KEYS = frozenset(("kind", "ref", "quote"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise MalformedProposal("S1", f"key {name!r} appears twice")
    return dict(pairs)


def _no_constant(name: str) -> NoReturn:
    raise MalformedProposal("S2", f"{name} is no number")


def _keys(data: Any, expected: frozenset[str], what: str) -> None:
    if not isinstance(data, dict):
        raise MalformedProposal("S1", f"{what} is no JSON object")
    for verb, names in (("lacks", expected - data.keys()), ("has the unknown key", data.keys() - expected)):
        if names:
            raise MalformedProposal("S1", f"{what} {verb} {', '.join(sorted(names))}")


def _list(data: dict[str, Any], name: str) -> list[Any]:
    value = data[name]
    if not isinstance(value, list) or len(value) > MOST_EVIDENCE:
        raise MalformedProposal("S2", f"{name} is no list of at most {MOST_EVIDENCE}")
    return value


def _string(data: dict[str, Any], name: str, most: int) -> str:
    value = data[name]
    if not isinstance(value, str) or len(value) > most:
        raise MalformedProposal("S2", f"{name} is no text of at most {most} characters")
    return value


def _enum(of: type[E], value: Any, name: str) -> E:
    try:
        return of(value)
    except ValueError:
        raise MalformedProposal("S2", f"{name} {value!r} is none of {', '.join(of)}") from None


def _confidence(value: Any) -> float:
    # bool is an int in Python. Infinity, which 1e999 reads as, is outside like every large number.
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    if not sound or not 0 <= value <= 1:
        raise MalformedProposal("S2", f"confidence {value!r} is no number from 0 to 1")
    return float(value)


def _evidence(item: Any) -> Evidence:
    _keys(item, _EVIDENCE_KEYS, "a piece of evidence")
    return Evidence(
        _enum(Kind, item["kind"], "kind"),
        _string(item, "ref", MOST_NOTE_CHARACTERS),
        _string(item, "quote", MOST_NOTE_CHARACTERS),
    )


_URL = re.compile(r"://|\bwww\.", re.IGNORECASE)


def _note(data: dict[str, Any]) -> str:
    note = _string(data, "note", MOST_NOTE_CHARACTERS)
    if _URL.search(note):
        raise MalformedProposal("S2", "note holds a URL")
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs") for character in note):
        raise MalformedProposal("S2", "note holds control characters")
    return note
