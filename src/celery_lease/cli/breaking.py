"""`break`: take a lease away from its holder, after a look at who that is."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import click

from celery_lease._errors import describe_holder
from celery_lease._store import store_of
from celery_lease.cli.looking import connection_in_words
from celery_lease.cli.output import FAILED, LOCKED, Output, command

if TYPE_CHECKING:
    from celery import Celery

#: Enough of a token to tell two holders apart.
_SHORTEST_PREFIX = 4


@command("break")
@click.argument("name")
@click.option("--token", "seen", help="The beginning of the token that `show` showed: only that holder's.")
@click.option("--force", is_flag=True, help="Also when the holder is connected, or is unknown.")
def break_lease(app: Celery, output: Output, name: str, seen: str | None, *, force: bool) -> None:
    """Take the lease NAME away from its holder, and write that into its ledger.

    A holder that lives is told at once. It cannot write under its fence any more once the next run has begun;
    whether its body goes on is its own choice. A dead holder need not be broken: within 10 s its lease is
    taken over by the next run.
    """
    store = store_of(app)
    holder = store.peek(name)
    if holder is None:
        output.stop(FAILED, "free", f"{name}: nobody holds the lease, so there is nothing to break")
    said = f"{name}: held by {describe_holder(holder)}"
    if holder:
        said += f"; token {holder.get('token_prefix', '')}…; {connection_in_words(holder)}"
    if not output.as_json:
        output.line(said)
    prefix = _confirmed(output, holder, seen)
    by = f"{getpass.getuser()}@{socket.gethostname()} (pid {os.getpid()})"
    answer, *more = store.take_away(name, prefix, {"by": by}, force=force)
    _say(output, name, answer, int(more[0]) if more else 0, holder)


def _confirmed(output: Output, holder: dict[str, Any], seen: str | None) -> str:
    """The token's beginning that the operator means; without `--token`, somebody has to say yes."""
    if not holder:
        return ""
    if seen is not None:
        seen = seen.rstrip("….")
        if len(seen) < _SHORTEST_PREFIX:
            raise click.BadParameter(f"at least {_SHORTEST_PREFIX} characters of it", param_hint="--token")
        return seen
    if output.as_json or not sys.stdin.isatty():
        raise click.UsageError(
            "say which holder with --token PREFIX, as `show` shows it, where nobody can be asked"
        )
    click.confirm("Break it?", abort=True)
    return str(holder.get("token_prefix", ""))


def _say(output: Output, name: str, answer: str, told: int, holder: dict[str, Any]) -> None:
    if answer == "broken":
        how = "its process was told" if told else "its process could not be told, and learns it by itself"
        if output.as_json:
            output.json({"job": name, "broken": True, "told": bool(told), "holder": holder})
        else:
            output.line(f"{name}: broken; {how}. This is in the ledger: see `history`", "green")
        return
    code, said = {
        "free": (FAILED, "nobody holds the lease any more"),
        "changed": (LOCKED, "somebody else holds it than you saw; look again with `show`"),
        "connected": (
            LOCKED,
            "not broken: the holder's process is connected, so it lives; --force breaks it all the same",
        ),
        "unknown": (
            LOCKED,
            "not broken: that is no lease of this library, and may be in use; --force deletes it",
        ),
    }[answer]
    output.stop(code, answer, f"{name}: {said}", job=name, holder=holder)
