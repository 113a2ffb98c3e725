"""What is known or claimed about one ingredient, and which of two claims is the more cautious.

Every comparison in the application goes through the orders in this module: gluten and lactose are ranked,
FODMAP classes are a set. A claim is *milder* than another when it would let somebody eat what the other would
not.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Fodmap(StrEnum):
    """A FODMAP class that can push a food over its cut-off; `none` and `unknown` stand alone."""

    FRUCTAN = "fructan"
    GOS = "gos"
    LACTOSE = "lactose"
    EXCESS_FRUCTOSE = "excess_fructose"
    POLYOL = "polyol"
    NONE = "none"
    UNKNOWN = "unknown"


class Gluten(StrEnum):
    """Gluten, from the mildest to the most serious."""

    NONE = "none"
    EXEMPT = "exempt"  # made from a gluten cereal, but free of the duty to declare it (EU 1169/2011 Annex II)
    UNKNOWN = "unknown"
    DEPENDS = "depends"
    OATS = "oats"
    CONTAINS = "contains"


class Lactose(StrEnum):
    """Lactose per 100 g: high from 2 g, low from 0.1 g, trace below; from the mildest to the most serious."""

    NONE = "none"
    TRACE = "trace"
    DEPENDS = "depends"
    LOW = "low"
    HIGH = "high"


class State(StrEnum):
    """The word a user reads, from the mildest to the most serious; there is none for "safe", on purpose."""

    NO_TRIGGER_KNOWN = "no trigger known"
    UNKNOWN = "unknown"
    CAUTION = "caution"
    AVOID = "avoid"


class Confidence(StrEnum):
    """How far a row of the knowledge can be trusted, from the least."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


def rank(value: Gluten | Lactose | State | Confidence) -> int:
    """Return the place of a value in the order of its own type: 0 is the mildest, or the least trusted."""
    return list(type(value)).index(value)


@dataclass(frozen=True, slots=True)
class Facts:
    """The three facts about one ingredient. `fodmap` is never empty in checked facts."""

    fodmap: frozenset[Fodmap]
    gluten: Gluten
    lactose: Lactose

    @property
    def classes(self) -> frozenset[Fodmap]:
        """The real FODMAP classes, without `none` and `unknown`."""
        return self.fodmap - {Fodmap.NONE, Fodmap.UNKNOWN}

    def milder_than(self, other: "Facts") -> tuple[str, ...]:
        """Name the facts in which this claim is milder than `other`; empty when it is nowhere milder."""
        return tuple(
            name
            for name, milder in (
                ("fodmap", _milder_fodmap(self, other)),
                ("gluten", _milder_gluten(self, other)),
                ("lactose", rank(self.lactose) < rank(other.lactose)),
            )
            if milder
        )

    def sterner_than(self, other: "Facts") -> tuple[str, ...]:
        """Name the facts in which this claim contradicts `other` on the cautious side.

        `unknown` and `depends` leave the question open: a definite, more cautious claim answers it and
        contradicts nothing.
        """
        return tuple(
            name
            for name, sterner in (
                ("fodmap", Fodmap.UNKNOWN not in other.fodmap and _milder_fodmap(other, self)),
                ("gluten", other.gluten not in _OPEN_GLUTEN and rank(self.gluten) > rank(other.gluten)),
                (
                    "lactose",
                    other.lactose is not Lactose.DEPENDS and rank(self.lactose) > rank(other.lactose),
                ),
            )
            if sterner
        )


_OPEN_GLUTEN = frozenset({Gluten.DEPENDS, Gluten.UNKNOWN})

NOTHING_KNOWN = Facts(frozenset({Fodmap.UNKNOWN}), Gluten.UNKNOWN, Lactose.DEPENDS)
NO_TRIGGER = Facts(frozenset({Fodmap.NONE}), Gluten.NONE, Lactose.NONE)


def _milder_fodmap(claim: Facts, other: Facts) -> bool:
    if other.classes:
        return not other.classes <= claim.classes
    return Fodmap.UNKNOWN in other.fodmap and not claim.classes and Fodmap.UNKNOWN not in claim.fodmap


def _milder_gluten(claim: Facts, other: Facts) -> bool:
    # "unknown" and "depends" say the same to somebody who must avoid gluten: the name does not tell.
    both_open = {claim.gluten, other.gluten} <= _OPEN_GLUTEN
    return rank(claim.gluten) < rank(other.gluten) and not both_open


def joined(many: Iterable[Facts]) -> Facts:
    """Return the facts of a food that holds everything in `many`; of nothing at all, `NO_TRIGGER`."""
    each = [NO_TRIGGER, *many]
    return Facts(
        fodmap=_joined_fodmap(each),
        gluten=max((facts.gluten for facts in each), key=rank),
        lactose=max((facts.lactose for facts in each), key=rank),
    )


def _joined_fodmap(each: Iterable[Facts]) -> frozenset[Fodmap]:
    union = frozenset[Fodmap]().union(*(facts.fodmap for facts in each))
    for weaker in (Fodmap.NONE, Fodmap.UNKNOWN):
        if len(union) > 1:
            union -= {weaker}
    return union


def state_of(facts: Facts, *, portion: bool) -> State:
    """Return the word a user reads for `facts`: the most serious of what each fact says alone.

    `portion` says that every FODMAP class in them matters only from a larger serve: "caution" means "mind the
    portion". What depends on something the name does not tell is unknown.
    """
    return max(
        _fodmap_state(facts, portion=portion),
        _GLUTEN_STATE[facts.gluten],
        _LACTOSE_STATE[facts.lactose],
        key=rank,
    )


def _fodmap_state(facts: Facts, *, portion: bool) -> State:
    if facts.classes:
        return State.CAUTION if portion else State.AVOID
    return State.UNKNOWN if Fodmap.UNKNOWN in facts.fodmap else State.NO_TRIGGER_KNOWN


_GLUTEN_STATE = {
    Gluten.NONE: State.NO_TRIGGER_KNOWN,
    Gluten.EXEMPT: State.NO_TRIGGER_KNOWN,
    Gluten.UNKNOWN: State.UNKNOWN,
    Gluten.DEPENDS: State.UNKNOWN,
    # Oats are for coeliacs only when sold as gluten-free, and a minority reacts even then.
    Gluten.OATS: State.CAUTION,
    Gluten.CONTAINS: State.AVOID,
}

_LACTOSE_STATE = {
    Lactose.NONE: State.NO_TRIGGER_KNOWN,
    Lactose.TRACE: State.NO_TRIGGER_KNOWN,
    Lactose.LOW: State.CAUTION,
    Lactose.DEPENDS: State.UNKNOWN,
    Lactose.HIGH: State.AVOID,
}
