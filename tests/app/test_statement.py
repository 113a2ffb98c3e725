"""`python -m tasks statement`: a month's rewards on the screen, settled or as a forecast."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tasks.periods import Period, latest_closed
from tasks.settlement import Terms
from tasks.store import Store
from tests.app.conftest import Run
from tests.app.months import TERMS, answered, settle

BEYOND_DOUBLES = 2**53 + 1


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The database that `run` uses."""
    return tmp_path / "data" / "tasks.sqlite3"


@pytest.fixture
def kept(data: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{data}") as store:
        yield store


def read(run: Run, period: object, **environment: str) -> dict[str, Any]:
    done = run("statement", str(period), "--json", **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_settled_month_is_shown_with_shares_late_answers_and_ledger(run: Run, kept: Store) -> None:
    answered(kept, "2026-08-10", {"anonymous": 1})
    answered(kept, "2026-09-10", {"anna": 2, "bilal": 1})
    settle(kept, "2026-10-02")
    answered(kept, "2026-09-30", {"chiara": 1})
    answered(kept, "2026-10-10", {"anna": 1})
    settle(kept, "2026-11-02", fence=2)

    found = run("statement", "2026-09").stdout
    lines = [" ".join(line.split()) for line in found.splitlines()]
    assert lines[0] == "2026-09: settled"
    assert "pool 1,000.00 EUR, and 1,000.00 EUR carried over from months with nobody to pay" in lines
    assert "anna 2 1,333.33 EUR" in lines
    assert "bilal 1 666.67 EUR" in lines
    assert "counted only in 2026-10: 1 of chiara" in lines
    assert {"pool -1,000.00 EUR", "carried -1,000.00 EUR", "contributor:anna 1,333.33 EUR"} <= set(lines)
    assert "late: 1 of chiara from 2026-09" in run("statement", "2026-10").stdout
    assert "nobody to pay; the pool is carried over" in run("statement", "2026-08").stdout


def test_for_programs_amounts_are_text_so_that_none_is_rounded(run: Run, kept: Store) -> None:
    answered(kept, "2026-09-10", {"anna": 1, "bilal": 0})
    settle(kept, "2026-10-02", Terms(BEYOND_DOUBLES, "KWD"), fence=BEYOND_DOUBLES)
    found = read(run, "2026-09")
    assert found["input_hash"]
    assert found["settled_at"]
    assert found | {"input_hash": "", "settled_at": ""} == {
        "period": "2026-09",
        "status": "settled",
        "closes_at": "2026-10-02T00:00:00+00:00",
        "currency": "KWD",
        "pool": str(BEYOND_DOUBLES),
        "carried": "0",
        "contributors": [{"contributor": "anna", "weight": 1, "amount": str(BEYOND_DOUBLES)}],
        "adjustments": [],
        "counted_later": [],
        "ledger": [
            {"account": "contributor:anna", "amount": str(BEYOND_DOUBLES)},
            {"account": "pool", "amount": str(-BEYOND_DOUBLES)},
        ],
        "settled_at": "",
        "fence": str(BEYOND_DOUBLES),
        "input_hash": "",
        "sound": True,
    }


def test_a_month_that_is_not_settled_is_a_forecast_and_stays_unsettled(run: Run, kept: Store) -> None:
    due = latest_closed(datetime.now(UTC)).previous
    for period in (due, due.next):
        answered(kept, f"{period}-10", {"anna": 1, "bilal": 3})
    now = Period.of(datetime.now(UTC).isoformat())
    answered(kept, datetime.now(UTC).date().isoformat(), {"anna": 2})

    for _ in range(2):  # looking changes nothing
        found = read(run, due, REWARDS_POOL="1000", REWARDS_CURRENCY="JPY")
        assert (found["status"], found["currency"], found["settled_at"]) == ("due", "JPY", None)
        assert {each["contributor"]: each["amount"] for each in found["contributors"]} == {
            "anna": "250",
            "bilal": "750",
        }
    assert "the next run of the job `rewards` settles it" in run("statement", str(due)).stdout
    assert read(run, now)["status"] == "open"
    assert [each["weight"] for each in read(run, now)["contributors"]] == [2]
    ahead = run("statement", str(now.next)).stdout
    assert f"{now.next}: not begun" in ahead
    assert "pool" not in ahead
    before = due.previous
    assert "nothing in it" in run("statement", str(before)).stdout
    assert settle(kept, due.closes.date().isoformat(), TERMS)["worked"] == 1


def test_rows_that_are_not_what_they_follow_from_are_shown_and_are_an_error(
    run: Run, kept: Store, data: Path
) -> None:
    answered(kept, "2026-09-10", {"anna": 1, "bilal": 1})
    settle(kept, "2026-10-02")
    with closing(sqlite3.connect(data)) as connection, connection:
        connection.execute("DROP TRIGGER payout_no_update")
        connection.execute("UPDATE payout SET amount = amount + 1 WHERE contributor = 'anna'")
    done = run("statement", "2026-09", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["sound"] is False
    assert "2026-09: the rows that are kept are not what their inputs come to" in done.stderr


@pytest.mark.parametrize("period", ["2026-13", "october", "2026-1"])
def test_what_is_no_month_is_a_usage_error_that_shows_one(run: Run, period: str) -> None:
    done = run("statement", period)
    assert done.returncode == 2
    assert f"PERIOD: {period!r} is no month" in done.stderr
    assert "2026-10" in done.stderr


def test_a_currency_that_there_is_none_of_is_refused_by_name(run: Run) -> None:
    done = run("statement", "2026-09", REWARDS_CURRENCY="EUX")
    assert done.returncode == 1
    assert "REWARDS_CURRENCY='EUX'" in done.stderr
    assert "ISO 4217 has no currency EUX" in done.stderr
    assert "Traceback" not in done.stderr
