"""One proposal with everything the rules need to judge it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from tasks.facts import NOTHING_KNOWN, Facts, Gluten, joined, rank
from tasks.ingredients import Part
from tasks.knowledge import Knowledge, Known
from tasks.proposal import Proposal, Question
from tasks.text import normalise
from tasks.words import singular


class Effect(StrEnum):
    """What a finding does to the proposal; the later in this list, the stronger."""

    CAP = "cap"
    HUMAN = "human"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """What one rule found."""

    rule: str
    effect: Effect
    message: str


Rule = Callable[["Case"], Iterable[Finding]]


@dataclass(frozen=True)
class Case:
    """One proposal with what the rules need to judge it."""

    question: Question
    proposal: Proposal
    knowledge: Knowledge

    @property
    def part(self) -> Part:
        """The ingredient in question."""
        return self.question.part

    @property
    def claim(self) -> Facts:
        """The facts as proposed."""
        return self.proposal.facts

    @cached_property
    def known(self) -> Known:
        """What the knowledge says about the ingredient."""
        return self.knowledge.known(self.part)

    @cached_property
    def undetermined(self) -> bool:
        """Whether the ingredient does not say what it holds: "spices", "may contain milk"."""
        return self.part.trace or any(row.undetermined for row in self.known.rows)

    @cached_property
    def capped(self) -> Facts:
        """The claim after the caps U1 and C4: what would be answered."""
        if self.undetermined:
            base = self.claim if self.part.children else self.known.facts
            return joined((base, NOTHING_KNOWN))
        return replace(self.claim, gluten=max(self.claim.gluten, self._gluten_floor, key=rank))

    @property
    def _gluten_floor(self) -> Gluten:
        milder = "gluten" in self.claim.milder_than(self.known.facts)
        return self.known.facts.gluten if milder else self.claim.gluten

    @property
    def portion(self) -> bool:
        """Whether every class that would be answered is known to matter only from a larger serve."""
        return self.known.portion and self.capped.classes <= self.known.facts.classes

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The name of the ingredient and of everything inside it, and the names of the rows they matched."""
        if self.part.trace:
            return ()
        parts = list(self.part.walk())
        names = [row.name for row in self.known.rows]
        return tuple(comparable(text) for text in (*(part.name for part in parts), *names))

    @cached_property
    def texts_with_sources(self) -> tuple[str, ...]:
        """`texts`, and each name together with each of its sources: "wheat glucose syrup"."""
        if self.part.trace:
            return ()
        pairs = [(source, part.name) for part in self.part.walk() for source in part.sources]
        combined = [f"{self._canonical(source)} {self._canonical(name)}" for source, name in pairs]
        return (*self.texts, *map(comparable, combined))

    def _canonical(self, name: str) -> str:
        return " ".join(row.name for row in self.knowledge.match(name).rows) or name

    @property
    def printed_numbers(self) -> tuple[str, ...]:
        """The E-numbers printed in the ingredient and inside it."""
        return tuple(number for part in self.part.walk() for number in part.e_numbers)


def comparable(text: str) -> str:
    """Return `text` so that phrases can be looked for in it as whole words: singular, each between blanks."""
    # Every word has blanks of its own, so that a phrase can be taken out without those of its neighbour.
    return "".join(f" {singular(word)} " for word in normalise(text).split())
