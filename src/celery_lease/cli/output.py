"""What the commands share: tables that fit the terminal, JSON, colours, exit codes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from celery_lease._errors import LeaseError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from celery import Celery

FAILED = 1
STORE_UNAVAILABLE = 69  # EX_UNAVAILABLE
LOCKED = 75  # EX_TEMPFAIL: later it may work
INTERRUPTED = 130

#: Where nobody sees how wide the terminal is.
_WIDTH = 80


class Cell(NamedTuple):
    """A text in a table, and its colour."""

    text: str
    colour: str | None = None


class Output:
    """Where a command says what it has to say.

    Attributes:
        as_json: whether that is one JSON value on stdout.
    """

    def __init__(self, context: click.Context, *, as_json: bool) -> None:
        self.as_json = as_json
        # A pipe gets no colours anyway; `--no-color` is Celery's own option.
        no_colour = context.obj.no_color or os.environ.get("NO_COLOR")
        self._colour = False if no_colour else None

    def json(self, value: Any) -> None:
        """Print a value as JSON."""
        click.echo(json.dumps(value, default=_plain, ensure_ascii=False))

    def line(self, text: str = "", colour: str | None = None, *, err: bool = False) -> None:
        """Print one line."""
        click.echo(click.style(text, fg=colour) if colour else text, err=err, color=self._colour)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Cell | str]]) -> None:
        """Print a table that is no wider than the terminal."""
        cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        widths = fitting(
            [max(map(len, column)) for column in zip(head, *_texts(cells), strict=True)],
            shutil.get_terminal_size((_WIDTH, 24)).columns,
        )
        self.line(_row(list(head), widths).upper())
        for row in cells:
            styled = [
                click.style(shortened(cell.text, width).ljust(width), fg=cell.colour)
                if cell.colour
                else shortened(cell.text, width).ljust(width)
                for cell, width in zip(row, widths, strict=True)
            ]
            self.line("  ".join(styled).rstrip())

    def stop(self, code: int, error: str, said: str, **more: Any) -> NoReturn:
        """End the command with an exit code; `error` is a word for machines, `said` a sentence for people."""
        if self.as_json:
            self.json({"error": error, "detail": said, **more})
        else:
            self.line(said, "red", err=True)
        raise click.exceptions.Exit(code)


def command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """A subcommand: called with the app and its output, its own options after those."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @click.command(name, help=function.__doc__, context_settings={"help_option_names": ["-h", "--help"]})
        @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
        @click.pass_context
        def run(context: click.Context, /, *, as_json: bool, **options: Any) -> None:
            output = Output(context, as_json=as_json)
            app: Celery = context.obj.app
            try:
                app.loader.import_default_modules()
                function(app, output, **options)
            except StoreUnavailable as error:
                said = f"the lease store does not answer ({error})"
                output.stop(STORE_UNAVAILABLE, "lock_unavailable", said)
            except LeaseError as error:
                output.stop(FAILED, "lease_error", str(error))

        run.params = [*getattr(function, "__click_params__", ())[::-1], *run.params]
        return run

    return decorate


def fitting(widths: Sequence[int], total: int) -> list[int]:
    """The widths of columns, the widest of them cut until all fit, two blanks between them."""
    fit = list(widths)
    while sum(fit) + 2 * (len(fit) - 1) > total and max(fit) > 1:
        fit[fit.index(max(fit))] -= 1
    return fit


def shortened(text: str, width: int) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def ago(instant: datetime | None, now: datetime) -> str:
    """How long ago, for people."""
    return f"{span(now - instant)} ago" if instant else "never"


def span(length: timedelta) -> str:
    """A length of time in its largest unit."""
    seconds = max(length.total_seconds(), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def utc(instant: datetime | None) -> str:
    """An instant, for people."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC" if instant else "never"


def _row(texts: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(
        shortened(text, width).ljust(width) for text, width in zip(texts, widths, strict=True)
    ).rstrip()


def _texts(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    return [[cell.text for cell in row] for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
