"""`check`: print the checkup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from celery_lease._checkup import JobCheck, examine
from celery_lease.cli.output import FAILED, Cell, Output, command, span

if TYPE_CHECKING:
    from celery import Celery


@command("check")
def check(app: Celery, output: Output) -> None:
    """Check the schedule against leases, limits and the server; what a crash can cost.

    KILL and POWER are the ticks that are lost beside the run that died: when its process is killed, and when
    its machine goes without a word. Exits with 1 when something is wrong.
    """
    checkup = examine(app)
    if output.as_json:
        output.json({"ok": checkup.ok, "facts": checkup.facts, "jobs": checkup.jobs, "wrong": checkup.wrong})
    else:
        output.table(
            ["job", "every", "kill", "power", "expires", "limit", ""], [_cells(job) for job in checkup.jobs]
        )
        output.line()
        for label, said in checkup.facts.items():
            output.line(f"{label:<20}{said}")
        for trouble in checkup.wrong:
            output.line(f"wrong: {trouble}", "red")
        if checkup.ok:
            output.line("all is well", "green")
    if not checkup.ok:
        raise click.exceptions.Exit(FAILED)


def _cells(job: JobCheck) -> list[Cell | str]:
    return [
        Cell(job.job, None if job.ok else "red"),
        span(job.interval) if job.interval else "-",
        "-" if job.ticks_lost_to_a_kill is None else str(job.ticks_lost_to_a_kill),
        "-" if job.ticks_lost_to_power_loss is None else str(job.ticks_lost_to_power_loss),
        job.expires,
        f"{job.hard_limit:g} s" if job.hard_limit else "none",
        Cell("ok", "green") if job.ok else Cell("wrong", "red"),
    ]
