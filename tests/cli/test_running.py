"""`run`: a job in the terminal, under the lease that a worker would take."""

import json
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.command import COMMAND, Done, Lease
from tests.nodes.waiting import wait_until
from tests.run.terminal import CTRL_C, Terminal
from tests.support.leases import Job
from tests.support.servers import Server
from tests.support.site import Site

InTerminal = Callable[..., Terminal]


def fill(site: Site, *items: str) -> None:
    site.side.rpush("items", *items)


def run_counts(lease: Lease, *options: str, worked: int = 3, backlog: int = 0) -> Done:
    return lease("run", "counts", "--arg", f"worked={worked}", "--arg", f"backlog={backlog}", *options)


# --- one pass -------------------------------------------------------------------------------------------


def test_a_run_in_the_terminal_is_a_run_like_any_other(lease: Lease, site: Site) -> None:
    done = run_counts(lease, backlog=7)
    assert done.code == 0
    assert done.out.startswith("counts: ran (worked 3, left 7, ")
    [record] = site.records("counts")
    assert (record["outcome"], record["worked"], record["backlog"]) == ("ran", "3", "7")
    assert record["worker"] == f"terminal@{socket.gethostname()}"
    assert site.ledger("counts")["last_ran"] == record["ended"]
    assert site.held("counts") == {}


def test_no_broker_and_no_result_backend_take_part(site: Site) -> None:
    nowhere = "redis://127.0.0.1:1/0"
    lease = Lease({**site.environment, "PROBE_URL": nowhere, "PROBE_BACKEND": nowhere})
    assert run_counts(lease).code == 0


def test_the_answer_for_machines_is_the_one_of_the_web(lease: Lease) -> None:
    answer = run_counts(lease, "--json", backlog=7).json
    assert {"job", "outcome", "reason", "holder", "result"} <= answer.keys()
    assert (answer["job"], answer["outcome"]) == ("counts", "ran")
    assert answer["result"] == {"worked": 3, "backlog": 7}


def test_a_body_that_raises_is_a_failure(lease: Lease, site: Site) -> None:
    done = lease("run", "fail", "--arg", "message=oh no")
    assert done.code == 1
    assert "fail failed: ValueError: oh no" in done.err
    assert "Traceback" in done.err
    assert site.outcomes("fail") == ["failed"]
    assert lease("run", "fail", "--json").json["error"] == "failed"


def test_a_retrying_body_fails_here_as_in_a_plain_call(lease: Lease, site: Site) -> None:
    assert lease("run", "autoretry", "--arg", "times=1").code == 1
    assert site.outcomes("autoretry") == ["failed"]


@pytest.mark.parametrize(
    ("given", "meant"), [("acme", "export:acme"), ("7", "export:7"), ('"7"', 'export:"7"')]
)
def test_an_argument_is_json_or_else_text_and_names_the_lease(
    lease: Lease, site: Site, given: str, meant: str
) -> None:
    assert lease("run", "per_tenant", "--arg", f"tenant={given}").code == 0
    assert site.leases.smembers("cron:jobs") == {meant}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "conuts"], "did you mean 'counts'?"),
        (["run", "plain"], "is a plain task without a lease"),
        (["run", "counts"], "missing a required argument: 'worked'"),
        (["run", "counts", "--arg", "worked"], "is not of the form name=value"),
        (
            ["run", "counts", "--dry-run", "--arg", "worked=1", "--arg", "backlog=0"],
            "takes no argument dry_run",
        ),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(
    lease: Lease, site: Site, arguments: list[str], said: str
) -> None:
    done = lease(*arguments)
    assert done.code == 2
    assert said in done.err
    assert site.leases.smembers("cron:jobs") == set()


# --- not run --------------------------------------------------------------------------------------------


def test_a_held_lease_is_a_skip_that_names_its_holder(lease: Lease, job: Job) -> None:
    job.acquire()
    done = run_counts(lease)
    assert done.code == 75
    assert done.err.startswith("not run: locked (held by task one on w@here (pid 7) since ")
    assert done.err.endswith("; --no-lock overrides)\n")
    assert job.outcomes == ["skipped_locked"]
    answer = run_counts(lease, "--json")
    assert answer.code == 75
    assert (answer.json["error"], answer.json["outcome"]) == ("locked", "skipped_locked")
    assert answer.json["holder"]["task_id"] == "one"


@pytest.mark.parametrize("fault", ["close", "freeze"])
def test_without_the_store_nothing_runs_and_that_is_no_lock(server: Server, fault: str) -> None:
    lease = Lease({"PROBE_URL": server.url})
    getattr(server, fault)()
    done = run_counts(lease)
    assert done.code == 69
    assert done.err.startswith("not run: lock_unavailable (")
    assert run_counts(lease, "--json").json["error"] == "lock_unavailable"


def test_a_worker_that_holds_the_lease_is_waited_for_by_nobody(lease: Lease, site: Site) -> None:
    site.start_worker()
    site.occupy()
    assert lease("run", "barrier").code == 75
    site.open()


def test_a_worker_finds_the_lease_of_a_terminal_taken(site: Site, in_terminal: InTerminal) -> None:
    fill(site, "gate")
    site.start_worker()
    terminal = in_terminal("run", "batch")
    site.entered()
    with pytest.raises(Exception, match=r"a run outside Celery on terminal@"):
        site.send("batch").get(timeout=20)
    site.side.lpush("gate", "go")
    terminal.expect("batch: ran")


# --- dry run --------------------------------------------------------------------------------------------


def test_a_dry_run_is_under_the_lease_and_is_not_real(lease: Lease, site: Site) -> None:
    fill(site, "a", "b")
    done = lease("run", "batch", "--dry-run")
    assert done.code == 0
    assert "batch: dry_run (worked 2, left 2" in done.out
    assert site.side.llen("items") == 2
    assert site.outcomes("batch") == ["dry_run"]
    assert "last_ran" not in site.ledger("batch")
    assert "backlog" not in site.ledger("batch")


# --- draining -------------------------------------------------------------------------------------------


def test_draining_is_many_passes_under_one_lease(lease: Lease, site: Site) -> None:
    fill(site, *"abcdefgh")
    done = lease("run", "batch", "--drain")
    assert done.code == 0
    assert "batch: ran (3 passes, worked 8, left 0" in done.out
    assert "stopped, because nothing is left" in done.out
    [record] = site.records("batch")
    assert (record["worked"], record["backlog"]) == ("8", "0")
    side: Any = site.side
    assert {entry["fence"] for _, entry in side.xrange("batch")} == {record["fence"]}


def test_draining_shows_how_far_it_is(lease: Lease, site: Site) -> None:
    fill(site, *"abcdefgh")
    shown = lease("run", "batch", "--drain").err.splitlines()
    assert [line.split("  pass")[0] for line in shown] == [
        "[#########...............]  38%",
        "[##################......]  75%",
        "[########################] 100%",
    ]
    assert "pass 1: 3 done, " in shown[0]
    assert "/s, 5 left, " in shown[0]
    assert "to go" in shown[0]


def test_draining_stops_when_a_pass_makes_no_progress_and_says_so(lease: Lease) -> None:
    stuck = run_counts(lease, "--drain", worked=0, backlog=7)
    assert stuck.code == 0
    assert "stopped, because the last pass made no progress, and 7 are left" in stuck.out
    busy = run_counts(lease, "--drain", "--json", worked=3, backlog=7).json
    assert (busy["passes"], busy["worked"]) == (2, 6), "work that leaves as much as before is no progress"


def test_a_job_that_does_not_say_what_is_left_is_drained_in_one_pass(lease: Lease) -> None:
    answer = lease("run", "burn", "--arg", "seconds=0", "--drain", "--json").json
    assert (answer["passes"], answer["stopped"]) == (1, "the job does not say what is left")


def test_a_pass_that_fails_ends_the_drain(lease: Lease, site: Site) -> None:
    site.side.set("items", "no list")
    assert lease("run", "batch", "--drain").code == 1
    assert site.outcomes("batch") == ["failed"]


# --- Ctrl-C ---------------------------------------------------------------------------------------------


def test_ctrl_c_ends_after_the_current_item_and_gives_the_lease_back(
    site: Site, in_terminal: InTerminal
) -> None:
    fill(site, "a", "b", "c", "gate", "d", "e")
    terminal = in_terminal("run", "batch", "--drain")
    site.entered()
    terminal.press(CTRL_C)
    terminal.expect("stopping after the current item")
    site.side.lpush("gate", "go")
    terminal.expect("interrupted")
    assert terminal.ends() == 130
    assert site.side.lrange("items", 0, -1) == ["d", "e"], "the item under way came to its end"
    [record] = site.records("batch")
    assert (record["outcome"], record["worked"]) == ("ran", "3"), "of the whole passes"
    assert site.held("batch") == {}


def test_ctrl_c_in_the_first_pass_is_no_real_run(site: Site, in_terminal: InTerminal) -> None:
    fill(site, "gate", "a")
    terminal = in_terminal("run", "batch")
    site.entered()
    terminal.press(CTRL_C)
    terminal.expect("stopping after the current item")
    site.side.lpush("gate", "go")
    terminal.expect("batch: interrupted; the lease is given back")
    assert terminal.ends() == 130
    [record] = site.records("batch")
    assert (record["outcome"], record["error"]) == ("failed", "KeyboardInterrupt")
    assert site.held("batch") == {}


def test_a_second_ctrl_c_ends_at_once(site: Site, in_terminal: InTerminal) -> None:
    fill(site, "gate")
    terminal = in_terminal("run", "batch")
    site.entered()
    terminal.press(CTRL_C)
    terminal.expect("stopping after the current item")
    terminal.press(CTRL_C)
    assert terminal.ends() == 130
    assert site.held("batch") == {}
    assert site.side.lrange("items", 0, -1) == ["gate"]


def test_sigterm_is_as_polite_as_ctrl_c(site: Site, start_process: Callable[..., Any]) -> None:
    fill(site, "gate", "a")
    process = start_process(*COMMAND, "run", "batch", **site.environment)
    site.entered()
    process.signal(signal.SIGTERM)
    process.wait_for("stopping after the current item")
    site.side.lpush("gate", "go")
    wait_until(lambda: not process.is_alive())
    assert site.side.lrange("items", 0, -1) == ["a"]


def test_a_killed_terminal_costs_seconds(site: Site, start_process: Callable[..., Any], lease: Lease) -> None:
    fill(site, "gate")
    process = start_process(*COMMAND, "run", "batch", **site.environment)
    site.entered()
    process.kill_tree()
    site.side.delete("items")
    assert lease("run", "batch").code == 0
    assert site.outcomes("batch") == ["abandoned", "ran"]


# --- without the lease ----------------------------------------------------------------------------------


def test_an_unguarded_run_needs_a_yes_where_nobody_can_be_asked(lease: Lease, job: Job) -> None:
    done = run_counts(lease, "--no-lock")
    assert done.code == 2
    assert "--no-lock needs --yes" in done.err
    assert job.outcomes == []


def test_an_unguarded_run_is_asked_about_at_a_terminal(job: Job, in_terminal: InTerminal) -> None:
    arguments = ["run", "counts", "--no-lock", "--arg", "worked=3", "--arg", "backlog=0"]
    for key, outcomes in ((b"n\n", []), (b"y\n", ["unguarded"])):
        terminal = in_terminal(*arguments)
        terminal.expect("WITHOUT its lease")
        terminal.expect("Run without the lease?")
        terminal.press(key)
        terminal.ends()
        assert job.outcomes == outcomes


def test_an_unguarded_run_beside_a_holder_is_real_and_has_the_newer_fence(lease: Lease, job: Job) -> None:
    claim, grant = job.acquire()
    job.refused()
    done = run_counts(lease, "--no-lock", "--yes", backlog=7)
    assert done.code == 0
    assert "WITHOUT its lease" in done.err
    ledger, record = job.ledger, job.records[-1]
    assert record["outcome"] == "unguarded"
    assert int(record["fence"]) > grant.fence
    assert (ledger["last_ran"], ledger["streak"], ledger["backlog"]) == (record["ended"], "0", "7")
    assert job.held["token"] == claim.token
    assert job.renew(claim, grant) == "renewed"


def test_an_unguarded_run_that_fails_is_a_failure(lease: Lease, site: Site) -> None:
    assert lease("run", "fail", "--no-lock", "--yes").code == 1
    [record] = site.records("fail")
    assert (record["outcome"], record["unguarded"]) == ("failed", "1")
    assert "last_ran" not in site.ledger("fail")


def test_an_unguarded_run_goes_without_the_store_and_says_what_is_missing(server: Server) -> None:
    lease = Lease({"PROBE_URL": server.url})
    server.close()
    done = run_counts(lease, "--no-lock", "--yes", "--json")
    assert done.code == 0
    assert json.loads(done.out)["outcome"] == "unguarded"
    assert "this run is missing in the ledger" in done.err
