"""Proposers: whoever is asked about an ingredient. Proposing decides nothing; the engine does."""

from typing import Protocol

from tasks.facts import Confidence
from tasks.knowledge import Knowledge, Known
from tasks.proposal import MOST_EVIDENCE, MOST_NOTE_CHARACTERS, Evidence, Kind, Proposal, Question


class Proposer(Protocol):
    """Something that can be asked about an ingredient."""

    @property
    def version(self) -> str:
        """Changes when the same question may get another answer: with the model, with the prompt."""

    def propose(self, question: Question) -> str:
        """Return a proposal as JSON text, in the schema of `tasks.proposal`.

        The text is judged as it is: whatever a model sent goes through unchanged.
        """


# How sure the lexicon is of a row, on the scale of rule C2: rows of low confidence never clear an ingredient.
_CONFIDENCE = {Confidence.HIGH: 0.95, Confidence.MEDIUM: 0.9, Confidence.LOW: 0.6}


class LexiconProposer:
    """Proposes what the knowledge says, and `unknown` where it says nothing: no key, no cost, no network.

    A name that is only partly known is proposed with what the known part brings and `unknown` for the rest.
    """

    version = "lexicon-1"

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge

    def propose(self, question: Question) -> str:
        """Return the proposal; the same question always gets the same text."""
        known = self._knowledge.known(question.part)
        numbers = [number for number in question.part.e_numbers if self._knowledge.additive(number)]
        return Proposal(
            ingredient_id=question.ingredient_id,
            facts=known.facts,
            e_number=numbers[0] if numbers else None,
            confidence=_CONFIDENCE[known.confidence],
            evidence=self._evidence(question, known, numbers),
            note=self._note(known, numbers)[:MOST_NOTE_CHARACTERS],
        ).to_text()

    def _evidence(self, question: Question, known: Known, numbers: list[str]) -> tuple[Evidence, ...]:
        rows = [Evidence(Kind.KB, row.name, "") for row in known.rows]
        additives = [Evidence(Kind.KB, number, "") for number in numbers]
        printed = Evidence(Kind.LABEL, "", question.part.text[:MOST_NOTE_CHARACTERS])
        return (printed, *rows, *additives)[:MOST_EVIDENCE]

    def _note(self, known: Known, numbers: list[str]) -> str:
        if known.rows:
            return "; ".join(row.note for row in known.rows if row.note)
        named = ", ".join(f"{number} is {self._knowledge.additive(number)}" for number in numbers)
        return named or "not in the knowledge"
