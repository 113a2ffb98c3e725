"""The knowledge: what is published about ingredients, and finding an ingredient's rows in it.

`data/ingredients.csv` holds the facts with confidence and source, `data/names.csv` the same ingredients in
other languages and spellings (a term without a row is read as one name and stays unknown: "water chestnut" is
no water), `data/additives.csv` the additives by E-number.

Names are matched by whole words, the longest term first, each word used once. Substrings would find milk in
coconut milk, sorbitol in potassium sorbate and wheat in buckwheat.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple, Self

from tasks.facts import NOTHING_KNOWN, Confidence, Facts, Fodmap, Gluten, Lactose, joined, rank
from tasks.ingredients import Part
from tasks.text import e_numbers, normalise
from tasks.words import is_word, singular

_FILES = ("ingredients.csv", "names.csv", "additives.csv", "words.csv")


class KnowledgeError(ValueError):
    """The knowledge files contradict themselves. The message names the file, the row and the term."""


@dataclass(frozen=True, slots=True)
class Row:
    """One ingredient of the knowledge.

    Attributes:
        name: its name here; evidence refers to it.
        facts: FODMAP classes, gluten, lactose.
        confidence: how far to trust them.
        portion: its classes matter only from a larger serve.
        undetermined: the name does not tell what is inside ("spices"); it can never be cleared.
        e_numbers: the additives it stands for.
        note: what to know beside the facts.
        sources: codes of where the facts come from.
    """

    name: str
    facts: Facts
    confidence: Confidence
    portion: bool
    undetermined: bool
    e_numbers: tuple[str, ...]
    note: str
    sources: tuple[str, ...]


class Match(NamedTuple):
    """The rows found in a name, and the words that no row accounts for."""

    rows: tuple[Row, ...]
    unread: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What the knowledge says about one part of a label.

    Attributes:
        facts: the most serious of everything found; with `unknown` joined in unless the match is complete.
        rows: the rows behind them, without repeats.
        complete: every word of the part is accounted for.
        portion: every FODMAP class in it matters only from a larger serve.
    """

    facts: Facts
    rows: tuple[Row, ...] = ()
    complete: bool = False
    portion: bool = False

    @property
    def confidence(self) -> Confidence:
        """The least confidence among the rows; low when there are none."""
        return min((row.confidence for row in self.rows), key=rank, default=Confidence.LOW)


class Knowledge:
    """The rows, the terms that lead to them, and the additive table. Never changed after it is made."""

    def __init__(
        self, rows: Iterable[Row], terms: Mapping[str, str], additives: Mapping[str, str], version: str
    ) -> None:
        self._rows = {row.name: row for row in rows}
        self._terms = {_words(term): self._rows.get(name) for term, name in terms.items()}
        self._longest = max(map(len, self._terms), default=0)
        self.additives = dict(additives)
        #: Changes whenever the content of a knowledge file does.
        self.version = version

    @classmethod
    def of(cls, tables: Mapping[str, str]) -> Self:
        """Read the knowledge from the text of its files.

        Raises:
            KnowledgeError: a term leads to two rows, or to none that exists; a fact is not in its enum.
        """
        records = list(csv.DictReader(tables["ingredients.csv"].splitlines()))
        rows = [_row(record) for record in records]
        additives = {r["e_number"]: r["name"] for r in csv.DictReader(tables["additives.csv"].splitlines())}
        digest = sha256("\0".join(tables[name] for name in sorted(tables)).encode()).hexdigest()
        return cls(rows, _terms(records, tables["names.csv"]), additives, digest[:12])

    def row(self, name: str) -> Row | None:
        """Return the row of that name, or None."""
        return self._rows.get(name)

    def additive(self, e_number: str) -> str | None:
        """Return the name of an additive, or None: `E965ii` is found as `E965`."""
        return self.additives.get(e_number) or self.additives.get(e_number.rstrip("iv"))

    def match(self, name: str) -> Match:
        """Find the rows in a normalised name: longest term first, each word used once."""
        unread: list[tuple[str, ...]] = [tuple(self._listed_number(word) for word in name.split())]
        rows: list[Row] = []
        for length in range(self._longest, 0, -1):
            unread = [rest for piece in unread for rest in self._take(piece, length, rows)]
        left = tuple(word for piece in unread for word in piece)
        return Match(tuple(dict.fromkeys(rows)), tuple(word for word in left if not _is_neutral(word)))

    def _listed_number(self, word: str) -> str:
        """`e322i` has no row of its own, `e965ii` has; the first is read as `e322`."""
        return word if (word,) in self._terms or not e_numbers(word) else word.rstrip("iv")

    def _take(self, piece: tuple[str, ...], length: int, rows: list[Row]) -> list[tuple[str, ...]]:
        """Take every term of `length` words out of `piece`; return what is left between them."""
        rest: list[tuple[str, ...]] = []
        start = at = 0
        while at + length <= len(piece):
            term = tuple(singular(word) for word in piece[at : at + length])
            if term not in self._terms:
                at += 1
                continue
            row = self._terms[term]
            rest.append(piece[start:at])
            if row:
                rows.append(row)
            else:
                # A term without a row stays unread, and is kept as one word so that no part of it matches.
                rest.append((" ".join(piece[at : at + length]),))
            start = at = at + length
        return [*rest, piece[start:]]

    def known(self, part: Part) -> Known:
        """Return what the knowledge says about a part and everything inside it.

        Of what a food only may contain, nothing is known.
        """
        if part.trace:
            return Known(NOTHING_KNOWN)
        if part.children and not part.partial:
            own = self._named(part)
            # A complete list of what is inside replaces a name that does not tell: "spices (turmeric,
            # cumin)".
            named = [] if not own.rows or any(row.undetermined for row in own.rows) else [own]
            return _together([*named, *(self.known(child) for child in part.children)])
        return _together([self._named(part), *(self.known(child) for child in part.children)])

    def _named(self, part: Part) -> Known:
        """What the name says, read together with its sources: "starch (wheat)" is wheat starch."""
        numbers = [number.casefold() for number in part.e_numbers]
        match = self.match(
            " ".join([part.name, *(number for number in numbers if number not in part.name.split())])
        )
        if not part.sources:
            return _known(match)
        combined = [self.match(f"{source} {part.name}") for source in part.sources]
        if all(len(each.rows) == 1 and not each.unread for each in combined):
            return _together([_known(each) for each in combined])
        if match.rows:
            return _together([_known(match), self._gluten_of(part.sources, match.rows)])
        return _together([_known(match), *(_known(self.match(source)) for source in part.sources)])

    def _gluten_of(self, sources: Sequence[str], rows: Sequence[Row]) -> Known:
        """The gluten a source brings: modified starch (wheat) contains it, dextrose (wheat) is exempt."""
        gluten = joined(row.facts for source in sources for row in self.match(source).rows).gluten
        exempt = all(row.facts.gluten is Gluten.EXEMPT for row in rows)
        facts = joined(()) if exempt else Facts(frozenset({Fodmap.NONE}), gluten, Lactose.NONE)
        return Known(facts, complete=True, portion=True)


def _words(term: str) -> tuple[str, ...]:
    return tuple(singular(word) for word in normalise(term).split())


def _is_neutral(word: str) -> bool:
    return word.isdigit() or is_word("neutral", word)


def _known(match: Match) -> Known:
    if not match.rows:
        return Known(NOTHING_KNOWN)
    complete = not match.unread
    facts = joined([row.facts for row in match.rows] + ([] if complete else [NOTHING_KNOWN]))
    portion = all(row.portion for row in match.rows if row.facts.classes)
    return Known(facts, match.rows, complete, portion)


def _together(each: Sequence[Known]) -> Known:
    rows = tuple(dict.fromkeys(row for known in each for row in known.rows))
    return Known(
        joined(known.facts for known in each),
        rows,
        complete=all(known.complete for known in each),
        portion=all(known.portion for known in each if known.facts.classes),
    )


# --- reading ------------------------------------------------------------------------------------------------

# The rows that U1 of the rule engine speaks of, beside those the file itself tags.
_UNNAMED = frozenset({"vegetable powder", "starch"})


def _row(record: Mapping[str, str]) -> Row:
    try:
        facts = Facts(
            frozenset(Fodmap(name) for name in record["fodmap"].split(";")),
            Gluten(record["gluten"]),
            Lactose(record["lactose"]),
        )
        confidence = Confidence(record["confidence"])
    except ValueError as error:
        raise KnowledgeError(f"ingredients.csv, row {record['name']!r}: {error}") from error
    note = record["note"]
    return Row(
        name=record["name"],
        facts=facts,
        confidence=confidence,
        portion="[portion]" in note and "[trace-matters]" not in note,
        undetermined="[undetermined]" in note or record["name"] in _UNNAMED,
        e_numbers=tuple(filter(None, record["e_number"].split("|"))),
        note=note,
        sources=tuple(filter(None, record["source"].split(";"))),
    )


def _terms(records: Iterable[Mapping[str, str]], names: str) -> dict[str, str]:
    """Return term -> row name, "" for a term without a row; refuse a term that leads to two rows."""
    pairs = [(term, record["name"]) for record in records for term in _own_terms(record)]
    known = {name for _, name in pairs} | {""}
    for record in csv.DictReader(names.splitlines()):
        if record["name"] not in known:
            raise KnowledgeError(
                f"names.csv, {record['language']}: no row {record['name']!r} in ingredients.csv"
            )
        pairs += [(term, record["name"]) for term in record["terms"].split("|")]
    terms: dict[str, str] = {}
    found: dict[tuple[str, ...], str] = {}
    for term, name in pairs:
        other = found.setdefault(_words(term), name)
        if other != name:
            raise KnowledgeError(
                f"term {term!r} leads to {other!r} and to {name!r}: remove it from one of them"
            )
        terms[term] = name
    return terms


def _own_terms(record: Mapping[str, str]) -> list[str]:
    return [record["name"], *filter(None, (*record["synonyms"].split("|"), *record["e_number"].split("|")))]


@cache
def shipped() -> Knowledge:
    """Return the knowledge in this package's data folder."""
    folder = files("tasks").joinpath("data")
    return Knowledge.of({name: folder.joinpath(name).read_text(encoding="utf-8") for name in _FILES})
