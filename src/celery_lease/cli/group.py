"""The command `lease` and its subcommands. One more command is one more module and one more name below."""

import click

from celery_lease.cli.breaking import break_lease
from celery_lease.cli.checking import check
from celery_lease.cli.looking import history, ls, show, watch
from celery_lease.cli.running import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def lease() -> None:
    """Jobs that never overlap: what runs, what was done, who holds a lease.

    If a job ever looks idle, begin with `show`.
    """


for _command in (ls, show, history, run, break_lease, check, watch):
    lease.add_command(_command)
