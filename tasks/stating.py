"""`python -m tasks statement PERIOD`: one month's rewards, for people and for programs."""

import json
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tasks.console import the_store
from tasks.currency import shown
from tasks.periods import BadPeriod, Period
from tasks.settings import settings
from tasks.settlement import Terms
from tasks.statement import Statement, Status
from tasks.statement import statement as statement_of


@click.command()
@click.argument("period")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object; amounts in minor units, as text."
)
def statement(period: str, *, as_json: bool) -> None:
    """Show the rewards of the month PERIOD, such as 2026-10.

    Of a month that is not settled it shows what it would come to by what is known now.
    """
    try:
        month = Period.parse(period)
    except BadPeriod as error:
        raise click.BadParameter(str(error), param_hint="PERIOD") from None
    with the_store() as store:
        terms = Terms(settings().rewards_pool, settings().rewards_currency)
        found = statement_of(store, month, terms, datetime.now(UTC))
    if as_json:
        click.echo(json.dumps(_json(found), ensure_ascii=False))
    else:
        Console().print(_page(found))
    if not found.sound:
        raise click.ClickException(
            f"{month}: the rows that are kept are not what their inputs come to; compare with a backup"
        )


def _json(found: Statement) -> dict[str, Any]:
    # As text: programs that read numbers as doubles would round from 2**53 on.
    return {
        "period": str(found.period),
        "status": found.status.value,
        "closes_at": found.closes_at.isoformat(),
        "currency": found.currency,
        "pool": str(found.pool),
        "carried": str(found.carried),
        "contributors": [share._asdict() | {"amount": str(share.amount)} for share in found.shares],
        "adjustments": [each._asdict() | {"original": str(each.original)} for each in found.adjustments],
        "counted_later": [
            {"period": str(each.original), "contributor": each.contributor, "weight": each.weight}
            for each in found.counted_later
        ],
        "ledger": [line._asdict() | {"amount": str(line.amount)} for line in found.lines],
        "settled_at": found.settled_at or None,
        "fence": str(found.fence) if found.settled_at else None,
        "input_hash": found.input_hash or None,
        "sound": found.sound,
    }


_STYLES = {Status.SETTLED: "bold green", Status.DUE: "bold yellow", Status.GRACE: "yellow"}


def _page(found: Statement) -> Group:
    parts: list[RenderableType] = [
        Text.assemble(
            (str(found.period), "bold"), ": ", (found.status.value, _STYLES.get(found.status, "bold"))
        ),
        Text(_when(found)),
    ]
    if found.status not in {Status.EMPTY, Status.AHEAD}:
        parts += _amounts(found)
    return Group(*parts)


def _when(found: Statement) -> str:
    if found.status is Status.SETTLED:
        return f"settled at {found.settled_at}, fence {found.fence}, inputs {found.input_hash}"
    if found.status is Status.EMPTY:
        return "rewards begin with the month of the first answer, and there is none up to here"
    closes = f"{found.closes_at:%Y-%m-%d %H:%M} UTC"
    if found.status is Status.DUE:
        return f"closed since {closes}; the next run of the job `rewards` settles it. Until then a forecast:"
    return f"closes at {closes}" + ("" if found.status is Status.AHEAD else "; until then a forecast:")


def _amounts(found: Statement) -> list[RenderableType]:
    def amount(units: int) -> Text:
        return Text(shown(units, found.currency), justify="right")

    pool = f"pool {shown(found.pool, found.currency)}"
    if found.carried:
        pool += f", and {shown(found.carried, found.currency)} carried over from months with nobody to pay"
    parts: list[RenderableType] = [Text(pool)]
    if found.shares:
        table = Table("contributor", "answers", "amount", box=None, header_style="bold")
        for share in found.shares:
            table.add_row(Text(share.contributor), Text(str(share.weight)), amount(share.amount))
        parts.append(table)
    else:
        parts.append(Text("nobody to pay; the pool is carried over"))
    late = [f"late: {each.weight} of {each.contributor} from {each.original}" for each in found.adjustments]
    later = [
        f"counted only in {each.original}: {each.weight} of {each.contributor}"
        for each in found.counted_later
    ]
    parts += map(Text, late + later)
    if found.lines:
        ledger = Table("ledger", "amount", box=None, header_style="bold")
        for line in found.lines:
            ledger.add_row(Text(line.account), amount(line.amount))
        parts.append(ledger)
    return parts
