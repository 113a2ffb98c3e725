"""Label files: CSV or JSON in, checked labels out, one at a time.

A CSV file has a header with the columns of `Label`, separated by commas or semicolons. A JSON file holds one
list of objects, or one object per line. Files are UTF-8. A bad row never costs the others: it comes out as
`Refused`, with what is wrong and the way out.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from tasks.ingredients import Part, split
from tasks.text import storable

_COLUMNS = ("id", "language", "product", "contributor", "ingredients")
_REQUIRED = ("id", "ingredients")
_MOST_CHARACTERS = {"id": 200, "language": 20, "product": 500, "contributor": 200, "ingredients": 20_000}
_DEFAULTS = {"language": "", "product": "", "contributor": "anonymous"}
# The sign that Python reads for bytes that are no UTF-8.
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Label:
    """What is printed on one product.

    Attributes:
        id: as the contributor names it; loading it again replaces it.
        ingredients: the list of ingredients as printed.
        language: its language, as on the label; may be empty.
        product: what it is; may be empty.
        contributor: who sent it in.
    """

    id: str
    ingredients: str
    language: str = ""
    product: str = ""
    contributor: str = "anonymous"

    def parts(self) -> list[Part]:
        """Return the ingredients."""
        return split(self.ingredients)


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that is no label: where it is, and what to do about it."""

    row: int
    why: str


def read(path: Path) -> Iterator[Label | Refused]:
    """Yield what each row of a file holds.

    Raises:
        OSError: the file cannot be opened.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        yield from _read(file)


def shipped() -> Iterator[Label | Refused]:
    """Yield the labels in this package's data folder."""
    yield from _read(StringIO(files("tasks").joinpath("data", "labels.csv").read_text(encoding="utf-8")))


def _read(file: TextIO) -> Iterator[Label | Refused]:
    first = _first_character(file)
    rows = {"[": _json_list, "{": _json_lines}.get(first, _csv_rows)
    for number, row in enumerate(rows(file), start=1):
        yield Refused(number, row) if isinstance(row, str) else _label(number, row)


def _first_character(file: TextIO) -> str:
    """Return the first character that is no blank, "" for an empty file; the file is at its start again."""
    first = next((character for line in file for character in line if not character.isspace()), "")
    file.seek(0)
    return first


# --- formats: each yields the rows as mappings, or a text that says why a row is none -----------------------


def _csv_rows(file: TextIO) -> Iterator[Mapping[str, Any] | str]:
    header = file.readline()
    file.seek(0)
    # Spreadsheets write semicolons where the comma is the decimal sign.
    reader = csv.DictReader(
        file, delimiter=";" if header.count(";") > header.count(",") else ",", strict=True
    )
    missing = [name for name in _REQUIRED if name not in _header(reader)]
    if missing:
        yield f"the header lacks the column {' and '.join(missing)}; it must name {' and '.join(_REQUIRED)}"
        return
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"no CSV: {error}; put a field with a quote, a comma or a line break into quotes"
        else:
            yield _one_csv_row(row)


def _header(reader: "csv.DictReader[str]") -> Sequence[str]:
    try:
        return reader.fieldnames or ()
    except csv.Error:
        return ()


def _one_csv_row(row: Mapping[Any, Any]) -> Mapping[str, Any] | str:
    # The reader collects what is beyond the header under None, and fills a short row up with None.
    if None in row:
        return f"{len(row[None])} more fields than the header; put a field that holds a comma into quotes"
    return {name: value for name, value in row.items() if name is not None and value is not None}


def _json_lines(file: TextIO) -> Iterator[Mapping[str, Any] | str]:
    for line in file:
        if line.strip():
            yield _parsed(line)


def _parsed(text: str) -> Mapping[str, Any] | str:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        return f"no JSON: {error}; write one object per line, or one list of objects"
    return value if isinstance(value, dict) else f"{_shown(text)} is no JSON object"


_CHUNK_CHARACTERS = 65_536


def _json_list(file: TextIO) -> Iterator[Mapping[str, Any] | str]:
    """Read one element at a time, so that a large file never has to be in memory as a whole."""
    decoder, buffer = json.JSONDecoder(), ""
    file.read(_position_after("[", file))
    while True:
        buffer = buffer.lstrip().removeprefix(",").lstrip()
        if buffer.startswith("]"):
            return
        try:
            value, end = decoder.raw_decode(buffer)
        except (json.JSONDecodeError, RecursionError) as error:
            more = file.read(_CHUNK_CHARACTERS)
            if not more:
                yield f"no JSON: {error}; nothing after this row was read"
                return
            buffer += more
            continue
        buffer = buffer[end:]
        yield value if isinstance(value, dict) else f"{_shown(json.dumps(value))} is no JSON object"


def _position_after(character: str, file: TextIO) -> int:
    position = file.read(_CHUNK_CHARACTERS).index(character) + 1
    file.seek(0)
    return position


# --- checking -----------------------------------------------------------------------------------------------


def _label(number: int, row: Mapping[str, Any]) -> Label | Refused:
    # A number is a sensible id, in JSON.
    given = {name: str(value) if isinstance(value, int) else value for name, value in row.items()}
    values = {name: given.get(name) or _DEFAULTS.get(name, "") for name in _COLUMNS}
    for name, value in values.items():
        why = _wrong(name, value)
        if why:
            return Refused(number, f"field {name}, {_shown(str(value))}: {why}")
    label = Label(**{name: value.strip() for name, value in values.items()})
    if not label.parts():
        return Refused(
            number, f"field ingredients, {_shown(label.ingredients)}: it names no ingredient; write the list"
        )
    return label


def _wrong(name: str, value: Any) -> str | None:
    if not isinstance(value, str):
        return "it is no text; put it into quotes"
    if name in _REQUIRED and not value.strip():
        return "it is empty; fill it in, or leave the row out"
    if len(value) > _MOST_CHARACTERS[name]:
        return f"it has {len(value)} characters; shorten it to {_MOST_CHARACTERS[name]}"
    if storable(value) != value:
        return "it holds a NUL character or half a surrogate pair; take it out"
    if _UNREADABLE in value:
        return "it holds bytes that are no UTF-8; save the file as UTF-8"
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")
