"""What the documentation says of tests: that there are such."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FAILURES = ROOT / "docs" / "explanation" / "failure-table.md"

NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@cache
def functions_of(file: Path) -> frozenset[str]:
    """The names of the test functions in a file."""
    tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def rows(page: Path) -> list[str]:
    """The rows of a page's tables, without their heads."""
    lines = page.read_text().splitlines()
    return [
        line
        for line, before in zip(lines[1:], lines, strict=False)
        if line.startswith("|") and before.startswith("|") and not set(line) <= set("|- :")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    named = NAMED_TEST.findall(page.read_text())
    assert [f"{file}::{test}" for file, test in named if test not in functions_of(ROOT / file)] == []


def test_every_row_of_the_failure_table_names_its_test() -> None:
    table = rows(FAILURES)
    assert len(table) > 40
    assert [row for row in table if not NAMED_TEST.search(row.rsplit("|", 2)[1])] == []


def test_every_row_of_the_failure_table_is_complete() -> None:
    for row in rows(FAILURES):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 6, row
        assert all(cells), row
