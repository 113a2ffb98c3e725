"""The ingredients of a label: printed text in, a tree of parts out.

A part is one ingredient as the label names it. A compound ingredient has children ("chocolate (sugar, cocoa
mass)"); a source is not a child ("lecithin (soya)" is lecithin); a function class is neither ("emulsifier:
E471" is E471). "May contain" lists become parts of their own, marked `trace`.

Splitting never fails: whatever it cannot read stays in the name, where the knowledge will not find it and the
answer is `unknown`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self

from tasks.cleaning import cleaned, trace_names, without_traces
from tasks.text import bare_e_number, e_numbers, normalise
from tasks.words import is_word, words

# Longer keys are cut and told apart by a hash: databases refuse very long values in a unique index.
_KEY_CHARACTERS = 300
# Deeper brackets are no composition any more, and recursion must end somewhere.
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Part:
    """One ingredient of a label.

    Attributes:
        text: as printed, but for quantities, marks and the spelling of E-numbers.
        name: the normal form, without quantity, function class and source.
        e_numbers: the E-numbers printed in it, as `E965ii`.
        sources: what the label says it is made from, normalised.
        children: what a compound ingredient is made of.
        trace: it is only said to be possibly present.
        partial: the children are examples ("spices (including celery)"), not all there is.
    """

    text: str
    name: str
    e_numbers: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    children: tuple["Part", ...] = ()
    trace: bool = False
    partial: bool = False
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _key(self))

    @property
    def is_number(self) -> bool:
        """Whether the part is an E-number and nothing else."""
        return self.name == "".join(self.e_numbers).casefold() and not self.children and not self.sources

    def walk(self) -> Iterator["Part"]:
        """Yield the children's parts, innermost first, then this part: the order in which to decide them."""
        for child in self.children:
            yield from child.walk()
        yield self

    def to_json(self) -> dict[str, Any]:
        """Return the part as plain data; `from_json` is the way back."""
        data: dict[str, Any] = {"text": self.text, "name": self.name}
        optional: dict[str, Any] = {
            "e_numbers": list(self.e_numbers),
            "sources": list(self.sources),
            "children": [child.to_json() for child in self.children],
            "trace": self.trace,
            "partial": self.partial,
        }
        return data | {name: value for name, value in optional.items() if value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return the part that `to_json` wrote."""
        return cls(
            text=data["text"],
            name=data["name"],
            e_numbers=tuple(data.get("e_numbers", ())),
            sources=tuple(data.get("sources", ())),
            children=tuple(cls.from_json(child) for child in data.get("children", ())),
            trace=data.get("trace", False),
            partial=data.get("partial", False),
        )


def _key(part: Part) -> str:
    # Two compounds of one name but different composition are different questions.
    key = f"may contain {part.name}" if part.trace else part.name
    extra = [number.casefold() for number in part.e_numbers if number.casefold() not in part.name.split()]
    key = " ".join([key, *extra])
    if part.sources:
        key += f" [{', '.join(part.sources)}]"
    if part.children:
        inside = ", ".join(child.key for child in part.children)
        key += f" ({'including ' if part.partial else ''}{inside})"
    if len(key) > _KEY_CHARACTERS:
        key = f"{key[:_KEY_CHARACTERS]}#{sha256(key.encode()).hexdigest()[:16]}"
    return key


def split(text: str) -> list[Part]:
    """Return the parts of a label's ingredient text, in printed order; "may contain" parts last."""
    body, traces = without_traces(cleaned(text))
    parts = [part for item in _items(body) for part in _read(item, depth=0)]
    parts += [_trace(name) for listed in traces for name in trace_names(listed)]
    return list({part.key: part for part in parts}.values())


def _trace(name: str) -> Part:
    normal = normalise(name)
    return Part(text=name.strip(), name=normal, e_numbers=e_numbers(normal), trace=True)


# --- items --------------------------------------------------------------------------------------------------

# A full stop ends an item when the next one starts like a sentence; "E322." and "12.5" are no ends.
_FULL_STOP = re.compile(r"\.(?=\s+[A-ZÀ-Þ]|\s*$)")


def _items(text: str) -> list[str]:
    """Cut at the separators outside all brackets. A bracket that is never closed ends with the text."""
    items, start, depth = [], 0, 0
    for at, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth = max(depth - 1, 0)
        elif depth == 0 and (character in ",;•·|\n" or _FULL_STOP.match(text, at)):
            items.append(text[start:at])
            start = at + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _brackets(item: str) -> tuple[str, list[str]]:
    """Return the text outside the brackets and the content of each outermost bracket."""
    outside, inside, depth = [], [], 0
    for character in item:
        if character == ")" and depth <= 1:
            depth = 0
            continue
        if character == "(":
            depth += 1
            if depth == 1:
                inside.append("")
                outside.append(" ")
                continue
        elif character == ")":
            depth -= 1
        if depth:
            inside[-1] += character
        else:
            outside.append(character)
    return "".join(outside), inside


_AND_OR = re.compile(r"\s+(?:and/or|und/oder|et/ou|y/o|e/o|en/of|e/ou|och/eller|og/eller)\s+", re.IGNORECASE)
# Not before "diglycerides", which belong to the "mono" before them. Dutch "en" stays: it is French for "in".
_AND = re.compile(r"(?<!-)\s+(?:and|und|et|y|och|og)\s+(?!di-?gl[iy])", re.IGNORECASE)
# Italian and Portuguese "e" between two words is "and"; elsewhere a lone e is a vitamin.
_E = re.compile(r"(?<=[a-zà-ÿ]{3})\s+e\s+(?=[a-zà-ÿ]{3})(?!di-?gl[iy])")


def _alternatives(item: str) -> list[str]:
    """Cut "sunflower and/or rapeseed oil" and "salt and pepper"; a shared last word goes to both."""
    if "(" in item:
        return [item]
    names = [name for piece in _AND_OR.split(item) for half in _AND.split(piece) for name in _E.split(half)]
    last = names[-1].split()
    if len(names) > 1 and len(last) > 1:
        names[:-1] = [
            f"{name} {last[-1]}" if is_word("source", normalise(name)) else name for name in names[:-1]
        ]
    return names


def _read(item: str, depth: int) -> list[Part]:
    return [part for name in _alternatives(_without_header(item)) for part in _read_one(name, depth)]


def _without_header(item: str) -> str:
    """Drop "Ingredients:" and section titles like "Filling:"; keep a function class: it explains the rest."""
    head, colon, rest = item.partition(":")
    if not colon or ("(" in head and ")" not in head):
        first, _, others = item.strip().partition(" ")
        return others if others and normalise(first) in words("header") else item
    if _function_then(normalise(head)) == "":
        return item
    # "Cheese: pasteurised" is no title.
    return head if _is_neutral(normalise(rest)) else _without_header(rest.strip())


def _function_then(name: str) -> str | None:
    """Return what follows the function class a normalised name opens with; None if it opens with none."""
    split_name = name.split()
    for length in range(min(len(split_name), 6), 0, -1):
        if is_word("function", " ".join(split_name[:length])):
            return " ".join(split_name[length:])
    return None


_EXAMPLES = re.compile(
    r"^\s*(?:including|includes?|incl\.?|contains?|containing|with|e\.g\.|from|enthält|mit|u\. ?a\.|aus|dont"
    r"|contient|contenant|avec|contiene|con|incluye|di cui|bevat|met|waaronder|contém"
    r"|zawiera|innehåller|indeholder)\b:?\s*",
    re.IGNORECASE,
)
_ORIGIN = re.compile(
    r"^\s*(?:origin|origine|origen|herkunft|ursprung|oorsprong|product of|eu|non[\s-]?eu|from concentrate"
    r"|aus konzentrat|for (?:colou?r|flavou?r|taste|texture|freshness)|rainforest|rspo|fairtrade|sustainable"
    r"|certified|msc|caught|gefangen|p[eê]ch[eé])\b[^,;]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Inner:
    """What the brackets after a name hold."""

    parts: tuple[Part, ...] = ()
    e_numbers: tuple[str, ...] = ()
    partial: bool = False

    @property
    def only_sources(self) -> bool:
        return bool(self.parts) and all(not p.children and is_word("source", p.name) for p in self.parts)

    def as_members(self) -> list[Part]:
        """The parts and numbers as ingredients of their own, for a bracket after a function class."""
        return [
            *self.parts,
            *(Part(text=number, name=number.casefold(), e_numbers=(number,)) for number in self.e_numbers),
        ]


def _inner(brackets: list[str], depth: int) -> _Inner:
    parts: list[Part] = []
    numbers: list[str] = []
    partial = False
    for bracket in brackets:
        if _ORIGIN.match(bracket):
            continue
        listed = _EXAMPLES.sub("", bracket)
        members = list(_members(listed, depth))
        partial = partial or listed != bracket
        if all(member.is_number for member in members):
            # "sorbitol (E420)": the number of the ingredient itself. Among other members it is one of them.
            numbers += [number for member in members for number in member.e_numbers]
        else:
            parts += members
    return _Inner(tuple(parts), tuple(numbers), partial)


def _members(listed: str, depth: int) -> Iterator[Part]:
    if depth >= _DEEPEST:
        yield Part(text=listed, name=normalise(listed))
        return
    for item in _items(listed):
        for part in _read(item, depth + 1):
            if not _says_nothing(part):
                yield part


def _says_nothing(part: Part) -> bool:
    """Whether a bracket holds only "emulsifier", "dried" or "pasteurised"."""
    return not part.children and (is_word("function", part.name) or _is_neutral(part.name))


def _is_neutral(name: str) -> bool:
    return all(is_word("neutral", word) for word in name.split())


def _read_one(item: str, depth: int) -> list[Part]:
    outside, brackets = _brackets(item)
    inner = _inner(brackets, depth)
    name = _plain_name(normalise(outside))
    if is_word("function", name) and (inner.parts or inner.e_numbers) and not inner.only_sources:
        # "emulsifier (soya lecithin, E471)": the class is no ingredient, its members are.
        return inner.as_members()
    if not name:
        return list(inner.parts)
    text = " ".join(item.split())
    numbers = tuple(dict.fromkeys((*e_numbers(name), *inner.e_numbers)))
    if inner.only_sources and not is_word("collective", name):
        return [Part(text, name, numbers, sources=tuple(part.name for part in inner.parts))]
    return [Part(text, name, numbers, children=inner.parts, partial=inner.partial and bool(inner.parts))]


def _plain_name(name: str) -> str:
    """Drop a leading function class; read a number that stands alone as the additive it is in Australia."""
    name = _function_then(name) or name
    number = bare_e_number(name)
    if number:
        return number.casefold()
    return "" if name.replace(" ", "").isdigit() else name
