"""Label files: what is read, what is refused, and that one never costs the other."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.labels import Label, Refused, read, shipped

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> Path:
        path = tmp_path / "labels"
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


def test_a_csv_file_is_read(write: Write) -> None:
    file = write('id,language,ingredients\n1,en,"sugar, salt"\n2,de,Zucker\n')
    assert list(read(file)) == [Label("1", "sugar, salt", "en"), Label("2", "Zucker", "de")]


def test_a_spreadsheet_s_semicolons_and_byte_order_mark_are_read(write: Write) -> None:
    file = write("\ufeffid;ingredients\n1;sugar, salt\n")
    assert list(read(file)) == [Label("1", "sugar, salt")]


@pytest.mark.parametrize(
    "text",
    [
        '[{"id": 1, "ingredients": "sugar"}, {"id": "2", "ingredients": "salt"}]',
        '{"id": 1, "ingredients": "sugar"}\n\n{"id": "2", "ingredients": "salt"}\n',
        ' \n [ {"id": 1,"ingredients":"sugar"}\n,{"id":"2","ingredients":"salt"} ]\n',
    ],
)
def test_json_is_read_as_a_list_and_as_lines(write: Write, text: str) -> None:
    assert list(read(write(text))) == [Label("1", "sugar"), Label("2", "salt")]


def test_a_long_json_list_is_read_in_pieces(write: Write) -> None:
    rows = [{"id": f"{number}", "ingredients": "sugar, salt " * 20} for number in range(1000)]
    assert len(list(read(write(json.dumps(rows))))) == 1000


BAD_ROWS = {
    "no id": (",sugar", "field id, '': it is empty"),
    "no ingredients": ("2,", "field ingredients, '': it is empty"),
    "nothing in it": ('2,"., ()"', "names no ingredient"),
    "a long id": (f"{'x' * 201},sugar", "it has 201 characters; shorten it to 200"),
    "a comma too many": ("2,sugar,salt", "1 more fields than the header"),
    "a broken quote": ('2,"sugar"x', "put a field with a quote"),
}


@pytest.mark.parametrize(("row", "says"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_refused_and_the_others_are_read(write: Write, row: str, says: str) -> None:
    first, bad, last = read(write(f"id,ingredients\n1,sugar\n{row}\n3,salt\n"))
    assert isinstance(bad, Refused)
    assert bad.row == 2
    assert says in bad.why
    assert [first, last] == [Label("1", "sugar"), Label("3", "salt")]


BAD_JSON = {
    "no object": ("[1]", "'1' is no JSON object"),
    "no text": ('{"id": "1", "ingredients": ["sugar"]}', "field ingredients, \"['sugar']\": it is no text"),
    "cut off": ('[{"id": "1", "ingr', "nothing after this row was read"),
    "a broken line": ('{"id": }', "write one object per line"),
    "very deep": ('{"id": ' + "[" * 100_000, "no JSON"),
}


@pytest.mark.parametrize(("text", "says"), BAD_JSON.values(), ids=BAD_JSON)
def test_bad_json_is_refused(write: Write, text: str, says: str) -> None:
    (bad,) = read(write(text))
    assert isinstance(bad, Refused)
    assert says in bad.why


def test_a_file_without_the_right_header_is_refused(write: Write) -> None:
    (bad,) = read(write("name,text\n1,sugar\n"))
    assert isinstance(bad, Refused)
    assert "lacks the column id and ingredients" in bad.why


def test_an_empty_file_is_refused(write: Write) -> None:
    (bad,) = read(write(""))
    assert isinstance(bad, Refused)


def test_bytes_that_are_no_utf_8_are_refused_row_by_row(tmp_path: Path) -> None:
    file = tmp_path / "latin.csv"
    file.write_bytes("id,ingredients\n1,süß\n2,sugar\n".encode("latin-1"))
    bad, good = read(file)
    assert isinstance(bad, Refused)
    assert "save the file as UTF-8" in bad.why
    assert good == Label("2", "sugar")


def test_the_shipped_labels_are_sound_and_many() -> None:
    labels = [row for row in shipped() if isinstance(row, Label)]
    assert len(labels) == len(list(shipped())) >= 80
    assert len({label.id for label in labels}) == len(labels)
    assert {"en", "en-AU", "en-US", "de", "fr", "es", "it", "nl"} <= {label.language for label in labels}


@pytest.mark.parametrize("character", ["\\u0000", "\\ud800"])
def test_what_no_database_takes_is_refused(write: Write, character: str) -> None:
    file = write('{"id": 1, "ingredients": "su' + character + 'gar"}\n{"id": 2, "ingredients": "salt"}\n')
    bad, good = read(file)
    assert isinstance(bad, Refused)
    assert "NUL character or half a surrogate pair; take it out" in bad.why
    assert good == Label("2", "salt")
