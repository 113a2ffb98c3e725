"""Text as it is printed on labels, and its normal form.

Two spellings of one ingredient must end as one name, or the same question is asked (and paid for) twice. The
normal form is: E-numbers in one spelling, compatibility decomposition, case folded, accents dropped,
everything that is not a letter or a digit turned into one blank.
"""

import re
import unicodedata

# Letters that Unicode does not decompose, though labels use them beside their two-letter spelling.
_LIGATURES = str.maketrans(
    {"œ": "oe", "æ": "ae", "ø": "o", "ł": "l", "đ": "d", "\N{LATIN SMALL LETTER DOTLESS I}": "i"}
)

_ROMAN = r"(?:\(\s*(?P<bracketed>i{1,3}|iv|vi{0,3})\s*\)|(?P<bare>i{1,3}|iv|vi{0,3})(?![a-z0-9]))?"
# `E 420`, `E-966`, `E965(ii)`, `E 160a(i)`, `INS 471`. "Vitamin E 100 mg" is a dose, not curcumin.
_E_NUMBER = re.compile(
    r"(?<![a-z0-9])(?<!vitamin )(?:e|ins)\s{0,2}[-.\u2010-\u2013]?\s{0,2}(?P<digits>\d{3,4})"
    r"(?:\s?(?P<letter>[a-h])(?=(?:i{1,3}|iv|vi{0,3})?(?![a-z])))?\s?" + _ROMAN + r"(?![0-9])",
    re.IGNORECASE,
)
# Australia and New Zealand print the number alone: `965(ii)`, `150d`.
_BARE_NUMBER = re.compile(r"(?P<digits>\d{3,4})(?P<letter>[a-h])?" + _ROMAN, re.IGNORECASE)
_BARE_WITH_ROMAN = re.compile(r"(?<![\w.])\d{3,4}[a-h]?\((?:i{1,3}|iv|vi{0,3})\)", re.IGNORECASE)
_NORMAL_E_NUMBER = re.compile(r"e\d{3,4}[a-h]?(?:i{1,3}|iv|vi{0,3})?")


def _spelled(match: re.Match[str]) -> str:
    roman = match["bracketed"] or match["bare"] or ""
    return f"E{match['digits']}{(match['letter'] or '').lower()}{roman.lower()}"


def with_e_numbers_spelled(text: str) -> str:
    """Return `text` with every E-number in the one spelling `E965ii`; nothing else changes.

    A number without E is spelled out only where a roman numeral tells what it is: `965(ii)`.
    """
    # The blank keeps the next word apart where the label printed none.
    spelled = _E_NUMBER.sub(lambda match: f"{_spelled(match)} ", text)
    return _BARE_WITH_ROMAN.sub(lambda match: bare_e_number(match[0]) or match[0], spelled)


def bare_e_number(text: str) -> str | None:
    """Return `E965ii` for a text that is nothing but `965(ii)`, a number printed without E; else None."""
    match = _BARE_NUMBER.fullmatch(text.strip())
    return _spelled(match) if match else None


def normalise(text: str) -> str:
    """Return the normal form of `text`: lower-case words of letters and digits, one blank between them."""
    decomposed = unicodedata.normalize("NFKD", with_e_numbers_spelled(text)).casefold().translate(_LIGATURES)
    # Accents go before the split into words: as separate marks they would cut "säure" in two.
    letters = (character for character in decomposed if not unicodedata.combining(character))
    return " ".join("".join(c if c.isalnum() else " " for c in letters).split())


def e_numbers(name: str) -> tuple[str, ...]:
    """Return the E-numbers in a normalised name, in order, each as `E965ii`."""
    return tuple(_spelled_again(word) for word in name.split() if _NORMAL_E_NUMBER.fullmatch(word))


def _spelled_again(word: str) -> str:
    return "E" + word[1:]


def base_number(e_number: str) -> int:
    """Return the number alone: 965 for `E965ii`."""
    return int(re.sub(r"\D", "", e_number))


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> str:
    """Return `text` without what no database takes: the NUL character and halves of surrogate pairs."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
