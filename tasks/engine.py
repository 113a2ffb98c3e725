"""The engine: disposes of what a proposer proposes, by rules alone.

`decide` is a pure function of the question, the proposal's text, the knowledge and the rules: the same input
gives the same decision, byte for byte, and the decision names the versions it was made with (V1). What is
accepted is never milder than the knowledge.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tasks.case import Case, Effect, Finding, Rule
from tasks.facts import Facts, Fodmap, Gluten, Lactose, State, state_of
from tasks.ingredients import Part
from tasks.knowledge import Knowledge
from tasks.proposal import SCHEMA_VERSION, MalformedProposal, Question, read
from tasks.rules import RULES, suspicious

#: Changes with every change of a rule, of the splitter, or of how they are weighed.
ENGINE_VERSION = "2"


class Verdict(StrEnum):
    """What becomes of a proposal."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    NEEDS_HUMAN = "needs_human"


@dataclass(frozen=True, slots=True)
class Versions:
    """What a decision depends on beside the proposal (V1)."""

    engine: str
    kb: str
    schema: str
    prompt: str

    @property
    def key(self) -> str:
        """One string that changes when any of them does."""
        return f"engine={self.engine} kb={self.kb} schema={self.schema} prompt={self.prompt}"


def versions(knowledge: Knowledge, proposer_version: str) -> Versions:
    """Return the versions that decisions are made with now."""
    return Versions(ENGINE_VERSION, knowledge.version, SCHEMA_VERSION, proposer_version)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered for an ingredient; `reason` says why in a few words for people."""

    facts: Facts
    e_number: str | None
    state: State
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What the engine made of a proposal.

    Attributes:
        verdict: what becomes of it.
        answer: the answer, capped where a rule says so; only with an accepted proposal.
        findings: what the rules found, sorted.
        versions: what the decision was made with.
    """

    verdict: Verdict
    answer: Answer | None
    findings: tuple[Finding, ...]
    versions: Versions

    @property
    def rules(self) -> tuple[str, ...]:
        """The ids of the rules that found something, each once."""
        return tuple(dict.fromkeys(finding.rule for finding in self.findings))

    @property
    def reason(self) -> str:
        """Why, in one line."""
        return "; ".join(f"{finding.rule}: {finding.message}" for finding in self.findings)

    def to_text(self) -> str:
        """Return the decision as JSON: equal decisions give equal bytes."""
        data: dict[str, Any] = {
            "verdict": self.verdict,
            "answer": _plain(self.answer),
            "findings": [{"rule": f.rule, "effect": f.effect, "message": f.message} for f in self.findings],
            "versions": {name: getattr(self.versions, name) for name in Versions.__slots__},
        }
        return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def decide(
    question: Question, text: str, knowledge: Knowledge, prompt: str, rules: Sequence[Rule] = RULES
) -> Decision:
    """Judge a proposal.

    Args:
        question: the ingredient that was asked about.
        text: the proposal as JSON text, exactly as it came.
        knowledge: what to judge it by.
        prompt: the version of the proposer.
        rules: the rules; their order does not matter.
    """
    made_with = versions(knowledge, prompt)
    try:
        proposal = read(text)
    except MalformedProposal as malformed:
        finding = Finding(malformed.rule, Effect.REJECT, str(malformed))
        return Decision(Verdict.REJECTED, None, (finding,), made_with)
    case = Case(question, proposal, knowledge)
    findings = tuple(sorted({finding for rule in rules for finding in rule(case)}))
    verdict = _verdict(findings)
    return Decision(verdict, _answer(case) if verdict is Verdict.ACCEPTED else None, findings, made_with)


def screen(part: Part, knowledge: Knowledge, prompt: str) -> Decision | None:
    """Judge an ingredient before anybody is asked about it (P1); None when it may be asked about."""
    findings = tuple(sorted(suspicious(part)))
    return Decision(Verdict.NEEDS_HUMAN, None, findings, versions(knowledge, prompt)) if findings else None


def unjudged(verdict: Verdict, why: Finding, knowledge: Knowledge, prompt: str) -> Decision:
    """Return the decision about an ingredient for which there is no proposal to judge."""
    return Decision(verdict, None, (why,), versions(knowledge, prompt))


def _verdict(findings: Sequence[Finding]) -> Verdict:
    effects = {finding.effect for finding in findings}
    if Effect.REJECT in effects:
        return Verdict.REJECTED
    return Verdict.NEEDS_HUMAN if Effect.HUMAN in effects else Verdict.ACCEPTED


def _answer(case: Case) -> Answer:
    facts = case.capped
    return Answer(
        facts,
        case.proposal.e_number,
        state_of(facts, portion=case.portion),
        reason_for(facts, portion=case.portion),
    )


def _plain(answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    return {
        "fodmap": sorted(answer.facts.fodmap),
        "gluten": answer.facts.gluten,
        "lactose": answer.facts.lactose,
        "e_number": answer.e_number,
        "state": answer.state,
        "reason": answer.reason,
    }


_GLUTEN_REASON = {
    Gluten.NONE: "",
    Gluten.EXEMPT: "gluten: exempt in the EU",
    Gluten.UNKNOWN: "gluten unknown",
    Gluten.DEPENDS: "gluten depends on the product",
    Gluten.OATS: "oats: only if sold as gluten-free",
    Gluten.CONTAINS: "contains gluten",
}

_LACTOSE_REASON = {
    Lactose.NONE: "",
    Lactose.TRACE: "lactose: trace",
    Lactose.LOW: "lactose: low",
    Lactose.DEPENDS: "lactose depends on the product",
    Lactose.HIGH: "lactose: high",
}


def reason_for(facts: Facts, *, portion: bool) -> str:
    """Return the reason for a state in a few words."""
    classes = ", ".join(name.replace("_", " ") for name in sorted(facts.classes))
    fodmap = f"FODMAP: {classes}{' (portion)' if portion else ''}" if classes else ""
    if Fodmap.UNKNOWN in facts.fodmap:
        fodmap = "FODMAP unknown"
    said = [text for text in (_GLUTEN_REASON[facts.gluten], fodmap, _LACTOSE_REASON[facts.lactose]) if text]
    return "; ".join(said) or "no FODMAP class, no gluten, no lactose known"
