"""`python -m tasks`: the application's own commands."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.console import the_store
from tasks.labels import Label, Refused, read, shipped
from tasks.reviewing import review
from tasks.stating import statement
from tasks.store import Curated, Store
from tasks.up import up

_STYLES = {"avoid": "red", "caution": "yellow", "no trigger known": "green"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Curate food ingredients: what is known about FODMAPs, gluten and lactose in them.

    Labels go in with `load`; the job `curation`, which the scheduler runs every 15 minutes, answers their
    ingredients; `answers` shows them, `review` what was left to you. `up` runs all of it on this machine.

    Not medical advice.
    """


main.add_command(up)
main.add_command(review)
main.add_command(statement)


class Loaded(NamedTuple):
    """What came of the rows of one file."""

    labels: int
    new: int
    changed: int
    ingredients: int
    queued: int
    refused: int

    def __str__(self) -> str:
        return (
            f"{self.labels} labels ({self.new} new, {self.changed} changed), "
            f"{self.ingredients} ingredients ({self.queued} new), {self.refused} rows refused"
        )


@main.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def load(files: Sequence[Path]) -> None:
    """Load labels from CSV or JSON FILES; without one, the labels that come with this program.

    A row needs an id and the ingredients as printed; language, product and contributor are welcome. Loading
    the same rows again changes nothing. Rows that are refused are named on stderr, and the exit code is then
    1.
    """
    sources = {str(file): read(file) for file in files} or {"the labels that come with it": shipped()}
    refused = 0
    with the_store() as store:
        for name, rows in sources.items():
            loaded = _load(store, name, rows)
            refused += loaded.refused
            click.echo(f"{name}: {loaded}")
    if refused:
        raise SystemExit(1)


def _load(store: Store, name: str, rows: Iterator[Label | Refused]) -> Loaded:
    labels, refused = [], 0
    for row in rows:
        if isinstance(row, Refused):
            refused += 1
            click.echo(f"{name}: row {row.row} refused: {row.why}", err=True)
        else:
            labels.append(store.add_label(row, row.parts()))
    states = [added.label for added in labels]
    return Loaded(
        labels=len(labels),
        new=states.count("new"),
        changed=states.count("changed"),
        ingredients=sum(added.ingredients for added in labels),
        queued=sum(added.queued for added in labels),
        refused=refused,
    )


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of a table.")
@click.option("--limit", type=click.IntRange(min=1), help="Show so many at most.", show_default="all")
def answers(limit: int | None, *, as_json: bool) -> None:
    """Show the curated answers: ingredient, state, reason."""
    with the_store() as store:
        found = store.answers(limit)
    if as_json:
        click.echo(json.dumps([answer._asdict() for answer in found], ensure_ascii=False))
    elif found:
        Console().print(_table(found))
    else:
        click.echo("no answers yet; `python -m tasks load` loads labels, the job `curation` answers them")


def _table(found: Sequence[Curated]) -> Table:
    table = Table("ingredient", "state", "reason", box=None, header_style="bold")
    for answer in found:
        # As `Text`: the brackets in the name of a compound would be read as markup.
        state = Text(answer.state, style=_STYLES.get(answer.state, "dim"))
        table.add_row(Text(answer.ingredient), state, Text(answer.reason))
    return table


if __name__ == "__main__":
    main(prog_name="python -m tasks")
