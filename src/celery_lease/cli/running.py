"""`run`: carry a job out in this terminal, under the lease that a worker would take."""

from __future__ import annotations

import difflib
import inspect
import json
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import click

from celery_lease._errors import LeaseError, LeaseLost, Skipped, StoreUnavailable, describe_holder
from celery_lease._jobs import leased_tasks
from celery_lease._run import NothingToDo
from celery_lease._task import LeasedTask
from celery_lease._terminal import Progress, TerminalRun
from celery_lease.cli.output import (
    FAILED,
    INTERRUPTED,
    LOCKED,
    STORE_UNAVAILABLE,
    Output,
    command,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery import Celery

_BAR = 24


@command("run")
@click.argument("name")
@click.option("--drain", is_flag=True, help="Many passes under one lease, until nothing is left.")
@click.option("--dry-run", is_flag=True, help="Call the task with dry_run=True.")
@click.option("--no-lock", is_flag=True, help="Run although the lease is held, or cannot be had.")
@click.option("--yes", is_flag=True, help="Do not ask before --no-lock.")
@click.option("--arg", "pairs", multiple=True, metavar="K=V", help="An argument; V is JSON, or else text.")
def run(
    app: Celery,
    output: Output,
    name: str,
    pairs: Sequence[str],
    *,
    drain: bool,
    dry_run: bool,
    no_lock: bool,
    yes: bool,
) -> None:
    """Carry the task NAME out here, under its lease, without a broker.

    Ctrl-C lets the current item of work end, gives the lease back and stops; a second one stops at once.

    \b
    Exit codes: 0 it ran; 1 it failed; 75 not run, the lease is held; 69 not run, the lease store
    does not answer; 130 interrupted.
    """  # noqa: D301 - click's own escape
    task, kwargs = _task(app, name), _arguments(pairs)
    if dry_run:
        kwargs["dry_run"] = True
        _refuse_without_dry_run(task)
    _check_arguments(task, kwargs)
    if no_lock:
        _confirm_no_lock(output, name, yes=yes)
    terminal = TerminalRun(task, kwargs, guarded=not no_lock, dry=dry_run)
    _open(terminal, output, name)
    _execute(terminal, output, name, drain=drain)


def _open(terminal: TerminalRun, output: Output, name: str) -> None:
    try:
        terminal.open()
    except Skipped as skipped:
        _not_run(output, name, skipped)
    except NothingToDo as nothing:
        output.stop(FAILED, "nothing_to_do", f"not run: {nothing}")
    except KeyboardInterrupt:
        output.stop(INTERRUPTED, "interrupted", f"{name}: interrupted before it began")


def _not_run(output: Output, name: str, skipped: Skipped) -> None:
    about: dict[str, Any] = {"job": name, "outcome": f"skipped_{skipped.reason}", "reason": skipped.reason}
    about |= {"holder": skipped.holder or None, "result": None}
    if skipped.reason == "locked":
        said = f"held by {describe_holder(skipped.holder)}; --no-lock overrides"
        output.stop(LOCKED, "locked", f"not run: locked ({said})", **about)
    said = f"{skipped.detail}; --no-lock overrides"
    output.stop(STORE_UNAVAILABLE, "lock_unavailable", f"not run: lock_unavailable ({said})", **about)


def _execute(terminal: TerminalRun, output: Output, name: str, *, drain: bool) -> None:
    bar, began = _Bar(output, shown=drain and not output.as_json), time.monotonic()

    def said_to_stop() -> None:
        output.line("stopping after the current item (Ctrl-C again: at once)", "yellow", err=True)

    try:
        with terminal.interruptible(said_to_stop):
            progress = terminal.execute(drain=drain, after_pass=bar.draw)
    except KeyboardInterrupt:
        bar.end()
        output.stop(INTERRUPTED, "interrupted", f"{name}: interrupted; the lease is given back", job=name)
    except Exception as error:  # noqa: BLE001 - whatever the body raises
        bar.end()
        if not output.as_json:
            traceback.print_exception(error)
        lost = isinstance(error, LeaseLost)
        word, said = ("lost", "lost its lease") if lost else ("failed", "failed")
        output.stop(FAILED, word, f"{name} {said}: {type(error).__name__}: {error}", job=name, outcome=word)
    bar.end()
    _said_at_the_end(terminal, output, name, progress, time.monotonic() - began, drain=drain)


def _said_at_the_end(
    terminal: TerminalRun, output: Output, name: str, progress: Progress, seconds: float, *, drain: bool
) -> None:
    outcome = terminal.outcome or "unconfirmed"
    if output.as_json:
        answer = {"job": name, "outcome": outcome, "reason": None, "holder": None, "result": progress.result}
        answer |= {"passes": progress.passes, "worked": progress.worked, "backlog": progress.backlog}
        output.json({**answer, "stopped": progress.stopped if drain else None, "seconds": round(seconds, 3)})
    else:
        _print_end(output, name, outcome, progress, seconds, drain=drain)
    if progress.stopped == "interrupted":
        raise click.exceptions.Exit(INTERRUPTED)
    if outcome == "lost":
        raise click.exceptions.Exit(FAILED)


def _print_end(
    output: Output, name: str, outcome: str, progress: Progress, seconds: float, *, drain: bool
) -> None:
    parts = [f"{progress.passes} passes"] if drain else []
    parts += [] if progress.worked is None else [f"worked {progress.worked}"]
    parts += [] if progress.backlog is None else [f"left {progress.backlog}"]
    parts.append(f"{seconds:.1f} s")
    output.line(f"{name}: {outcome} ({', '.join(parts)})", "green" if outcome != "lost" else "red")
    if drain:
        output.line(
            f"stopped, because {progress.stopped}" if progress.stopped != "interrupted" else "interrupted"
        )
    elif progress.result is not None and not isinstance(progress.result, int):
        output.line(f"result: {json.dumps(progress.result, default=str, ensure_ascii=False)}")
    if outcome == "lost":
        output.line("another owner was seen while it ran: see `history`", "red", err=True)
    if outcome == "unconfirmed":
        output.line("the lease store has not confirmed the end; the lease ends by itself", "yellow", err=True)


class _Bar:
    """One line that is drawn anew after each pass; without a terminal, one line a pass."""

    def __init__(self, output: Output, *, shown: bool) -> None:
        self._output = output
        self._shown = shown
        self._is_terminal = sys.stderr.isatty()
        self._is_open = False

    def draw(self, progress: Progress) -> None:
        if not self._shown:
            return
        line = _bar_line(progress)
        if self._is_terminal:
            click.echo(f"\r{line:<79}", nl=False, err=True)
            self._is_open = True
        else:
            self._output.line(line, err=True)

    def end(self) -> None:
        if self._is_open:
            click.echo(err=True)
            self._is_open = False


def _bar_line(progress: Progress) -> str:
    worked, left = progress.worked or 0, progress.backlog
    said = f"pass {progress.passes}: {worked} done, {progress.rate:.1f}/s"
    if left is None:
        return said
    share = worked / (worked + left) if worked + left else 1.0
    filled = round(share * _BAR)
    to_go = f", {left / progress.rate:.0f} s to go" if left and progress.rate else ""
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%}  {said}, {left} left{to_go}"


def _task(app: Celery, name: str) -> LeasedTask:
    task = app.tasks.get(name)
    if isinstance(task, LeasedTask):
        return task
    if task is not None:
        raise click.UsageError(f"{name!r} is a plain task without a lease; `celery call {name}` sends it")
    known = sorted(str(each.name) for each in leased_tasks(app))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known) or 'none'}"
    raise click.UsageError(f"no leased task is called {name!r}; {hint}")


def _arguments(pairs: Sequence[str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.isidentifier():
            raise click.BadParameter(f"{pair!r} is not of the form name=value", param_hint="--arg")
        try:
            arguments[key] = json.loads(value)
        except ValueError:
            arguments[key] = value
    return arguments


def _refuse_without_dry_run(task: LeasedTask) -> None:
    parameters = inspect.signature(task.run).parameters.values()
    if not any(each.name == "dry_run" or each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        raise click.UsageError(
            f"{task.name} cannot be tried out: its function takes no argument dry_run. Nothing was run"
        )


def _check_arguments(task: LeasedTask, kwargs: dict[str, Any]) -> None:
    try:
        inspect.signature(task.run).bind(**kwargs)
        task.lease_name((), kwargs)
    except (TypeError, LeaseError) as error:
        if isinstance(error, StoreUnavailable):
            raise
        raise click.UsageError(f"{task.name}: {error}; give its arguments with --arg name=value") from error


def _confirm_no_lock(output: Output, name: str, *, yes: bool) -> None:
    warning = (
        f"{name} will run WITHOUT its lease: it may overlap with another run, and pay twice. Fenced data "
        "refuses the writes of the older of the two. The ledger will say `unguarded`"
    )
    output.line(warning, "red", err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("--no-lock needs --yes where nobody can be asked")
    click.confirm("Run without the lease?", abort=True, err=True)
