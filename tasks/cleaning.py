"""What stands around the ingredients on a label: quantities, footnotes, claims, warnings, "may contain"."""

import re
from collections.abc import Iterator

from tasks.text import normalise, with_e_numbers_spelled

_UNIT = r"\s*(?:%|g\b|mg\b|kg\b|µg\b|ml\b|kcal\b|kJ\b)"
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d+" + _UNIT + ")")
_NUMBER = r"\d+(?:\.\d+)?"
_QUANTITY = re.compile(
    r"(?:\b(?:min|mind|max|approx|ca|env|at least|mindestens|minimum|minstens|al menos|almeno|au moins)\b"
    r"\.?\s*)?"
    r"[<>≤≥~]?\s*" + _NUMBER + r"(?:\s*[-\u2013]\s*" + _NUMBER + ")?" + _UNIT,
    re.IGNORECASE,
)
# "2% or less of:", "contains less than 2% of each of the following:" introduce a list in the United States.
_OR_LESS = re.compile(
    r"(?:contains?\s+)?(?:less than\s+)?"
    + _NUMBER
    + r"\s*%\s*(?:or less\s*)?of(?:\s+(?:each of\s+)?the following)?\s*:?",
    re.IGNORECASE,
)
_PROPORTIONS = re.compile(
    r"\b(?:in (?:varying|variable) proportions?|in (?:wechselnden|veränderlichen) (?:Gewichts)?anteilen"
    r"|en proportions? variables?|en proporción variable|en proporciones variables|in proporzione variabile"
    r"|in wisselende verhoudingen)\b",
    re.IGNORECASE,
)
_CLAIM = re.compile(
    r"\b(?:gluten|wheat)[\s-]*free\b|\bglutenfrei(?:e[rsn]?)?\b"
    r"|\b(?:sans gluten|sin gluten|senza glutine)\b|\bglutenvrije?\b|\bglutenfri(?:a|tt)?\b",
    re.IGNORECASE,
)
_PER_WEIGHT = re.compile(
    r"\d+\s*g\s+(?:per|pro|pour|por|su|op|auf)\s+\d+\s*g(?:\s+(?:of\s+)?\w+)?", re.IGNORECASE
)
# Sentences the law demands beside the list; up to the next separator, so that no ingredient goes with them.
_STATEMENT = re.compile(
    r"[^.,;()\n]*\b(?:laxative|abführend|laxati[fv]|laxante|lassativ|laxerend|[fp]h?en[iy]lalanin"
    r"|(?:cocoa|milk|fruit) (?:solids|content)[^.,;()\n]*\bminimum)[^.,;()\n]*",
    re.IGNORECASE,
)
_EMPTY_BRACKETS = re.compile(r"\([\s,;.]*\)")
_MARKS = re.compile(r"[*†‡°¹²³⁴⁵®™_]+")
# A footnote explains a mark: "*from organic farming." Some labels put the mark before the ingredient, so only
# what speaks of farming or certificates is one, and only up to the next separator.
_FOOTNOTE = re.compile(
    r"[*†‡°¹²³]+\s*=?[^.,;()\n*†‡°¹²³]*\b(?:farming|agricultur\w*|agricoltura|anbau|landwirtschaft|landbouw|teelt"
    r"|jordbruk|landbrug|fair ?trade|rainforest|certified|zertifizier\w*|sustainabl\w+)\b[^.,;()\n*†‡°¹²³]*",
    re.IGNORECASE,
)


def cleaned(text: str) -> str:
    """Return a list of ingredients without quantities, marks, footnotes, claims and legal sentences.

    Brackets become round, decimal commas points, and E-numbers get their one spelling.
    """
    text = _FOOTNOTE.sub(" ", text)
    text = _MARKS.sub("", with_e_numbers_spelled(text)).translate(str.maketrans("[]{}", "()()"))
    text = _DECIMAL_COMMA.sub(".", text)
    text = _PROPORTIONS.sub("", text)
    for noise in (_STATEMENT, _CLAIM, _PER_WEIGHT, _OR_LESS):
        text = noise.sub(" ", text)
    return _EMPTY_BRACKETS.sub(" ", _QUANTITY.sub(" ", text))


# --- "may contain" ------------------------------------------------------------------------------------------

_MAY_CONTAIN = re.compile(
    r"\b(?:may (?:also )?contain(?: traces? of)?|(?:may be|are) present:|traces? of"
    r"|(?:made|produced|packed|manufactured) (?:in|on) [^.,]*?(?:factory|facility|site|equipment|lines?|plant"
    r"|kitchen|bakery)\b[^.,]*?(?:handles?|process(?:es)?|uses?|contain(?:s|ing)|with)"
    r"|(?:fabriqué|élaboré|elaborado|prodotto|confezionato)\w* (?:dans|en|in) [^.]*?"
    r"(?:utilis|utiliz|manip)\w+(?: du| des| de la)?"
    r"|hergestellt in einem betrieb,? (?:der|in dem|das)(?: auch)?"
    r"|kann (?:auch )?(?:spuren|anteile)(?: von)?|kann"
    r"|peut contenir(?: (?:des )?traces?(?: éventuelles?)?(?: de| d['\u2019])?)?|traces? éventuelles? de"
    r"|traces? d['\u2019]"
    r"|puede contener(?: trazas(?: de)?)?|può contenere(?: tracce(?: di)?)?"
    r"|kan sporen(?: van)?|pode conter(?: vestígios(?: de)?)?|może zawierać"
    r"|kan indeholde spor af|kan indeholde|kan innehålla spår av|kan innehålla|saattaa sisältää)\b:?"
    r"(?P<listed>[^.\n)]*)",
    re.IGNORECASE,
)
_VERB_LAST = re.compile(r"\s+(?:enthalten|bevatten|verarbeitet(?: wird| werden)?)\s*$", re.IGNORECASE)
_TRACE_SEPARATOR = re.compile(
    r"\s*(?:[,;/]|\b(?:and|or|und|oder|sowie|et|ou|y|o|e|en|of|og|och|i|ja|other|autres|andere[nr]?)\b)\s*",
    re.IGNORECASE,
)
_TRACE_FILLER = re.compile(
    r"^(?:traces? of|spuren von|also|auch|the|des|les|du|de la|other|von|van|di|de|d['\u2019](?=\w))\s*\b",
    re.IGNORECASE,
)


def without_traces(text: str) -> tuple[str, list[str]]:
    """Return a cleaned text without its "may contain" sentences, and what each of them lists."""
    listed = [match["listed"] for match in _MAY_CONTAIN.finditer(text)]
    return _MAY_CONTAIN.sub(" ", text), listed


def trace_names(listed: str) -> Iterator[str]:
    """Yield the names in what a "may contain" sentence lists."""
    plain = _VERB_LAST.sub("", listed.replace("(", ",").replace(")", ","))
    for name in _TRACE_SEPARATOR.split(plain):
        stripped = _TRACE_FILLER.sub("", name.strip())
        if normalise(stripped):
            yield stripped
