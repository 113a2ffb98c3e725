"""What `up` shows: its steps while it starts, one overview, then only what needs attention."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from tasks.running.logtail import LogTail, last_lines
from tasks.running.service import Running

COLOURS = ("cyan", "green", "yellow", "magenta", "blue")
SHOWN_LOG_LINES = 12


class Screen:
    """The terminal, or whatever standard output is. Colours follow NO_COLOR and the terminal.

    A terminal that has gone away is no reason to leave services running: from then on nothing is shown.
    """

    def __init__(self, *, verbose: bool) -> None:
        self._console = Console(highlight=False, markup=False)
        self._verbose = verbose
        self._tails: list[tuple[Running, LogTail]] = []
        self._quiet = True  # while it starts, the steps alone are shown

    def show(self, *things: RenderableType) -> None:
        """Print each on lines of its own; long lines are left to the terminal, so that they can be copied."""
        for thing in things:
            try:
                self._console.print(thing, soft_wrap=isinstance(thing, (str, Text)))
            except OSError:
                self.hang_up()

    def hang_up(self) -> None:
        """The terminal is gone. Python would turn its last flush into an exit code of its own."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        os.close(nowhere)

    @contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """One step of the start: moving while it lasts, then a line with how long it took."""
        begun = time.monotonic()
        try:
            with self._console.status(Text(doing)):
                yield
        except BaseException:
            self.show(Text.assemble(("✗", "red"), f" {doing}"))
            raise
        took = f" {time.monotonic() - begun:.1f} s"
        self.show(Text.assemble(("✓", "green"), f" {doing}", (took, "dim")))

    def trouble(self, what: str, log: Path) -> None:
        """Say what went wrong, with the end of the log that may know why."""
        self.show(Text(what, style="bold red"))
        for line in last_lines(log, SHOWN_LOG_LINES):
            self.show(Text(f"  {line}", style="dim"))
        self.show(Text(f"  the whole log: {near(log)}"))

    def follow(self, running: Running) -> None:
        """From now on, show what this service logs: warnings, or everything if `verbose`."""
        self._tails.append((running, LogTail(running.log)))

    def loud(self) -> None:
        """The start is over: show what deserves it from here on."""
        self.refresh()
        self._quiet = False

    def quiet(self) -> None:
        """The end has begun: the logs are full of farewells."""
        self.refresh()
        self._quiet = True

    def refresh(self) -> None:
        """Show what has been logged since the last call."""
        for position, (running, tail) in enumerate(self._tails):
            prefix = (f"{running.service.name:<9}│ ", COLOURS[position % len(COLOURS)])
            for line in tail.lines(only_warnings=not self._verbose):
                if self._verbose or not self._quiet:
                    self.show(Text.assemble(prefix, line))


def near(path: Path) -> str:
    """A path as one would type it here: relative if it is below the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
