"""`ls`, `show`, `history` and `watch`: what the ledger says, for people and for machines."""

import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.command import COMMAND, Lease
from tests.nodes.waiting import wait_until
from tests.run.terminal import CTRL_C, Terminal
from tests.support.leases import Job
from tests.support.servers import Server
from tests.support.site import Site

SCHEDULE = {"beat_schedule": {"every": {"task": "counts", "schedule": 3600, "args": [1, 2]}}}
SCHEDULED = {"PROBE_CONF": json.dumps(SCHEDULE)}
STARS = re.compile(r"\x1b\[")


def test_before_the_first_run_there_is_nothing_to_list(lease: Lease) -> None:
    assert lease("ls") == (0, "no job has run yet, and none is in the schedule\n", "")
    assert lease("ls", "--json").json == []


def test_a_job_is_listed_with_what_was_done_and_not_with_what_was_tried(lease: Lease, job: Job) -> None:
    job.run(backlog=7)
    job.acquire()
    for _ in range(2):
        job.refused()
    head, row = lease("ls").out.splitlines()
    assert re.split(r"\s{2,}", head) == ["JOB", "LAST REAL RUN", "SKIPS", "LEFT", "NEXT", "HELD BY"]
    assert re.fullmatch(r"counts +\d s ago +2 +7 +w@here, \d s", row)


def test_a_job_of_the_schedule_is_listed_before_it_ever_ran(lease: Lease) -> None:
    assert re.search(r"^counts +never +0 +in \d+ (min|s)$", lease("ls", **SCHEDULED).out, re.MULTILINE)


def test_an_old_string_lock_is_listed_as_held(lease: Lease, job: Job) -> None:
    job.run()
    job.client.set(job.keys.lease, "1757851200000")
    assert "an unknown holder" in lease("ls").out


def test_an_open_alert_is_shown_under_the_list(lease: Lease, job: Job) -> None:
    job.run()
    job.store.hand_out({"skips counts": "12 skips in a row"}, remind_seconds=1, patience_seconds=1)
    assert "counts: skips: 12 skips in a row" in lease("ls").out
    assert lease("ls", "--json").json[0]["alerts"][0]["rule"] == "skips"


def test_every_table_fits_eighty_columns(lease: Lease, job: Job, site: Site) -> None:
    long = Job(job.store, site.leases, "a-name-that-goes-on-and-on-" * 4)
    long.acquire(holder={"worker": "a-worker-with-a-long-name@a-host-with-a-long-name" * 2})
    long.refused()
    for command in (["ls"], ["history", long.keys.name], ["check"]):
        lines = lease(*command, **SCHEDULED).out.splitlines()
        table = [line for line in lines if not line.startswith("wrong:")]
        assert max(map(len, table)) <= 80, command
    assert "…" in lease("ls").out


def test_the_list_for_machines_has_instants_and_numbers(lease: Lease, job: Job) -> None:
    job.run(backlog=7)
    claim, grant = job.acquire()
    [row] = lease("ls", "--json", **SCHEDULED).json
    assert (row["job"], row["streak"], row["backlog"], row["totals"]) == ("counts", 0, 7, {"ran": 1})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", row["last_ran"])
    assert row["next_due"].endswith(":00:00Z")
    assert row["open_run"]["fence"] == grant.fence
    assert row["holder"]["token_prefix"] == claim.token[:8]
    assert claim.token not in json.dumps(row)


def test_one_job_is_shown_with_its_key_its_holder_and_its_last_runs(lease: Lease, job: Job) -> None:
    job.run()
    claim, _ = job.acquire()
    shown = lease("show", "counts").out
    assert "cron:{counts}" in shown
    assert "task one on w@here (pid 7)" in shown
    assert f"token {claim.token[:8]}…" in shown
    assert claim.token not in shown
    assert "whether its process lives cannot be told" in shown
    assert re.search(r"ran +0\.0 s +1", shown)


def test_a_holder_that_runs_is_shown_as_connected(lease: Lease, site: Site) -> None:
    site.start_worker()
    site.occupy()
    assert "its process is connected" in lease("show", "barrier").out
    assert lease("show", "barrier", "--json").json["holder"]["connected"] == "1"
    site.open()


def test_the_history_is_newest_first_and_limited(lease: Lease, job: Job) -> None:
    for outcome in ("ran", "failed", "retried"):
        job.run(outcome)
    job.acquire()
    job.refused()
    records = lease("history", "counts", "--json").json
    assert [record["outcome"] for record in records] == ["skipped_locked", "retried", "failed", "ran"]
    assert records[0]["held_by"] == "one"
    assert [record["outcome"] for record in lease("history", "counts", "--limit", "1", "--json").json] == [
        "skipped_locked"
    ]
    assert "held by one" in lease("history", "counts").out


@pytest.mark.parametrize("command", ["show", "history"])
def test_an_unknown_name_gets_a_hint(lease: Lease, job: Job, command: str) -> None:
    job.run()
    done = lease(command, "count")
    assert done.code == 1
    assert "did you mean 'counts'?" in done.err
    assert lease(command, "count", "--json").json["error"] == "unknown_job"


@pytest.mark.parametrize(
    "command", [["ls"], ["show", "x"], ["history", "x"], ["check"], ["break", "x", "--force"]]
)
def test_a_store_that_does_not_answer_is_a_code_of_its_own(command: list[str], server: Server) -> None:
    lease = Lease({"PROBE_URL": server.url})
    server.close()
    done = lease(*command, "--json")
    assert done.code == 69
    assert done.json["error"] == "lock_unavailable"
    assert "the lease store does not answer" in lease(*command).err


def test_colours_are_for_terminals_that_want_them(
    lease: Lease, job: Job, in_terminal: Callable[..., Terminal]
) -> None:
    job.acquire()
    job.refused()
    assert not STARS.search(lease("history", "counts").out)
    for no_color, coloured in (("", True), ("1", False)):
        terminal = in_terminal("history", "counts", NO_COLOR=no_color)
        assert terminal.ends() == 0
        assert bool(STARS.search(terminal._output.decode())) is coloured


def test_watching_follows_the_ledger_until_ctrl_c(job: Job, in_terminal: Callable[..., Terminal]) -> None:
    job.run()
    terminal = in_terminal("watch", "--every", "0.1")
    terminal.expect(r"counts +\d s ago +0")
    job.acquire()
    job.refused()
    terminal.expect(r"counts +\d+ s ago +1")
    terminal.press(CTRL_C)
    assert terminal.ends() == 0


def test_watching_goes_on_without_the_store(
    server: Server, start_process: Callable[..., Any], lease: Lease
) -> None:
    environment = lease.environment | {"PROBE_URL": server.url, "PROBE_LEASE_URL": server.url}
    process = start_process(*COMMAND, "watch", "--every", "0.1", "--json", **environment)
    process.wait_for(r"\[\]")
    server.close()
    process.wait_for("does not answer")
    server.start()
    before = process.count(r"\[\]")
    wait_until(lambda: process.count(r"\[\]") > before)
    os.kill(process.pid, signal.SIGINT)
