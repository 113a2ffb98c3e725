"""The overview at the end of the start: what runs where, what was curated, where to look next."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tasks.facts import State
from tasks.running.instance import Process
from tasks.running.screen import near
from tasks.running.service import Running

SHOWN_ANSWERS = 12


def what_runs(services: Sequence[Running]) -> Panel:
    """Name, place, pid and log of each service."""
    table = Table.grid(padding=(0, 2))
    for running in services:
        service = running.service
        table.add_row(
            Text(service.name, style="bold"),
            Text(service.shows),
            Text(f"pid {running.pid}", style="dim"),
            Text(near(running.log), style="dim"),
        )
    return Panel(table, title="running", title_align="left", border_style="green", expand=False)


def what_runs_already(processes: Sequence[Process], data: Path) -> list[RenderableType]:
    """What another `up` on the same folder runs, itself first; nothing is known of one that still starts."""
    first = f" (pid {processes[0].pid})" if processes else ""
    return [
        Text(f"already running in {near(data)}{first}; it was left alone", style="bold yellow"),
        *(Text(f"  {process.name:<10}{process.shows}  pid {process.pid}") for process in processes[1:]),
        Text("Stop it with Ctrl-C in its terminal, or start this one with another --data folder."),
    ]


def how_it_ended(outcome: Mapping[str, object]) -> Text:
    """The counts of a job's first run, or how else it ended."""
    job, state, result = outcome["job"], outcome["state"], outcome["result"]
    if state == "SUCCESS" and isinstance(result, dict):
        counts = ", ".join(f"{count} {word}" for word, count in result.items() if type(count) is int)
        return Text.assemble((f"{job} just now: ", "bold green"), counts)
    if state in {"PENDING", "STARTED", "RETRY"}:
        return Text(f"the first {job} is not finished ({state}); it goes on in the worker", style="yellow")
    return Text(f"the first {job} ended as {state}: {result}", style="bold red")


def some_answers(answers: Sequence[Mapping[str, object]]) -> Table:
    """A few answers of every state there is, a line each."""
    table = Table(title=f"{len(answers)} answers so far", title_justify="left", title_style="bold", box=None)
    for column in answers[0]:
        # In a narrow terminal the others are cut, and never the word itself. (Where no column may wrap, rich
        # shortens them all.)
        is_word = column == "state"
        narrowest = max(map(len, State)) if is_word else None
        style = "dim" if column == "reason" else ""
        table.add_column(column, no_wrap=is_word, min_width=narrowest, style=style)
    for answer in _varied(answers)[:SHOWN_ANSWERS]:
        table.add_row(*(Text(str(value), no_wrap=True, overflow="ellipsis") for value in answer.values()))
    return table


def _varied(answers: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The first answer of every state, then the second of every state, and so on."""
    seen: Counter[object] = Counter()
    turns = []
    for answer in answers:
        seen[answer["state"]] += 1
        turns.append(seen[answer["state"]])
    return [answer for _, answer in sorted(zip(turns, answers, strict=True), key=itemgetter(0))]


@dataclass(frozen=True)
class Places:
    """Where things are."""

    flower: str
    web: str
    receiver: str
    """Of announcements; empty: they go where the environment says."""
    secret: str
    """Of the web app, if it is this machine's own; empty: the one in the environment, which is not shown."""
    data: Path


def where_to_look(environment: Mapping[str, str], places: Places) -> list[RenderableType]:
    """Commands and addresses to try next, as they can be pasted.

    Args:
        environment: what a command in another terminal must be told of this installation.
        places: where things are.
    """
    told = "".join(f"{name}={value} " for name, value in environment.items())
    python = near(Path(sys.executable))
    celery = near(Path(sys.executable).with_name("celery"))
    folder = "" if near(places.data) == ".dev" else f"TASKS_DATA={places.data} "  # it looks there by itself
    password = places.secret or "that of CRON_SECRET"
    announced = [Text.assemble("announced     ", (f"{places.receiver}/", "cyan"))] if places.receiver else []
    return [
        Text.assemble("the answers   ", (f"{places.web}/answers", "cyan")),
        *announced,
        Text.assemble("status page   ", (f"{places.web}/", "cyan"), f"  any user, password: {password}"),
        Text.assemble("every run     ", (f"{places.flower}/tasks", "cyan")),
        Text.assemble("in a terminal ", (f"{folder}{python} -m tasks answers", "cyan")),
        Text.assemble("the jobs      ", (f"{told}{folder}{celery} -A tasks lease ls", "cyan")),
        Text.assemble("to stop       ", ("Ctrl-C", "cyan"), " (running tasks may finish; the data stays)"),
    ]
