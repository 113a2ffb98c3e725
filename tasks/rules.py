"""The rules of the engine: each looks at one case and says what is wrong with it, or nothing.

Rules know nothing of each other and change nothing, so their order cannot matter. Their word lists are
independent of the knowledge files, so that a mistake there is caught here; they are English because every
text is looked at together with the names of the rows it matched ("Weizenmehl" is looked at as "wheat").

| id | a proposal must not | effect |
|---|---|---|
| S1, S2 | be anything but the JSON asked for; hold a value out of bounds (`tasks.proposal.read`) | reject |
| S3 | answer for another ingredient | reject |
| S4 | combine `none` or `unknown` with a class, or name no class at all | reject |
| E1 | name an E-number that is malformed or in no additive table | reject |
| E2 | name another E-number than the ingredient has / concern a contradictory label | reject / human |
| E3 | miss `polyol` for E420, E421, E953, E964 to E968 | reject |
| E4 | claim `polyol` for the acids, esters and flavour enhancers whose names only look like it | reject |
| G1 | say anything but `contains` for a gluten cereal | reject |
| G2 | say `exempt` for anything but the forms of EU 1169/2011 Annex II | reject |
| G3 | clear oats | reject |
| G4 | say `contains` for buckwheat, maltodextrin, glutinous rice, glutamate | reject |
| L1 | say lactose `none` for milk, whey and their powders | reject |
| L2 | say more than `none` for lactic acid, lactates, lactitol, plant butters, coconut milk | reject |
| L3 | contradict itself about lactose | reject |
| F1 | miss `fructan` for onion, garlic, leek, inulin, chicory and their kin | reject |
| F2 | miss `gos` for legumes | reject |
| F3 | claim a class for pure fat, salt, water, plain meat, fish, egg | reject |
| F4 | miss `excess_fructose` for honey, agave, fructose and its syrups, apple and pear concentrate | reject |
| U1 | say more than unknown/depends for what does not say what it holds | cap |
| K1, K2 | contradict a row of high, of medium confidence | reject, human |
| C1 | come without evidence that can be checked | reject |
| C2 | clear or soften anything without a row and 0.9, claim anything below 0.6 | reject or human |
| C3 | differ from an earlier proposal of the same versions | human |
| C4 | make gluten milder than the knowledge | cap |
| P1 | concern a text that reads like an instruction, or is over-long (asked before the call, too) | human |
| M1 | be milder for a compound than for one of its children | reject |
"""

import re
from collections.abc import Iterable, Iterator

from tasks.case import Case, Effect, Finding, Rule, comparable
from tasks.facts import Confidence, Fodmap, Gluten, Lactose, State, rank, state_of
from tasks.ingredients import Part
from tasks.knowledge import Row
from tasks.proposal import Kind
from tasks.text import base_number


def _phrases(text: str) -> tuple[str, ...]:
    """Return the phrases of a |-separated list, longest first, as `_found` compares them."""
    return tuple(sorted((comparable(phrase) for phrase in text.split("|")), key=lambda p: (-len(p), p)))


def _found(texts: Iterable[str], phrases: tuple[str, ...], besides: tuple[str, ...] = ()) -> str | None:
    """Return the first phrase that is in a text as whole words once the phrases `besides` are taken out."""
    for text in texts:
        rest = text
        for phrase in besides:
            rest = rest.replace(phrase, " | ")
        for phrase in phrases:
            if phrase in rest:
                return " ".join(phrase.split())
    return None


def _reject(rule: str, message: str) -> Finding:
    return Finding(rule, Effect.REJECT, message)


def _human(rule: str, message: str) -> Finding:
    return Finding(rule, Effect.HUMAN, message)


# --- the form -----------------------------------------------------------------------------------------------


def s3_asked_ingredient(case: Case) -> Iterator[Finding]:
    """The answer is for the ingredient that was asked about."""
    if case.proposal.ingredient_id != case.question.ingredient_id:
        yield _reject(
            "S3", f"answers for {case.proposal.ingredient_id!r}, asked was {case.question.ingredient_id!r}"
        )


def s4_classes_stand_alone(case: Case) -> Iterator[Finding]:
    """`none` and `unknown` stand alone, and something stands there."""
    alone = case.claim.fodmap & {Fodmap.NONE, Fodmap.UNKNOWN}
    if not case.claim.fodmap:
        yield _reject("S4", "fodmap is empty")
    elif alone and len(case.claim.fodmap) > 1:
        yield _reject("S4", f"fodmap combines {', '.join(sorted(case.claim.fodmap))}")


# --- E-numbers ----------------------------------------------------------------------------------------------

_E_NUMBER = re.compile(r"E\d{3,4}[a-h]?(?:i{1,3}|iv|vi{0,3})?")
_POLYOLS = frozenset({420, 421, 953, *range(964, 969)})
_NO_POLYOLS = frozenset({*range(200, 203), 422, *range(432, 437), *range(491, 496), 636, 637})


def e1_additive_exists(case: Case) -> Iterator[Finding]:
    """The E-number is well-formed and in the additive table."""
    number = case.proposal.e_number
    if number is not None and not (_E_NUMBER.fullmatch(number) and case.knowledge.additive(number)):
        yield _reject("E1", f"{number!r} is in no additive table")


def e2_name_and_number_agree(case: Case) -> Iterator[Finding]:
    """The E-number is that of the ingredient, and the label does not contradict itself."""
    printed = _bases(case.part.e_numbers)
    words = " ".join(word for word in case.part.name.split() if f"E{word[1:]}" not in case.part.e_numbers)
    named = _bases(number for row in case.knowledge.match(words).rows for number in row.e_numbers)
    if printed and named and not printed & named:
        yield _human("E2", f"the label prints {', '.join(case.part.e_numbers)} beside the name {words!r}")
    proposed = case.proposal.e_number
    if (
        proposed
        and _E_NUMBER.fullmatch(proposed)
        and printed | named
        and base_number(proposed) not in printed | named
    ):
        yield _reject("E2", f"{proposed} is not the number of {case.part.text!r}")


def e3_polyols_are_polyols(case: Case) -> Iterator[Finding]:
    """A polyol additive is claimed as polyol."""
    polyols = _numbers(case) & _POLYOLS
    if polyols and Fodmap.POLYOL not in case.claim.fodmap and not case.part.trace:
        yield _reject("E3", f"no polyol for E{min(polyols)}")


def e4_others_are_not(case: Case) -> Iterator[Finding]:
    """Sorbates, glycerol, polysorbates, sorbitan esters and maltol are no polyols in the sense of FODMAP."""
    numbers = _numbers(case) or _bases(number for row in case.known.rows for number in row.e_numbers)
    alone = not case.part.children and Fodmap.POLYOL not in case.known.facts.fodmap
    if alone and numbers and numbers <= _NO_POLYOLS and Fodmap.POLYOL in case.claim.fodmap:
        yield _reject("E4", f"polyol for E{min(numbers)}")


def _bases(numbers: Iterable[str]) -> frozenset[int]:
    return frozenset(base_number(number) for number in numbers)


def _numbers(case: Case) -> frozenset[int]:
    proposed = case.proposal.e_number
    return _bases(
        (*case.printed_numbers, *([proposed] if proposed and _E_NUMBER.fullmatch(proposed) else []))
    )


# --- gluten -------------------------------------------------------------------------------------------------

_GLUTEN_CEREALS = _phrases(
    "wheat|spelt|khorasan|kamut|emmer|einkorn|durum|rye|barley|triticale|malt|semolina|bulgur|couscous|seitan"
)
# Forms in which the cereal's protein is gone or was never there; their rows say what is left to know.
_NO_CEREALS = _phrases(
    "wheat glucose syrup|barley glucose syrup|wheat dextrose|wheat maltodextrin|barley maltodextrin"
    "|wheat dextrin|wheat starch|wheat glucose fructose syrup|wheat caramel colour|barley caramel colour"
    "|wheat distilled spirit|barley distilled spirit|rice malt syrup|rice malt|malt vinegar"
    "|barley malt vinegar|maize semolina|corn semolina|rice semolina"
)
_EXEMPT = _phrases(
    "glucose syrup|corn syrup|dextrose|glucose|maltodextrin|glucose fructose syrup|fructose glucose syrup"
    "|isoglucose|caramel colour|distilled spirit|distilled alcohol|ethyl alcohol|spirit vinegar"
)
_NEVER_EXEMPT = _phrases("wheat starch|modified starch|dextrin|malt extract")
_OATS = _phrases("oat")
_NO_GLUTEN = _phrases("buckwheat|maltodextrin|glutinous rice|sticky rice|glutamate")


def g1_gluten_cereals(case: Case) -> Iterator[Finding]:
    """A gluten cereal anywhere in the ingredient means `contains`."""
    cereal = _found(case.texts_with_sources, _GLUTEN_CEREALS, besides=_NO_CEREALS)
    if cereal and case.claim.gluten is not Gluten.CONTAINS:
        yield _reject("G1", f"gluten {case.claim.gluten} although it holds {cereal}")


def g2_exemptions(case: Case) -> Iterator[Finding]:
    """`exempt` is a legal word for four forms, and for nothing else made from gluten cereals."""
    if case.claim.gluten is not Gluten.EXEMPT:
        return
    never = _found(case.texts_with_sources, _NEVER_EXEMPT)
    if never or not _found(case.texts_with_sources, _EXEMPT):
        yield _reject("G2", f"gluten exempt for {never or case.part.name!r}")


def g3_oats(case: Case) -> Iterator[Finding]:
    """Oats are `oats`, never cleared."""
    if _found(case.texts_with_sources, _OATS) and rank(case.claim.gluten) < rank(Gluten.OATS):
        yield _reject("G3", f"gluten {case.claim.gluten} for oats")


def g4_false_friends_of_gluten(case: Case) -> Iterator[Finding]:
    """Names that only sound like gluten are not `contains`."""
    friend = _found(case.texts, _NO_GLUTEN)
    other = _found(case.texts_with_sources, _GLUTEN_CEREALS, besides=_NO_CEREALS) or any(
        rank(row.facts.gluten) > rank(Gluten.EXEMPT) for row in case.known.rows
    )
    if friend and not other and case.claim.gluten is Gluten.CONTAINS:
        yield _reject("G4", f"gluten contains for {friend}")


# --- lactose ------------------------------------------------------------------------------------------------

_DAIRY = _phrases("milk|whey|milk powder|buttermilk|lactose|permeate")
_NO_DAIRY = _phrases(
    "coconut milk|soy milk|soya milk|oat milk|rice milk|almond milk|cashew milk|hazelnut milk|milk thistle"
)
_LACTOSE_FREE_FRIENDS = _phrases(
    "lactic acid|lactate|lactylate|stearoyl lactylate|lactitol|cocoa butter|coconut milk|coconut cream"
    "|peanut butter|nut butter|almond butter|cashew butter|hazelnut butter|shea butter"
)


def l1_dairy(case: Case) -> Iterator[Finding]:
    """Milk, whey and lactose are never without lactose."""
    dairy = _found(case.texts, _DAIRY, besides=_NO_DAIRY)
    if dairy and case.claim.lactose is Lactose.NONE:
        yield _reject("L1", f"lactose none for {dairy}")


def l2_false_friends_of_lactose(case: Case) -> Iterator[Finding]:
    """Lactic acid and its kin, and butters of plants, hold no lactose."""
    friend = _found(case.texts, _LACTOSE_FREE_FRIENDS)
    other = _found(case.texts, _DAIRY, besides=_NO_DAIRY) or any(
        row.facts.lactose is not Lactose.NONE for row in case.known.rows
    )
    if friend and not other and not case.part.children and case.claim.lactose is not Lactose.NONE:
        yield _reject("L2", f"lactose {case.claim.lactose} for {friend}")


def l3_lactose_agrees(case: Case) -> Iterator[Finding]:
    """The FODMAP class and the lactose level say the same."""
    is_class = Fodmap.LACTOSE in case.claim.fodmap
    if is_class and case.claim.lactose in (Lactose.NONE, Lactose.TRACE):
        yield _reject("L3", f"class lactose with lactose {case.claim.lactose}")
    if not is_class and case.claim.lactose is Lactose.HIGH:
        yield _reject("L3", "lactose high without the class lactose")


# --- FODMAP classes -----------------------------------------------------------------------------------------

_FRUCTAN = _phrases(
    "onion|shallot|garlic|leek|inulin|chicory|fos|oligofructose|fructooligosaccharide|fructo oligosaccharide"
)
# Fructans dissolve in water, not in oil.
_INFUSED_OILS = _phrases("garlic infused oil|onion infused oil|garlic oil|onion oil|onion seed")
_LEGUMES = _phrases(
    "chickpea|lentil|bean|soybean|soya bean|soy flour|soya flour|edamame|lupin|gram flour|besan|green pea|pea"
)
_NO_LEGUMES = _phrases(
    "soy protein isolate|soya protein isolate|pea protein isolate|pea protein|soybean oil|soya bean oil"
    "|soy bean oil|soybean lecithin|locust bean gum|carob bean gum|green bean|french bean|vanilla bean"
    "|cocoa bean|coffee bean|snow pea|sugar snap pea"
)
_PURE = frozenset({"vegetable oil", "salt", "water", "meat", "fish", "egg"})
_FRUCTOSE = _phrases(
    "honey|agave|fructose|hfcs|high fructose corn syrup|glucose fructose syrup|isoglucose"
    "|apple juice concentrate|pear juice concentrate|apple concentrate|pear concentrate"
)


def f1_fructans(case: Case) -> Iterator[Finding]:
    """Onion, garlic, inulin and their kin count at any position and in any form but infused oil."""
    yield from _missing("F1", case, Fodmap.FRUCTAN, _found(case.texts, _FRUCTAN, besides=_INFUSED_OILS))


def f2_legumes(case: Case) -> Iterator[Finding]:
    """Legumes carry GOS, unless only their protein, oil or lecithin is used."""
    yield from _missing("F2", case, Fodmap.GOS, _found(case.texts, _LEGUMES, besides=_NO_LEGUMES))


def f3_pure_foods(case: Case) -> Iterator[Finding]:
    """FODMAPs are carbohydrates: pure fat, salt, water, plain meat, fish and egg have none."""
    pure = case.known.complete and {row.name for row in case.known.rows} <= _PURE
    if pure and case.claim.classes:
        yield _reject("F3", f"{', '.join(sorted(case.claim.classes))} for {case.part.name!r}")


def f4_fructose(case: Case) -> Iterator[Finding]:
    """Honey, agave and the fructose syrups carry fructose in excess."""
    yield from _missing("F4", case, Fodmap.EXCESS_FRUCTOSE, _found(case.texts, _FRUCTOSE))


def _missing(rule: str, case: Case, fodmap: Fodmap, found: str | None) -> Iterator[Finding]:
    if found and fodmap not in case.claim.fodmap:
        yield _reject(rule, f"no {fodmap} for {found}")


# --- the knowledge ------------------------------------------------------------------------------------------


def u1_undetermined(case: Case) -> Iterator[Finding]:
    """What does not say what it holds stays unknown, whatever is claimed about it."""
    if case.undetermined and case.capped != case.claim:
        yield Finding("U1", Effect.CAP, f"{case.part.name!r} does not say what it holds")


def k1_high_rows(case: Case) -> Iterator[Finding]:
    """A row of high confidence cannot be contradicted."""
    yield from (_reject("K1", message) for message in _contradictions(case, Confidence.HIGH))


def k2_medium_rows(case: Case) -> Iterator[Finding]:
    """A row of medium confidence can be contradicted by a human only."""
    yield from (_human("K2", message) for message in _contradictions(case, Confidence.MEDIUM))


def _contradictions(case: Case, confidence: Confidence) -> Iterator[str]:
    for row in case.known.rows:
        milder = case.claim.milder_than(row.facts) if row.confidence is confidence else ()
        if milder:
            yield f"{' and '.join(milder)} milder than the row {row.name!r}"
    # Of a name that is only partly known, the rest may well be more serious.
    sterner = case.claim.sterner_than(case.known.facts) if case.known.complete else ()
    if sterner and case.known.confidence is confidence:
        yield f"{' and '.join(sterner)} more serious than {_row_names(case.known.rows)}"


def _row_names(rows: Iterable[Row]) -> str:
    return "the rows " + ", ".join(repr(row.name) for row in rows)


# --- evidence -----------------------------------------------------------------------------------------------

_SURE_ENOUGH_TO_CLEAR = 0.9
_SURE_ENOUGH_TO_WARN = 0.6


def c1_evidence(case: Case) -> Iterator[Finding]:
    """Evidence is there, can be checked, and is true."""
    evidence = case.proposal.evidence
    if not any(item.kind in (Kind.KB, Kind.LABEL) for item in evidence):
        yield _reject("C1", "no evidence from the knowledge or the label")
    for item in evidence:
        if item.kind is Kind.LABEL and not (item.quote and item.quote in case.part.text):
            yield _reject("C1", f"the label does not say {item.quote!r}")
        if item.kind is Kind.KB and item.ref not in _refs(case):
            yield _reject("C1", f"the knowledge has no {item.ref!r} for this ingredient")


def _refs(case: Case) -> frozenset[str]:
    numbers = (number for number in case.printed_numbers if case.knowledge.additive(number))
    return frozenset((*(row.name for row in case.known.rows), *numbers))


def c2_clearing_needs_more(case: Case) -> Iterator[Finding]:
    """Clearing takes a row and 0.9, warning takes 0.6: the two mistakes do not cost the same."""
    sure = case.proposal.confidence
    softened = case.capped.milder_than(case.known.facts)
    if not softened and state_of(case.capped, portion=case.portion) is not State.NO_TRIGGER_KNOWN:
        if sure < _SURE_ENOUGH_TO_WARN:
            yield _human("C2", f"confidence {sure} is below {_SURE_ENOUGH_TO_WARN}")
        return
    rows = {row.name for row in case.known.rows}
    supported = not softened and any(e.kind is Kind.KB and e.ref in rows for e in case.proposal.evidence)
    lacking = [] if supported else ["a row that says so"]
    if sure < _SURE_ENOUGH_TO_CLEAR:
        lacking.append(f"confidence {_SURE_ENOUGH_TO_CLEAR}")
    if lacking:
        effect = Effect.HUMAN if len(lacking) == 1 else Effect.REJECT
        yield Finding("C2", effect, f"clearing it lacks {' and '.join(lacking)}")


def c3_earlier_proposals(case: Case) -> Iterator[Finding]:
    """Two different answers to one question are no answer."""
    if any(earlier != case.claim for earlier in case.question.earlier):
        yield _human("C3", "an earlier proposal of the same versions said something else")


def c4_gluten_is_never_softened(case: Case) -> Iterator[Finding]:
    """Gluten is cleared by the knowledge alone, never by a proposal."""
    if not case.undetermined and case.capped != case.claim:
        yield Finding("C4", Effect.CAP, f"gluten {case.claim.gluten} is milder than the knowledge")


# --- the text -----------------------------------------------------------------------------------------------

_MOST_NAME_CHARACTERS = 150
_MOST_PARTS = 80
_INSTRUCTION = re.compile(
    r"\b(?:ignore|disregard|forget)\b.{0,30}\b(?:previous|above|all|instructions?|rules?)\b"
    r"|\b(?:system|assistant|user)\s*:|\bprompt\b|\byou (?:are|must|should|will)\b"
    r"|\b(?:respond|reply|answer|return|output)\b.{0,20}\b(?:with|only|json)\b"
    r"|```|<\s*/?\s*\w+\s*>|[{}]|https?:|\"\s*:",
    re.IGNORECASE,
)


def p1_text_is_data(case: Case) -> Iterator[Finding]:
    """A label is data: what reads like an instruction goes to a human."""
    yield from suspicious(case.part)


def suspicious(part: Part) -> Iterator[Finding]:
    """Say why a part should not be put before a proposer at all; nothing for an ordinary ingredient."""
    if len(part.name) > _MOST_NAME_CHARACTERS:
        yield _human("P1", f"a name of {len(part.name)} characters")
    if sum(1 for _ in part.walk()) > _MOST_PARTS:
        yield _human("P1", f"more than {_MOST_PARTS} parts")
    if _INSTRUCTION.search(part.text):
        yield _human("P1", "the text reads like an instruction")


def m1_children(case: Case) -> Iterator[Finding]:
    """A compound is at least as serious as each of its children."""
    for child in case.part.children:
        milder = case.claim.milder_than(case.knowledge.known(child).facts)
        if milder:
            yield _reject("M1", f"{' and '.join(milder)} milder than its child {child.name!r}")


RULES: tuple[Rule, ...] = (
    s3_asked_ingredient,
    s4_classes_stand_alone,
    e1_additive_exists,
    e2_name_and_number_agree,
    e3_polyols_are_polyols,
    e4_others_are_not,
    g1_gluten_cereals,
    g2_exemptions,
    g3_oats,
    g4_false_friends_of_gluten,
    l1_dairy,
    l2_false_friends_of_lactose,
    l3_lactose_agrees,
    f1_fructans,
    f2_legumes,
    f3_pure_foods,
    f4_fructose,
    u1_undetermined,
    k1_high_rows,
    k2_medium_rows,
    c1_evidence,
    c2_clearing_needs_more,
    c3_earlier_proposals,
    c4_gluten_is_never_softened,
    p1_text_is_data,
    m1_children,
)
