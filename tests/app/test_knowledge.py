"""Finding an ingredient's rows in the knowledge."""

from importlib.resources import files

import pytest

from tasks.facts import NOTHING_KNOWN, Fodmap, Gluten, Lactose
from tasks.ingredients import split
from tasks.knowledge import Knowledge, KnowledgeError, Known, shipped


def known(text: str) -> Known:
    (part,) = split(text)
    return shipped().known(part)


def tables() -> dict[str, str]:
    folder = files("tasks").joinpath("data")
    names = ("ingredients.csv", "names.csv", "additives.csv", "words.csv")
    return {name: folder.joinpath(name).read_text(encoding="utf-8") for name in names}


# Each of these holds, as a substring, the name of something it is not.
TRAPS = {
    "buckwheat flour": ["buckwheat"],
    "Buchweizenmehl": ["buckwheat"],
    "harina de trigo sarraceno": ["buckwheat"],
    "maltodextrin": ["maltodextrin"],
    "maltol": ["maltol"],
    "E636": ["maltol"],
    "isomaltulose": [],
    "potassium sorbate": ["potassium sorbate"],
    "E202": ["potassium sorbate"],
    "polysorbate 80": ["sorbitan esters"],
    "E433": ["sorbitan esters"],
    "lactic acid": ["lactic acid"],
    "Milchsäure": ["lactic acid"],
    "E270": ["lactic acid"],
    "calcium lactate": ["lactates"],
    "E325": ["lactates"],
    "sodium stearoyl-2-lactylate": ["stearoyl lactylate"],
    "E481": ["stearoyl lactylate"],
    "lactitol": ["lactitol"],
    "E966": ["lactitol"],
    "monosodium glutamate": ["monosodium glutamate"],
    "E621": ["monosodium glutamate"],
    "glutinous rice": ["glutinous rice"],
    "cocoa butter": ["cocoa butter"],
    "Kakaobutter": ["cocoa butter"],
    "beurre de cacao": ["cocoa butter"],
    "peanut butter": ["peanut"],
    "Erdnussbutter": ["peanut"],
    "coconut milk": ["coconut milk"],
    "lait de coco": ["coconut milk"],
    "rice malt syrup": ["rice malt syrup"],
    "glucose syrup": ["glucose syrup"],
    "glucose-fructose syrup": ["glucose-fructose syrup"],
    "sirop de glucose-fructose": ["glucose-fructose syrup"],
    "red pepper": ["bell pepper"],
    "water chestnut": [],
    "garlic oil": ["garlic-infused oil"],
    "malt vinegar": ["malt vinegar"],
    "wheat starch": ["wheat starch"],
    "spring onion": ["spring onion"],
    "soya lecithin": ["lecithin"],
    "soybean oil": ["vegetable oil"],
    "isomalt": ["isomalt"],
    "almond milk": ["almond"],
}


@pytest.mark.parametrize(("text", "rows"), TRAPS.items(), ids=TRAPS)
def test_substrings_do_not_match(text: str, rows: list[str]) -> None:
    assert [row.name for row in known(text).rows] == rows


def test_every_word_is_used_once() -> None:
    assert [row.name for row in known("garlic powder onion").rows] == ["garlic", "onion"]


def test_what_is_only_partly_known_is_not_cleared() -> None:
    carrot = known("carrot dextrinate")
    assert not carrot.complete
    assert carrot.facts == NOTHING_KNOWN


def test_words_that_change_nothing_are_passed_over() -> None:
    assert known("organic dried carrots").complete


@pytest.mark.parametrize(
    ("text", "gluten"),
    [
        ("starch (wheat)", Gluten.DEPENDS),
        ("modified starch (wheat)", Gluten.CONTAINS),
        ("modified starch (maize)", Gluten.DEPENDS),
        ("glucose syrup (wheat)", Gluten.EXEMPT),
        ("Glukosesirup (Weizen)", Gluten.EXEMPT),
        ("flour (wheat)", Gluten.CONTAINS),
        ("hydrolysed vegetable protein (wheat)", Gluten.CONTAINS),
        ("lecithin (soya)", Gluten.NONE),
    ],
)
def test_a_source_counts_for_gluten(text: str, gluten: Gluten) -> None:
    assert known(text).facts.gluten is gluten


def test_a_source_is_no_component() -> None:
    assert known("butter (milk)").facts.lactose is Lactose.LOW
    assert known("lecithin (soya)").facts.fodmap == {Fodmap.NONE}


def test_a_compound_is_as_serious_as_its_children() -> None:
    sauce = known("dressing (water, garlic (E330), milk)")
    assert sauce.facts.fodmap == {Fodmap.FRUCTAN, Fodmap.LACTOSE}
    assert sauce.complete


def test_a_complete_list_replaces_a_name_that_does_not_tell() -> None:
    assert known("spices (turmeric, cumin)").facts.fodmap == {Fodmap.NONE}
    assert Fodmap.UNKNOWN in known("spices (including turmeric)").facts.fodmap


def test_nothing_is_known_of_what_may_be_inside() -> None:
    _, trace = split("sugar. May contain milk.")
    assert shipped().known(trace) == Known(NOTHING_KNOWN)


def test_an_additive_without_a_row_is_named_but_not_known() -> None:
    assert shipped().additive("E250") == "sodium nitrite"
    assert shipped().additive("E965ii") == "maltitols"
    assert shipped().additive("E9999") is None
    assert known("E250").facts == NOTHING_KNOWN
    assert [row.name for row in known("E322(i)").rows] == ["lecithin"]


def test_the_version_follows_the_content() -> None:
    same, other = tables(), tables()
    other["names.csv"] += "rice,xx,rijs\n"
    assert Knowledge.of(same).version == shipped().version
    assert Knowledge.of(other).version != shipped().version


@pytest.mark.parametrize(
    ("file", "row", "says"),
    [
        ("names.csv", "rice,xx,Weizen\n", "'Weizen' leads to 'wheat' and to 'rice'"),
        ("names.csv", "ryce,xx,Reiz\n", "no row 'ryce'"),
        ("ingredients.csv", "x,,,fruktan,none,none,high,,GK\n", "'x': 'fruktan' is not a valid Fodmap"),
    ],
)
def test_contradictory_files_are_refused(file: str, row: str, says: str) -> None:
    changed = tables()
    changed[file] += row
    with pytest.raises(KnowledgeError) as refused:
        Knowledge.of(changed)
    assert says in str(refused.value)
