"""Printed label text in, a tree of parts out."""

import pytest

from tasks.ingredients import Part, split
from tasks.text import bare_e_number, e_numbers, normalise


def outline(part: Part) -> str:
    """One line that shows everything a part holds."""
    said = ("~" if part.trace else "") + part.name
    extra = [number for number in part.e_numbers if number.casefold() not in part.name.split()]
    said += "".join(f"+{number}" for number in extra)
    said += f"[{','.join(part.sources)}]" if part.sources else ""
    inside = ",".join(outline(child) for child in part.children)
    return f"{said}({'..' if part.partial else ''}{inside})" if part.children else said


CASES = {
    "sugar, salt": "sugar | salt",
    "Ingredients: sugar; salt.": "sugar | salt",
    "Zutaten: Zucker • Salz": "zucker | salz",
    "Ingrédients : sucre, œufs": "sucre | oeufs",
    "": "",
    "()": "",
    " , ,; ": "",
    # quantities
    "cocoa (12,5 %), milk 3,5%, sugar (min. 30 %), oil 2.5 g": "cocoa | milk | sugar | oil",
    "contains 2% or less of: salt, yeast": "salt | yeast",
    "Tomatoes (148 g per 100 g ketchup), salt": "tomatoes | salt",
    # E-numbers
    "E 420, E-966, E965(ii), e 150 d, E160a(ii), INS 471": "e420 | e966 | e965ii | e150d | e160aii | e471",
    "Sweetener (420, 965(ii)), Thickener (1442)": "e420 | e965ii | e1442",
    "Emulsifiers 471, 322": "e471 | e322",
    "sorbitol (E420), xylitol (967)": "sorbitol+E420 | xylitol+E967",
    "vitamin E 100 mg": "vitamin e",
    # function classes
    "emulsifier: lecithin (soya)": "lecithin[soya]",
    "emulsifiers (soya lecithin, E471)": "soya lecithin | e471",
    "Säuerungsmittel: Milchsäure, Citronensäure": "milchsaure | citronensaure",
    "E621 (flavour enhancer), soya lecithin (emulsifier)": "e621 | soya lecithin",
    "émulsifiant : lécithines (E322) (soja)": "lecithines+E322[soja]",
    "emulsifier": "emulsifier",
    # compounds
    "chocolate (sugar, cocoa mass (cocoa, sugar), milk)": "chocolate(sugar,cocoa mass(cocoa,sugar),milk)",
    "sauce [water, oil {palm}, salt]": "sauce(water,oil[palm],salt)",
    "wheat flour (calcium carbonate, iron)": "wheat flour(calcium carbonate,iron)",
    "coating (sugar, E420)": "coating(sugar,e420)",
    "chocolate (sugar, milk": "chocolate(sugar,milk)",
    "sugar), salt": "sugar | salt",
    # sources
    "starch (wheat), oils (palm, shea)": "starch[wheat] | oils[palm,shea]",
    "cereals (wheat, oats)": "cereals(wheat,oats)",
    "cheese (milk) powder": "cheese powder[milk]",
    "flavouring (contains milk)": "flavouring[milk]",
    # examples, remarks
    "spices (including celery, mustard)": "spices(..celery,mustard)",
    "tomatoes (dried), milk (pasteurised), cocoa (Rainforest Alliance)": "tomatoes | milk | cocoa",
    "lemon juice (from concentrate)": "lemon juice",
    # and, or
    "sunflower and/or rapeseed oil": "sunflower oil | rapeseed oil",
    "salt and pepper": "salt | pepper",
    "sale e pepe": "sale | pepe",
    "mono- and diglycerides": "mono and diglycerides",
    "mono et diglycérides d'acides gras": "mono et diglycerides d acides gras",
    "lait écrémé en poudre": "lait ecreme en poudre",
    # marks and footnotes
    "onions*, salt. *from organic farming.": "onions | salt",
    "*Onions, *garlic, salt.": "onions | garlic | salt",
    "*Onions, salt.": "onions | salt",
    "Zwiebeln¹, Salz. ¹aus biologischem Anbau": "zwiebeln | salz",
    # may contain
    "sugar. May contain traces of milk and nuts.": "sugar | ~milk | ~nuts",
    "Zucker. Kann Spuren von Ei, Milch und Nüssen enthalten.": "zucker | ~ei | ~milch | ~nussen",
    "sucre. Peut contenir des traces d'œufs et de lait": "sucre | ~oeufs | ~lait",
    "azúcar. Puede contener trazas de leche": "azucar | ~leche",
    "zucchero. Può contenere tracce di soia": "zucchero | ~soia",
    "suiker. Kan sporen van melk bevatten.": "suiker | ~melk",
    "sugar. Made in a factory that also handles nuts": "sugar | ~nuts",
    "Zucker. Hergestellt in einem Betrieb, der Nüsse verarbeitet": "zucker | ~nusse",
    # sections, claims, sentences
    "Filling: sugar, oil; coating (20%): cocoa": "sugar | oil | cocoa",
    "Contains: wheat, milk.": "wheat | milk",
    "Cheese: pasteurised; milk: 12 %": "cheese | milk",
    "made in Italy with milk, eggs": "made in italy with milk | eggs",
    "juice (for colour), soup (for the sauce: milk, cream)": "juice | soup(milk,cream)",
    "gluten-free oats": "oats",
    "sorbitol. Excessive consumption may produce laxative effects.": "sorbitol",
    "aspartame. Contains a source of phenylalanine.": "aspartame",
    "sugar, may have laxative effects, milk": "sugar | milk",
}


@pytest.mark.parametrize(("text", "expected"), CASES.items(), ids=CASES)
def test_a_label_is_split_into(text: str, expected: str) -> None:
    assert " | ".join(outline(part) for part in split(text)) == expected


def test_a_part_survives_being_stored() -> None:
    for part in split(
        "chocolate (sugar, lecithin (soya), E322), spices (including celery). May contain nuts."
    ):
        assert Part.from_json(part.to_json()) == part


def test_compounds_of_one_name_but_other_content_are_other_questions() -> None:
    one, other = split("chocolate (sugar), chocolate (milk)")
    assert one.key != other.key


def test_very_long_keys_are_cut_and_stay_distinct() -> None:
    one, other = (Part("x", f"{'long ' * 200}{end}") for end in "ab")
    assert len(one.key) < 330
    assert one.key != other.key


def test_brackets_without_end_do_not_exhaust_the_stack() -> None:
    assert split("a (" * 5000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Milch-Säure ", "milch saure"),
        ("ŒUFS", "oeufs"),
        ("Süßungsmittel", "sussungsmittel"),
        ("smør", "smor"),
        ("ﬂour", "flour"),
        ("E 965 (ii)", "e965ii"),
        ("e-420", "e420"),
    ],
)
def test_names_have_one_normal_form(text: str, expected: str) -> None:
    assert normalise(text) == expected
    assert normalise(expected) == expected


def test_e_numbers_are_found_in_names() -> None:
    assert e_numbers("sorbitol e420 and e965ii") == ("E420", "E965ii")
    assert bare_e_number("965(ii)") == "E965ii"
    assert bare_e_number("965 g") is None
