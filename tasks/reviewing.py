"""`python -m tasks review`: the list of what is left to a human, and a person's word on each."""

import getpass
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks import review as queue
from tasks.console import the_store
from tasks.engine import Answer
from tasks.facts import Facts, Fodmap, Gluten, Lactose
from tasks.review import NotOpen, Open
from tasks.store import Store

F = TypeVar("F", bound=Callable[..., Any])


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of a table.")
@click.option("--limit", type=click.IntRange(min=1), help="Show so many at most.", show_default="all")
@click.pass_context
def review(context: click.Context, limit: int | None, *, as_json: bool) -> None:
    """List the ingredients that are left to a human, or settle one: accept, answer or reject it.

    What is settled stays so: nobody is asked about it again.
    """
    if context.invoked_subcommand:
        return
    with the_store() as store:
        found = queue.waiting(store, limit)
    if as_json:
        click.echo(json.dumps([each._asdict() for each in found], ensure_ascii=False))
    elif found:
        Console().print(_table(found))
    else:
        click.echo("nothing waits for a human")


def _table(found: Sequence[Open]) -> Table:
    table = Table("id", "ingredient", "why", "proposed", box=None, header_style="bold")
    for each in found:
        # As `Text`: the brackets in the name of a compound would be read as markup.
        table.add_row(*(Text(str(value)) for value in each))
    return table


def _about_one(command: F) -> F:
    """Give a command the id of an ingredient and who speaks."""
    by = click.option("--by", default=getpass.getuser, help="Who says so.", show_default="your login name")
    return by(click.argument("ingredient_id", metavar="ID", type=int)(command))


@review.command()
@_about_one
def accept(ingredient_id: int, by: str) -> None:
    """Make the proposal for ingredient ID its answer, as it was proposed."""
    with _settling() as store:
        _said(ingredient_id, queue.accept(store, ingredient_id, by))


@review.command()
@_about_one
@click.option("--reason", default="", help="Why; kept with the rejection.")
def reject(ingredient_id: int, reason: str, by: str) -> None:
    """Leave ingredient ID without an answer."""
    with _settling() as store:
        queue.reject(store, ingredient_id, reason, by)
    click.echo(f"{ingredient_id}: rejected")


def _choice(values: type[StrEnum]) -> click.Choice[str]:
    return click.Choice([value.value for value in values])


@review.command()
@_about_one
@click.option("--fodmap", type=_choice(Fodmap), multiple=True, required=True, help="May be given repeatedly.")
@click.option("--gluten", type=_choice(Gluten), required=True)
@click.option("--lactose", type=_choice(Lactose), required=True)
@click.option("--e-number", help="Such as E420.")
def answer(
    ingredient_id: int, fodmap: Sequence[str], gluten: str, lactose: str, e_number: str | None, by: str
) -> None:
    """Answer for ingredient ID yourself."""
    classes = frozenset(map(Fodmap, fodmap))
    if len(classes) > 1 and classes & {Fodmap.NONE, Fodmap.UNKNOWN}:
        raise click.UsageError("--fodmap none and --fodmap unknown stand alone")
    facts = Facts(classes, Gluten(gluten), Lactose(lactose))
    with _settling() as store:
        _said(ingredient_id, queue.answer(store, ingredient_id, facts, e_number, by))


@contextmanager
def _settling() -> Iterator[Store]:
    try:
        with the_store() as store:
            yield store
    except NotOpen as error:
        raise click.ClickException(str(error)) from error


def _said(ingredient_id: int, given: Answer) -> None:
    click.echo(f"{ingredient_id}: {given.state} ({given.reason})")
