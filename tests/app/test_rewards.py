"""Settling months: what each comes to, in which order, and what is never changed afterwards."""

import time
from collections.abc import Callable

import pytest
from sqlalchemy.exc import DBAPIError

from celery_lease import LeaseLost
from tasks import review
from tasks.database import DatabaseError
from tasks.facts import Facts, Fodmap, Gluten, Lactose
from tasks.fence import StaleFence
from tasks.periods import Period
from tasks.rewards import rehearse, settle_due
from tasks.settlement import Terms
from tasks.statement import statement
from tasks.store import Store
from tests.app.conftest import Rows
from tests.app.months import TERMS, answered, assert_adds_up, at, ledger, payouts, settle
from tests.app.passes import FakeLease, add

TABLES = ("settlement", "counted_answer", "payout", "ledger_entry", "payout_outbox", "fence")


def content(rows: Rows) -> list[list[tuple[object, ...]]]:
    return [sorted(rows(f"SELECT * FROM {table}")) for table in TABLES]  # noqa: S608  # names of ours


def test_a_month_is_split_by_the_answers_that_each_contributor_was_first_to_need(
    store: Store, rows: Rows
) -> None:
    answered(store, "2026-10-05", {"anna": 2, "bilal": 1})
    result = settle(store, "2026-11-02")
    assert result == {"worked": 1, "answers": 3, "late": 0, "payouts": 2, "backlog": 0}
    assert payouts(rows) == [("2026-10", "anna", 2, 66_667), ("2026-10", "bilal", 1, 33_333)]
    assert ledger(rows, "settle:2026-10") == {
        "pool": -100_000,
        "contributor:anna": 66_667,
        "contributor:bilal": 33_333,
    }
    assert sorted(rows("SELECT key, amount, currency FROM payout_outbox")) == [
        ("2026-10:anna", 66_667, "EUR"),
        ("2026-10:bilal", 33_333, "EUR"),
    ]
    assert_adds_up(rows)


def test_a_month_is_settled_once_however_often_the_job_runs(store: Store, rows: Rows) -> None:
    answered(store, "2026-10-05", {"anna": 2})
    settle(store, "2026-11-02", fence=1)
    before = content(rows)[:-1]
    assert settle(store, "2026-11-02", fence=2)["worked"] == 0
    assert settle(store, "2026-11-30", Terms(7, "JPY"), fence=3)["worked"] == 0
    assert content(rows)[:-1] == before


def test_nothing_is_settled_before_the_grace_is_over(store: Store, rows: Rows) -> None:
    answered(store, "2026-10-31T23:59:59", {"anna": 1})
    assert settle(store, "2026-11-01T23:59:59")["worked"] == 0
    assert statement(store, Period(2026, 10), TERMS, at("2026-11-01T23:59:59")).status == "in grace"
    assert rows("SELECT count(*) FROM settlement") == [(0,)]
    assert settle(store, "2026-11-02T00:00:00")["worked"] == 1


def test_the_first_moment_of_a_month_belongs_to_it_and_the_last_of_the_one_before_does_not(
    store: Store, rows: Rows
) -> None:
    for moment, name in {
        "2025-12-31T23:59:59": "old",
        "2026-01-01T00:00:00": "first",
        "2026-01-31T23:59:59": "last",
        "2026-02-01T00:00:00": "new",
    }.items():
        answered(store, moment, {name: 1})
    settle(store, "2026-02-10")
    assert [(period, name) for period, name, *_ in payouts(rows)] == [
        ("2025-12", "old"),
        ("2026-01", "first"),
        ("2026-01", "last"),
    ]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_the_machine_s_time_zone_changes_nothing(
    store: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        for moment in ("2024-02-29T23:59:59", "2024-03-01T00:00:00", "2024-03-31T02:30:00"):
            answered(store, moment, {moment: 1})
        settle(store, "2024-04-02")
        states = [
            statement(store, Period(2024, month), TERMS, at("2024-04-01T23:59:59")).status
            for month in (3, 4, 5)
        ]
    time.tzset()
    assert [(period, name) for period, name, *_ in payouts(rows)] == [
        ("2024-02", "2024-02-29T23:59:59"),
        ("2024-03", "2024-03-01T00:00:00"),
        ("2024-03", "2024-03-31T02:30:00"),
    ]
    assert states == ["settled", "open", "not begun"]


def test_after_an_outage_all_months_are_settled_in_order_and_across_the_year(
    store: Store, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    for month in ("2025-11", "2025-12", "2026-01", "2026-02"):
        answered(store, f"{month}-10", {"anna": 1, month: 2})
    with caplog.at_level("INFO", "tasks.rewards"):
        result = settle(store, "2026-03-02")
    assert (result["worked"], result["backlog"]) == (4, 0)
    said = [record.getMessage() for record in caplog.records if "settled" in record.getMessage()]
    assert [line.split()[1] for line in said] == ["2025-11:", "2025-12:", "2026-01:", "2026-02:"]
    assert assert_adds_up(rows) == ["2025-11", "2025-12", "2026-01", "2026-02"]
    assert [amount for _, name, _, amount in payouts(rows) if name == "anna"] == [33_333] * 4


def test_nothing_at_all_is_nothing_to_settle(store: Store, rows: Rows) -> None:
    assert settle(store, "2026-11-02") == {
        "worked": 0,
        "answers": 0,
        "late": 0,
        "payouts": 0,
        "backlog": 0,
    }


# --- months with nobody to pay ------------------------------------------------------------------------------


def test_the_pool_of_a_month_with_nobody_to_pay_goes_to_the_next_one_that_has_somebody(
    store: Store, rows: Rows
) -> None:
    answered(store, "2026-06-10", {"anna": 1})
    answered(store, "2026-08-10", {"anonymous": 3, "": 1})
    answered(store, "2026-09-10", {"anna": 1, "bilal": 1})
    answered(store, "2026-10-10", {"bilal": 1})
    assert settle(store, "2026-11-02")["worked"] == 5
    assert (
        ledger(rows, "settle:2026-07")
        == ledger(rows, "settle:2026-08")
        == {"pool": -100_000, "carried": 100_000}
    )
    assert payouts(rows) == [
        ("2026-06", "anna", 1, 100_000),
        ("2026-09", "anna", 1, 150_000),
        ("2026-09", "bilal", 1, 150_000),
        ("2026-10", "bilal", 1, 100_000),
    ]
    assert rows("SELECT sum(amount) FROM ledger_entry WHERE account = 'carried'") == [(0,)]
    assert_adds_up(rows)


def test_what_was_carried_over_in_one_currency_is_not_paid_in_another(store: Store, rows: Rows) -> None:
    answered(store, "2026-08-10", {"anonymous": 1})
    settle(store, "2026-09-02")
    answered(store, "2026-09-10", {"anna": 1})
    settle(store, "2026-10-02", Terms(5_000, "JPY"), fence=2)
    assert payouts(rows) == [("2026-09", "anna", 1, 5_000)]
    answered(store, "2026-10-10", {"anna": 1})
    settle(store, "2026-11-02", fence=3)
    assert payouts(rows)[-1] == ("2026-10", "anna", 1, 200_000)
    assert_adds_up(rows)


def test_a_pool_of_nothing_is_settled_too(store: Store, rows: Rows) -> None:
    answered(store, "2026-10-10", {"anna": 1})
    assert settle(store, "2026-11-02", Terms(0, "EUR"))["payouts"] == 0
    assert payouts(rows) == [("2026-10", "anna", 1, 0)]
    assert rows("SELECT count(*) FROM ledger_entry") == rows("SELECT count(*) FROM payout_outbox") == [(0,)]
    assert_adds_up(rows)


def test_a_pool_smaller_than_its_contributors_is_still_split_exactly(store: Store, rows: Rows) -> None:
    answered(store, "2026-10-10", {"anna": 1, "bilal": 1, "chiara": 1})
    assert settle(store, "2026-11-02", Terms(2, "EUR"))["payouts"] == 2
    assert sorted(amount for *_, amount in payouts(rows)) == [0, 1, 1]
    assert_adds_up(rows)


# --- what comes late, and what changes ----------------------------------------------------------------------


def test_an_answer_that_is_written_after_its_month_was_settled_counts_in_the_next_one(
    store: Store, rows: Rows
) -> None:
    answered(store, "2026-09-10", {"anna": 1})
    settle(store, "2026-10-02", fence=1)
    before = payouts(rows)
    answered(store, "2026-09-30T23:59:59", {"bilal": 2, "anonymous": 1})
    answered(store, "2026-08-01", {"chiara": 1})
    answered(store, "2026-10-10", {"anna": 1})
    result = settle(store, "2026-11-02", fence=2)
    assert (result["worked"], result["late"]) == (1, 3)
    assert payouts(rows)[:1] == before
    assert payouts(rows)[1:] == [
        ("2026-10", "anna", 1, 25_000),
        ("2026-10", "bilal", 2, 50_000),
        ("2026-10", "chiara", 1, 25_000),
    ]
    assert_adds_up(rows)
    october = statement(store, Period(2026, 10), TERMS, at("2026-11-03"))
    assert [(str(each.original), *each[1:]) for each in october.adjustments] == [
        ("2026-08", "chiara", 1),
        ("2026-09", "bilal", 2),
    ]
    september = statement(store, Period(2026, 9), TERMS, at("2026-11-03"))
    assert ("bilal", 2) in [tuple(each[1:]) for each in september.counted_later]
    assert september.sound
    assert october.sound


def test_a_better_answer_by_a_person_keeps_the_month_of_the_first_one_and_counts_once(
    store: Store, rows: Rows
) -> None:
    answered(store, "2026-09-10", {"anna": 1})
    settle(store, "2026-10-02", fence=1)
    rows("UPDATE ingredient SET state = 'needs_human'")
    facts = Facts(frozenset({Fodmap.NONE}), Gluten.NONE, Lactose.NONE)
    ((number,),) = rows("SELECT id FROM ingredient")
    review.answer(store, number, facts, None, "carla")
    assert rows("SELECT state FROM answer") == [("no trigger known",)]
    settle(store, "2026-11-02", fence=2)
    assert [period for period, *_ in payouts(rows)] == ["2026-09"]
    assert_adds_up(rows)


def test_a_person_s_first_answer_counts_in_the_month_in_which_it_is_given(store: Store, rows: Rows) -> None:
    add(store, "garlic")
    rows("UPDATE ingredient SET state = 'needs_human', contributor = 'anna'")
    facts = Facts(frozenset({Fodmap.FRUCTAN}), Gluten.NONE, Lactose.NONE)
    review.answer(store, 1, facts, None, "carla")
    ((moment,),) = rows("SELECT answered_at FROM answer")
    month = Period.of(moment)
    assert settle(store, month.ends.date().isoformat())["worked"] == 0
    settle_due(store, FakeLease(2, "rewards"), month.closes, TERMS)
    assert payouts(rows) == [(str(month), "anna", 1, 100_000)]


@pytest.mark.parametrize("table", ["settlement", "counted_answer", "payout", "ledger_entry"])
def test_the_database_refuses_to_change_what_is_settled(store: Store, rows: Rows, table: str) -> None:
    answered(store, "2026-09-10", {"anna": 1})
    settle(store, "2026-10-02")
    rows("DELETE FROM payout_outbox")  # this is for a sender to do with as it likes
    before = content(rows)
    column = {"ledger_entry": "txn"}.get(table, "period")
    for change in (f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"):  # noqa: S608
        with pytest.raises(DBAPIError, match="settled rows are final"):
            rows(change)
    assert content(rows) == before


@pytest.mark.parametrize(
    "row",
    [
        "settlement VALUES ('2026-13', 1, 0, 'EUR', '{hash}', 1, 'now')",
        "settlement VALUES ('2026-11', -1, 0, 'EUR', '{hash}', 1, 'now')",
        "settlement VALUES ('2026-11', 1, -1, 'EUR', '{hash}', 1, 'now')",
        "settlement VALUES ('2026-09', 1, 0, 'EUR', '{hash}', 1, 'now')",
        "payout VALUES ('2026-09', 'bilal', 0, 1)",
        "payout VALUES ('2026-09', 'bilal', 1, -1)",
        "payout VALUES ('2026-08', 'bilal', 1, 1)",
        "ledger_entry VALUES (9, 't', 'a', 0, 'EUR')",
        "ledger_entry VALUES (9, 'settle:2026-09', 'pool', 1, 'EUR')",
        "payout_outbox VALUES ('2026-09:anna', '2026-09', 'anna', 1, 'EUR', 'now')",
        "payout_outbox VALUES ('other', '2026-09', 'anna', 1, 'EUR', 'now')",
    ],
)
def test_the_database_refuses_what_cannot_be(sqlite_url: str, row: str) -> None:
    with Store.open(sqlite_url) as store:
        answered(store, "2026-09-10", {"anna": 1})
        settle(store, "2026-10-02")
        with pytest.raises(DBAPIError, match=r"constraint failed"), store.writing(None) as session:
            session.connection().exec_driver_sql(f"INSERT INTO {row.format(hash='0' * 64)}")


def test_amounts_are_as_wide_as_money_needs(store: Store, rows: Rows) -> None:
    most = Terms(10**15, "EUR")
    answered(store, "2025-01-10", {"anonymous": 1})
    settle(store, "2026-10-02", most)
    answered(store, "2026-10-10", {"anna": 1, "bilal": 2})
    settle(store, "2026-11-02", most, fence=2**62)
    assert sum(amount for *_, amount in payouts(rows)) == 22 * 10**15
    assert_adds_up(rows)


# --- runs that are not the newest ---------------------------------------------------------------------------


def test_a_run_with_a_lower_fence_settles_nothing(store: Store, rows: Rows) -> None:
    answered(store, "2026-09-10", {"anna": 1})
    settle(store, "2026-09-11", fence=2)
    with pytest.raises(StaleFence):
        settle(store, "2026-10-02", fence=1)
    assert rows("SELECT count(*) FROM settlement") == [(0,)]


def test_a_run_that_lost_its_lease_stops_between_two_months_and_the_next_one_goes_on(
    store: Store, rows: Rows
) -> None:
    for month in ("2026-07", "2026-08", "2026-09"):
        answered(store, f"{month}-10", {"anna": 1})
    with pytest.raises(LeaseLost):
        settle_due(store, FakeLease(1, "rewards", checks_left=2), at("2026-10-02"), TERMS)
    assert assert_adds_up(rows) == ["2026-07", "2026-08"]
    assert settle(store, "2026-10-02", fence=2)["worked"] == 1
    assert assert_adds_up(rows) == ["2026-07", "2026-08", "2026-09"]


def test_the_calls_of_the_curation_that_are_under_way_are_left_alone(store: Store, rows: Rows) -> None:
    add(store, "garlic")
    rows(
        "INSERT INTO attempt (ingredient_id, request_hash, delivery, number, state, reserved, reason, fence,"
        " started_at) VALUES (1, 'h', 'd', 1, 'reserved', 5, '', 1, '2026-10-01T00:00:00+00:00')"
    )
    settle(store, "2026-10-02")
    assert rows("SELECT state FROM attempt") == [("reserved",)]


# --- rehearsing ---------------------------------------------------------------------------------------------


def test_a_rehearsal_says_what_every_due_month_would_come_to_and_writes_nothing(
    url: str, store: Store, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    answered(store, "2026-07-10", {"anna": 1})
    settle(store, "2026-08-02")
    answered(store, "2026-07-11", {"bilal": 1})
    answered(store, "2026-09-10", {"anna": 2})
    before = content(rows)
    with caplog.at_level("INFO", "tasks.rewards"), Store.open(url, read_only=True) as readable:
        result = rehearse(readable, at("2026-11-02"), TERMS)
    assert result == {
        "dry_run": True,
        "worked": 0,
        "due": 3,
        "would_be_answers": 3,
        "would_be_late": 1,
        "would_be_payouts": 2,
    }
    assert [record.getMessage() for record in caplog.records] == [
        "would settle 2026-08: 1,000.00 EUR among 1 contributors",
        "would settle 2026-09: 1,000.00 EUR among 1 contributors",
        "would settle 2026-10: nobody to pay, 1,000.00 EUR carried over",
    ]
    assert content(rows) == before
    assert settle(store, "2026-11-02", fence=2)["payouts"] == 2


def test_a_rehearsal_makes_no_database_and_changes_no_older_one(
    url: str, rows: Rows, run_reward: Callable[..., object]
) -> None:
    with pytest.raises(DatabaseError, match="tasks load"):
        run_reward(url, dry_run=True)
    with pytest.raises(DBAPIError):
        rows("SELECT 1 FROM settlement")
    with Store.open(url):
        pass
    rows("UPDATE alembic_version SET version_num = '0003'")
    with pytest.raises(DatabaseError, match="brings an older one up to date"):
        run_reward(url, dry_run=True)
    assert rows("SELECT version_num FROM alembic_version") == [("0003",)]


@pytest.fixture
def run_reward(monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """The job's body, on a database."""
    from tasks.rewards import reward  # noqa: PLC0415  # a task is bound to its app on the first look
    from tasks.settings import settings  # noqa: PLC0415

    def run(url: str, *, dry_run: bool) -> object:
        monkeypatch.setenv("DATABASE_URL", url)
        settings.cache_clear()
        try:
            return reward.run(dry_run=dry_run)
        finally:
            settings.cache_clear()

    return run
