"""Two runs at once, and a run that dies: what is left of it in the database, and what was paid."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import redis
from celery import Celery

from tasks.store import Store
from tests.app.conftest import Rows
from tests.app.passes import PRICES, add
from tests.nodes.waiting import wait_until
from tests.support.model_server import TOKENS_IN, TOKENS_OUT, Asked, ModelServer, Sent, lexicon
from tests.support.workers import Worker

NAMES = ["salt", "garlic", "honey", "sugar", "water", "rice"]
COST = PRICES.cost(TOKENS_IN, TOKENS_OUT)
Start = Callable[..., Worker]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture
def start(start_worker: Start, redis_url: str, server: ModelServer, tmp_path: Path) -> Start:
    """Start workers of the application that ask the server."""

    def start(database: str, **environment: str) -> Worker:
        given = {
            "REDIS_URL": redis_url,
            "DATABASE_URL": database,
            "TASKS_DATA": str(tmp_path / "data"),
            "CURATION_MODEL_URL": server.url,
            "CURATION_MODEL_NAME": "m",
            "CURATION_MODEL_TIMEOUT": "60",
            "CURATION_MODEL_CONCURRENCY": "2",
            "CURATION_PRICE_IN": str(PRICES.tokens_in),
            "CURATION_PRICE_OUT": str(PRICES.tokens_out),
        }
        return start_worker(app="tasks", concurrency=1, **given | environment)

    return start


def application(redis_url: str) -> Celery:
    return Celery(broker=redis_url, backend=redis_url, set_as_current=False)


def paid(rows: Rows) -> int:
    return int(rows("SELECT sum(coalesce(actual, reserved)) FROM attempt")[0][0])


def test_of_two_overlapping_runs_the_older_one_writes_nothing_more_and_every_call_is_accounted_for(
    url: str, store: Store, rows: Rows, start: Start, redis_url: str, server: ModelServer
) -> None:
    add(store, ", ".join(NAMES))
    broken, released = Event(), Event()

    def behave(asked: Asked) -> Sent:
        if asked.name not in {"salt", "garlic"} and not broken.is_set():
            released.wait(60)
        return lexicon(asked)

    server.behave = behave
    start(url)
    start(url)
    client = application(redis_url)
    older = client.send_task("curation")
    wait_until(lambda: len(server.requests) == 4, 30)
    wait_until(lambda: len(store.answers()) == 2)
    # The lease is broken by hand under a run that waits for two answers, and a newer run comes in.
    broken.set()
    with redis.Redis.from_url(redis_url, decode_responses=True) as leases:
        leases.delete("cron:{curation}")
        newer = client.send_task("curation").get(timeout=60)
        assert newer["accepted"] == newer["asked"] == 4
        before = rows("SELECT * FROM answer ORDER BY ingredient_id")
        released.set()
        ended = older.get(timeout=60, propagate=False)
        assert type(ended).__name__ in {"StaleFence", "LeaseLost"}, ended
        wait_until(lambda: "lost" in str(leases.hgetall("cron:{curation}:ledger")))

    assert rows("SELECT * FROM answer ORDER BY ingredient_id") == before
    assert sorted(answer.ingredient for answer in store.answers()) == sorted(NAMES)
    assert rows("SELECT DISTINCT attempts, state FROM ingredient") == [(1, "answered")]
    assert rows("SELECT count(*) FROM rejection") == [(0,)]
    by_fence = rows("SELECT fence, count(*) FROM answer GROUP BY fence ORDER BY fence")
    assert [count for _, count in by_fence] == [2, 4]
    # Six calls were answered and settled, two were paid for in vain: those count as what was reserved.
    assert rows("SELECT count(*) FROM attempt") == [(len(server.requests),)] == [(8,)]
    assert rows("SELECT count(*) FROM attempt WHERE state = 'done'") == [(6,)]
    assert (
        rows("SELECT state, reason, actual FROM attempt WHERE state <> 'done'")
        == [("unknown", "crashed", None)] * 2
    )
    assert rows("SELECT sum(actual) FROM attempt") == [(6 * COST,)]
    assert paid(rows) > len(server.usages) * COST == 8 * COST


@pytest.mark.slow
def test_a_message_whose_worker_died_in_a_call_comes_again_and_does_not_pay_for_that_call_again(
    sqlite_url: str, start: Start, redis_url: str, server: ModelServer
) -> None:
    with Store.open(sqlite_url) as store:
        add(store, ", ".join(NAMES))
        held = Event()

        def behave(asked: Asked) -> Sent:
            if asked.name == "honey" and not held.is_set():
                held.set()
                server.closing.wait(60)
            return lexicon(asked)

        server.behave = behave
        worker = start(sqlite_url, CURATION_MODEL_CONCURRENCY="1")
        client = application(redis_url)
        sent = client.send_task("curation")
        assert held.wait(30)
        (child,) = worker.children()
        os.kill(child, signal.SIGKILL)
        result: dict[str, Any] = sent.get(timeout=60)
        assert (result["asked"], result["accepted"], result["deferred"]) == (4, 3, 1)
        assert server.names.count("honey") == 1
        # A later message may ask it.
        assert client.send_task("curation").get(timeout=60)["accepted"] == 1
        assert len(store.answers()) == 6
        assert store.spent().of_month > len(server.requests) * COST


def test_a_rate_limit_beyond_the_time_limit_ends_the_run_within_seconds_and_frees_the_lease(
    sqlite_url: str, start: Start, redis_url: str, server: ModelServer
) -> None:
    limited = Event()
    body = b'{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}'

    def behave(asked: Asked) -> Sent:
        return lexicon(asked) if limited.is_set() else Sent(body, 429, {"Retry-After": "3600"})

    with Store.open(sqlite_url) as store:
        add(store, "garlic, salt")
    server.behave = behave
    start(sqlite_url)
    client = application(redis_url)
    first = client.send_task("curation").get(timeout=20)
    assert (first["deferred"], first["stopped"], len(server.requests)) == (2, "rate_limited", 1)
    with redis.Redis.from_url(redis_url) as leases:
        assert not leases.exists("cron:{curation}")
    limited.set()
    assert client.send_task("curation").get(timeout=20)["accepted"] == 2


def test_a_run_that_the_endpoint_refuses_fails_visibly_and_says_what_to_see_to(
    sqlite_url: str, start: Start, redis_url: str, server: ModelServer
) -> None:
    with Store.open(sqlite_url) as store:
        add(store, "garlic, salt")
    server.behave = lambda _: Sent(b'{"error": {"message": "Incorrect API key"}}', 401)
    worker = start(sqlite_url, CURATION_MODEL_KEY="hunter2")
    sent = application(redis_url).send_task("curation")
    ended = sent.get(timeout=20, propagate=False)
    assert sent.state == "FAILURE"
    assert "unauthorized: status 401, Incorrect API key; see to the account" in str(ended)
    assert len(server.requests) == 1
    assert server.requests[0].headers["authorization"] == "Bearer hunter2"
    assert "hunter2" not in worker.log()


def test_a_dry_run_of_the_job_asks_nobody_and_changes_nothing(
    sqlite_url: str, start: Start, redis_url: str, server: ModelServer
) -> None:
    with Store.open(sqlite_url) as store:
        add(store, "garlic, salt")
        start(sqlite_url)
        result = application(redis_url).send_task("curation", kwargs={"dry_run": True}).get(timeout=20)
        assert (result["would_ask"], result["worked"], result["dry_run"]) == (2, 0, True)
        assert (server.requests, store.answers(), store.spent().of_month) == ([], [], 0)
