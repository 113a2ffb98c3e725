"""The words labels use around ingredients, in the languages of `data/words.csv`.

| kind | words that |
|---|---|
| header | open a list: "Ingredients:", "Zutaten:" |
| function | say what an additive is for: "emulsifier", "Säuerungsmittel"; never an ingredient themselves |
| source | say what an ingredient is made from: "lecithin (soya)" |
| collective | name a group, whose bracket lists its members: "cereals (wheat, oats)" |
| neutral | change nothing that the rules look at: "organic", "dried", "de" |
"""

import csv
from functools import cache
from importlib.resources import files

from tasks.text import normalise


@cache
def words(kind: str) -> frozenset[str]:
    """Return the normalised words of one kind, of all languages.

    Raises:
        KeyError: there is no such kind.
    """
    return _all_words()[kind]


@cache
def _all_words() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    text = files("tasks").joinpath("data", "words.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        found.setdefault(row["kind"], set()).update(normalise(word) for word in row["words"].split("|"))
    return {kind: frozenset(each) for kind, each in found.items()}


def singular(word: str) -> str:
    """Return a word without its plural s, for comparing: "oils" and "oil" name the same thing.

    Words are only ever compared after both went through here, so what it does to "couscous" does no harm.
    """
    return word[:-1] if len(word) > 3 and word.endswith("s") else word  # noqa: PLR2004  # "gas", "sls" are no plurals


def is_word(kind: str, text: str) -> bool:
    """Whether a normalised `text` is a word of that kind, as it stands or in the plural."""
    return text in words(kind) or singular(text) in words(kind)
