"""Money: reserved before each call, settled after it, never beyond a budget, never twice for one request."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.money import Budgets, Prices
from tasks.store import Store
from tests.app.conftest import Rows
from tests.app.passes import PRICES, Passes, add
from tests.support.model_server import (
    TOKENS_IN,
    TOKENS_OUT,
    Asked,
    HangUp,
    ModelServer,
    Nothing,
    Sent,
    completion,
    error,
    lexicon,
)
from tests.support.workers import ROOT

COST = PRICES.cost(TOKENS_IN, TOKENS_OUT)
PLENTY = 10**12


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture
def passes(store: Store, server: ModelServer) -> Passes:
    return Passes(store, server)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_cost_is_rounded_up_by_less_than_one_unit(
    price_in: int, price_out: int, t_in: int, t_out: int
) -> None:
    exact = price_in * t_in + price_out * t_out
    cost = Prices(price_in, price_out).cost(t_in, t_out)
    assert exact <= cost * 1_000_000 < exact + 1_000_000


def most(rows: Rows) -> int:
    """What is reserved for one call."""
    return int(rows("SELECT max(reserved) FROM attempt")[0][0])


def test_the_money_is_reserved_before_the_server_is_asked(passes: Passes, rows: Rows) -> None:
    add(passes.store, "garlic")
    seen: list[tuple[Any, ...]] = []

    def behave(asked: Asked) -> Sent:
        seen.extend(rows("SELECT state, actual FROM attempt"))
        return lexicon(asked)

    passes.server.behave = behave
    passes.run()
    assert seen == [("reserved", None)]
    assert most(rows) >= COST


@pytest.mark.parametrize("budget", ["of_pass", "of_day", "of_month"])
def test_no_call_is_begun_that_could_go_beyond_a_budget(passes: Passes, rows: Rows, budget: str) -> None:
    add(passes.store, "garlic, salt, honey, sugar, water")
    passes.run(limit=1)
    spent, reserve = passes.store.spent().of_month, most(rows)
    already = 0 if budget == "of_pass" else spent
    # Room for the reserve of one call, and for what two calls cost.
    limits = Budgets(PLENTY, PLENTY, PLENTY)._replace(**{budget: already + reserve + 2 * COST})
    result = passes.run(budgets=limits, concurrency=3).to_result()
    name = {"of_pass": "budget_pass", "of_day": "budget_day", "of_month": "budget_month"}[budget]
    assert result["stopped"] == name
    assert result["accepted"] == len(passes.server.requests) - 1
    assert 2 <= len(passes.server.requests) - 1 <= 3
    assert int(result["accepted"]) + int(result["deferred"]) == result["asked"] == 4
    assert passes.store.spent().of_month <= already + reserve + 2 * COST


def test_a_budget_of_nothing_buys_nothing(passes: Passes) -> None:
    add(passes.store, "garlic, salt")
    result = passes.run(budgets=Budgets(0, PLENTY, PLENTY)).to_result()
    assert (result["deferred"], result["spent"], passes.server.requests) == (2, 0, [])


def test_a_server_that_costs_nothing_needs_no_budget(passes: Passes) -> None:
    add(passes.store, "garlic, salt")
    result = passes.run(budgets=Budgets(0, 0, 0), prices=Prices(0, 0)).to_result()
    assert (result["accepted"], result["spent"]) == (2, 0)


def test_yesterday_does_not_count_for_today_nor_last_month_for_this_one(passes: Passes, rows: Rows) -> None:
    add(passes.store, "water, salt, sugar, rice")
    passes.run(limit=1)
    # The others reserve about as much; with what has been spent it would be too much.
    reserve = most(rows) + COST // 2
    today = Budgets(PLENTY, reserve, PLENTY)
    assert passes.run(limit=1, budgets=today).stopped == "budget_day"
    rows("UPDATE attempt SET started_at = '2001-01-31T23:59:59+00:00'")
    assert passes.run(limit=1, budgets=today).to_result()["accepted"] == 1
    this_month = Budgets(PLENTY, PLENTY, reserve)
    assert passes.run(limit=1, budgets=this_month).stopped == "budget_month"
    rows("UPDATE attempt SET started_at = '2001-01-31T23:59:59+00:00'")
    assert passes.run(limit=1, budgets=this_month).to_result()["accepted"] == 1


def test_more_than_was_reserved_is_booked_as_it_is(passes: Passes, rows: Rows) -> None:
    add(passes.store, "garlic")
    passes.server.behave = lambda asked: completion(asked.proposal(), usage=(10**6, 10**6))
    assert passes.run().spent == passes.store.spent().of_month == sum(PRICES) > most(rows)


# --- the same request ---------------------------------------------------------------------------------------


def test_a_copy_of_a_message_does_not_pay_for_a_request_again(passes: Passes, rows: Rows) -> None:
    add(passes.store, "garlic, salt")
    # The first one dies with the call: it never learns how it ended.
    passes.server.behave = lambda _: HangUp()
    passes.run(limit=1, delivery="one")
    rows("UPDATE attempt SET state = 'reserved', actual = NULL, reason = ''")
    before = list(passes.server.names)
    passes.server.behave = lexicon
    copy = passes.run(delivery="one")
    assert copy.deferred == {"asked": 1}
    assert passes.server.names == [*before, "salt"]
    # A later message may.
    assert passes.run(delivery="two").to_result()["accepted"] == 1
    assert passes.server.names == [*before, "salt", "garlic"]


KILLED_IN_A_CALL = """
import sys
from tasks.curation import ask_pass
from tasks.knowledge import shipped
from tasks.model import Endpoint, Model
from tasks.store import Store
from tests.app.passes import TERMS, FakeLease

url, model = sys.argv[1:]
with Store.open(url) as store:
    ask_pass(store, Model(Endpoint(model, "m"), shipped()), shipped(), FakeLease(), 10, TERMS)
"""


def test_a_run_that_is_killed_in_a_call_has_spent_what_it_reserved(
    passes: Passes, rows: Rows, url: str
) -> None:
    add(passes.store, "garlic, salt")
    processes: list[subprocess.Popen[bytes]] = []

    def kill(_asked: Asked) -> Nothing:
        processes[0].kill()
        return HangUp()

    passes.server.behave = kill
    command = [sys.executable, "-c", KILLED_IN_A_CALL, url, passes.server.url]
    processes.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL))
    assert processes[0].wait(60) == -9
    assert rows("SELECT state, actual FROM attempt") == [("reserved", None)]
    reserved = most(rows)
    assert passes.store.spent().of_month == reserved
    passes.server.behave = lexicon
    passes.fence = 1
    assert passes.run().to_result()["accepted"] == 2
    assert passes.store.spent().of_month == reserved + 2 * COST
    assert rows("SELECT state, reason FROM attempt ORDER BY id")[0] == ("unknown", "crashed")


def test_a_request_that_was_answered_once_is_never_paid_for_again(passes: Passes, rows: Rows) -> None:
    add(passes.store, "garlic, salt")
    changed: dict[str, Any] = {"fodmap": ["none"]}
    passes.server.behave = lambda asked: (
        completion(None, refusal="no") if asked.name == "salt" else completion(asked.proposal(**changed))
    )
    assert passes.run().to_result()["rejected"] == 2
    # Another model is tried, and then the first one again: it has said what it had to say.
    assert passes.run(endpoint={"name": "other"}).to_result()["rejected"] == 2
    again = passes.run().to_result()
    assert (again["rejected"], again["spent"], again["deferred"]) == (2, 0, 0)
    assert len(passes.server.requests) == 4
    assert rows("SELECT rules FROM rejection WHERE verdict = 'rejected' ORDER BY id")[-1] == ("refusal",)


def test_every_request_is_reserved_once(passes: Passes, rows: Rows) -> None:
    add(passes.store, "garlic, salt")
    passes.server.behave = lambda asked: error(503) if asked.number == 1 else lexicon(asked)
    passes.run()
    keys = rows("SELECT request_hash, delivery, number FROM attempt")
    assert len(set(keys)) == len(keys) == len(passes.server.requests) == 4
    assert sorted(number for _, _, number in keys) == [1, 1, 2, 2]
