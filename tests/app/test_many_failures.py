"""A server at which every kind of failure happens all the time: everything is counted, and paid for once."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from string import ascii_lowercase

import pytest

from tasks.store import Store
from tests.app.conftest import Rows
from tests.app.passes import PRICES, Passes, add
from tests.support.model_server import (
    Asked,
    HangUp,
    ModelServer,
    Nothing,
    Sent,
    Stall,
    completion,
    error,
    lexicon,
)

INGREDIENTS = 2_000
SEED = 20_260_914
Kind = Callable[[Asked, tuple[int, int]], Sent | Nothing]

KINDS: dict[str, Kind] = {
    "refusal": lambda _, usage: completion(None, refusal="no", usage=usage),
    "truncated": lambda asked, usage: completion(asked.proposal()[:50], finish="length", usage=usage),
    "content_filter": lambda _, usage: completion(None, finish="content_filter", usage=usage),
    "empty": lambda _, usage: completion("", usage=usage),
    "prose": lambda _, usage: completion("It is fine.", usage=usage),
    "fenced": lambda asked, usage: completion(f"```json\n{asked.proposal()}\n```", usage=usage),
    "thinking": lambda asked, usage: completion(f"<think>hm</think>{asked.proposal()}", usage=usage),
    "wrong_enum": lambda asked, usage: completion(asked.proposal(gluten="maybe"), usage=usage),
    "extra_key": lambda asked, usage: completion(asked.proposal(safe=True), usage=usage),
    "no_usage": lambda asked, _: completion(asked.proposal(), usage=None),
    "page": lambda _asked, _usage: Sent(b"<html>"),
    "limited": lambda _asked, _usage: error(429),
    "limited_for": lambda _asked, _usage: error(429, retry_after="0.01"),
    "overloaded": lambda _asked, _usage: error(503),
    "stall": lambda _asked, _usage: Stall(),
    "disconnect": lambda _asked, _usage: HangUp(100),
}
# Of every hundred calls, five of each kind.
PERCENT_EACH = 5


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer()
    yield server
    server.close()


def name(number: int) -> str:
    """An ingredient that nobody knows."""
    letters = ascii_lowercase
    return f"x{letters[number // 676]}{letters[number // 26 % 26]}{letters[number % 26]}"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_totals_add_up_and_what_is_booked_is_what_the_server_charges(
    store: Store, rows: Rows, server: ModelServer
) -> None:
    for first in range(0, INGREDIENTS, 500):
        add(store, ", ".join(map(name, range(first, first + 500))), str(first))
    shuffled = random.Random(SEED)
    drawn: Counter[str] = Counter()

    def behave(asked: Asked) -> Sent | Nothing:
        usage = (shuffled.randrange(500, 900), shuffled.randrange(50, 150))
        share = shuffled.randrange(100) // PERCENT_EACH
        kind = list(KINDS)[share] if share < len(KINDS) else "answered"
        drawn[kind] += 1
        return KINDS[kind](asked, usage) if kind in KINDS else completion(asked.proposal(), usage=usage)

    passes = Passes(store, server)
    # The first call of a pass goes out alone, and a failure of it ends the pass: another test's business.
    server.behave = lambda asked: lexicon(asked) if len(server.requests) == 1 else behave(asked)
    counts = passes.run(limit=INGREDIENTS, concurrency=16, timeout=2, seconds=110, pause_seconds=0.05)
    result = counts.to_result()

    assert result["asked"] == INGREDIENTS
    judged = sum(int(result[key]) for key in ("accepted", "rejected", "needs_human"))
    assert judged + int(result["deferred"]) == result["asked"]
    assert counts.stopped == ""
    assert min(drawn[kind] for kind in KINDS) > INGREDIENTS * PERCENT_EACH // 200
    stored: dict[str, int] = dict(rows("SELECT state, count(*) FROM ingredient GROUP BY state"))
    assert stored["answered"] == result["accepted"]
    assert stored["rejected"] == result["rejected"]
    assert stored["open"] == result["deferred"] == result["backlog"]

    booked = rows("SELECT tokens_in, tokens_out, actual, reserved FROM attempt")
    assert len(booked) == len(server.requests)
    with_usage = [(tokens_in, tokens_out) for tokens_in, tokens_out, *_ in booked if tokens_in is not None]
    assert Counter(with_usage) == Counter(server.usages)
    assert all(
        actual == PRICES.cost(tokens_in, tokens_out)
        for tokens_in, tokens_out, actual, _ in booked
        if tokens_in is not None
    )
    charged = sum(PRICES.cost(*usage) for usage in server.usages)
    assert counts.spent == store.spent().of_month >= charged
    recorded = {reason.split()[0] for (reason,) in rows("SELECT DISTINCT reason FROM attempt")}
    assert recorded == {
        *("answered", "fenced", "thinking", "prose", "refusal", "truncated", "content_filter", "empty"),
        *("not_openai", "rate_limited", "server_error", "stalled", "disconnected"),
    }
