"""Settling a month from many sides at once, and runs that die: one effect, and nothing by halves."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import pytest
import redis
from celery import Celery

from tasks.store import Store
from tests.app.conftest import Rows
from tests.app.months import answered, assert_adds_up, at, payouts
from tests.app.test_overlap import application
from tests.nodes.waiting import wait_until
from tests.support.workers import ROOT, Worker

SETTLERS = 40
WEIGHTS = {"anna": 7, "bilal": 5, "chiara": 1, "anonymous": 2}

# One interpreter that forks: starting as many of them would take longer than everything else here.
AT_ONCE = """
import json, os, random, sys
from collections import Counter

from tasks import accounts
from tasks.fence import StaleFence
from tasks.store import Store
from tests.app.months import TERMS, at, settle

url, fenced, settlers = sys.argv[1], sys.argv[2] == "fenced", int(sys.argv[3])
fences = random.Random(7).sample(range(1, 1000), settlers)
read, write = os.pipe()


def settle_without_fence(store):
    with store.writing(None) as session:
        due = accounts.due(session, at("2026-11-02"))
        return bool(due) and accounts.keep(session, *accounts.drafted(session, due[:1], TERMS), 1)


children = []
for fence in fences:
    children.append(os.fork())
    if not children[-1]:
        os.close(write)
        ended = 3
        try:
            with Store.open(url) as store:
                os.read(read, 1)
                if fenced:
                    ended = settle(store, "2026-11-02", fence=fence)["worked"]
                else:
                    ended = int(settle_without_fence(store))
        except StaleFence:
            ended = 2
        finally:
            os._exit(ended)
os.close(write)
codes = Counter(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
print(json.dumps({"already": codes.pop(0, 0), "settled": codes.pop(1, 0), "stale": codes.pop(2, 0), **codes}))
"""


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", script, *arguments]


@pytest.mark.parametrize("how", ["fenced", "by the unique key alone"])
def test_of_forty_settlements_of_one_month_at_once_one_has_an_effect(
    url: str, store: Store, rows: Rows, how: str
) -> None:
    answered(store, "2026-10-10", WEIGHTS)
    done = subprocess.run(
        python(AT_ONCE, url, how, str(SETTLERS)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    assert ended.keys() == {"already", "settled", "stale"}, (ended, done.stderr)
    assert (ended["settled"], sum(ended.values())) == (1, SETTLERS)
    assert assert_adds_up(rows) == ["2026-10"]
    assert [weight for _, _, weight, _ in payouts(rows)] == [7, 5, 1]


# --- runs that are killed -----------------------------------------------------------------------------------

# Told a number on a line, it runs the job in a child that kills itself before that statement or commit, or
# right after that commit; it answers with how the child ended.
KILLED_AT = """
import os, signal, sys

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from tasks.store import Store
from tests.app.months import settle

for line in sys.stdin:
    left, fence = map(int, line.split())
    child = os.fork()
    if not child:

        def count(*_):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        ended = 1
        try:
            with Store.open(sys.argv[1]) as store:
                event.listen(Engine, "before_cursor_execute", count)
                event.listen(Engine, "commit", count)
                event.listen(Session, "after_commit", count)
                settle(store, "2026-11-02", fence=fence)
                ended = 0
        finally:
            os._exit(ended)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture
def kill_at(url: str) -> Iterator[Callable[[int], int]]:
    with subprocess.Popen(
        python(KILLED_AT, url), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        to, answers = process.stdin, process.stdout
        assert to
        assert answers

        def run(number: int) -> int:
            return _ask(to, answers, f"{number} {number}")

        yield run
        to.close()


def _ask(to: IO[str], answers: IO[str], line: str) -> int:
    to.write(f"{line}\n")
    to.flush()
    return int(answers.readline())


def test_a_kill_at_any_statement_leaves_nothing_or_everything_and_the_next_run_goes_on(
    store: Store, rows: Rows, kill_at: Callable[[int], int]
) -> None:
    answered(store, "2026-10-10", WEIGHTS)
    tables = ("settlement", "counted_answer", "payout", "ledger_entry", "payout_outbox")
    kept, number, ended = [], 0, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        number += 1
        ended = kill_at(number)
        counts = tuple(rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables)  # noqa: S608
        assert counts in {(0, 0, 0, 0, 0), (1, 15, 3, 4, 3)}, number
        kept.append(counts[0])
    assert ended == 0
    # Each run got one step further than the one before it, until one had committed; the next found it done.
    assert kept[-1] == 1
    assert kept.index(1) >= 16
    assert assert_adds_up(rows) == ["2026-10"]


# --- workers ------------------------------------------------------------------------------------------------

MONTHS = ("2024-01", "2024-02", "2024-03")
# The third month is long over, but not for this slot.
SLOT = at("2024-03-02T03:22:00")


@pytest.fixture
def stumbles(tmp_path: Path) -> Path:
    folder = tmp_path / "stumbles"
    folder.mkdir()
    return folder


@pytest.fixture
def start(
    start_worker: Callable[..., Worker], redis_url: str, stumbles: Path, tmp_path: Path
) -> Callable[[str], Worker]:
    def start(database: str) -> Worker:
        environment = {
            "REDIS_URL": redis_url,
            "DATABASE_URL": database,
            "TASKS_DATA": str(tmp_path / "data"),
            "STUMBLES": str(stumbles),
        }
        return start_worker(app="tests.app.stumbling", concurrency=1, **environment)

    return start


def headers(slot: datetime) -> dict[str, Any]:
    return {"lease_slot": int(slot.timestamp()), "lease_entry": "rewards"}


def ledger_of(redis_url: str) -> str:
    with redis.Redis.from_url(redis_url, decode_responses=True) as leases:
        return str(leases.hgetall("cron:{rewards}:ledger"))


def taken_over(client: Celery, redis_url: str) -> Any:
    """Break the lease by hand under a run that stands between two months; what a newer run came to.

    Again if the older one retook its lease before the newer one came.
    """
    with redis.Redis.from_url(redis_url) as leases:
        for _ in range(20):
            leases.delete("cron:{rewards}")
            sent = client.send_task("rewards")
            result = sent.get(timeout=60, propagate=False)
            if sent.state == "SUCCESS":
                return result
    raise AssertionError(f"no takeover: {result}")


def test_of_two_overlapping_runs_each_month_is_settled_by_one_and_the_older_ends_as_lost(
    url: str, store: Store, rows: Rows, start: Callable[[str], Worker], redis_url: str, stumbles: Path
) -> None:
    for month in MONTHS:
        answered(store, f"{month}-10", WEIGHTS)
    (stumbles / "pause").touch()
    start(url)
    start(url)
    client = application(redis_url)
    older = client.send_task("rewards")
    wait_until((stumbles / "paused").exists, 30)
    newer = taken_over(client, redis_url)
    before = payouts(rows)
    (stumbles / "go").touch()
    ended = older.get(timeout=60, propagate=False)
    assert type(ended).__name__ in {"StaleFence", "LeaseLost"}, ended
    wait_until(lambda: "lost" in ledger_of(redis_url))

    assert payouts(rows) == before
    settled = assert_adds_up(rows)
    assert settled[:3] == list(MONTHS)
    assert newer["worked"] == len(settled) - 1
    by_fence = rows("SELECT fence, count(*) FROM settlement GROUP BY fence ORDER BY fence")
    assert [count for _, count in by_fence] == [1, newer["worked"]]


def test_a_message_that_comes_again_after_its_worker_died_settles_what_its_slot_meant(
    sqlite_url: str, start: Callable[[str], Worker], redis_url: str, stumbles: Path
) -> None:
    with Store.open(sqlite_url) as store:
        for month in MONTHS:
            answered(store, f"{month}-10", WEIGHTS)
        (stumbles / "pause").touch()
        worker = start(sqlite_url)
        sent = application(redis_url).send_task("rewards", headers=headers(SLOT))
        wait_until((stumbles / "paused").exists, 30)
        (child,) = worker.children()
        os.kill(child, signal.SIGKILL)
        result = sent.get(timeout=60)
        assert (result["worked"], result["backlog"]) == (1, 0)
        assert settled_in(store) == ["2024-01", "2024-02"]


def test_a_retry_settles_what_its_slot_meant(
    sqlite_url: str, start: Callable[[str], Worker], redis_url: str, stumbles: Path
) -> None:
    with Store.open(sqlite_url) as store:
        for month in MONTHS:
            answered(store, f"{month}-10", WEIGHTS)
        (stumbles / "fail").touch()
        start(sqlite_url)
        result = application(redis_url).send_task("rewards", headers=headers(SLOT)).get(timeout=60)
        assert result["worked"] == 2
        assert "retried" in ledger_of(redis_url)
        assert settled_in(store) == ["2024-01", "2024-02"]


def test_a_run_by_hand_is_judged_by_now_and_a_slot_still_to_come_by_now_too(
    sqlite_url: str, start: Callable[[str], Worker], redis_url: str
) -> None:
    with Store.open(sqlite_url) as store:
        answered(store, "2024-01-10", WEIGHTS)
        start(sqlite_url)
        client = application(redis_url)
        rehearsed = client.send_task("rewards", kwargs={"dry_run": True}).get(timeout=60)
        ahead = client.send_task("rewards", headers=headers(at("2099-01-01"))).get(timeout=60)
        assert ahead["worked"] == rehearsed["due"] > 24
        assert client.send_task("rewards").get(timeout=60)["worked"] == 0
        assert len(settled_in(store)) == rehearsed["due"]


def settled_in(store: Store) -> list[str]:
    with store.reading() as session:
        found = session.connection().exec_driver_sql("SELECT period FROM settlement ORDER BY period")
        return [str(period) for (period,) in found]
