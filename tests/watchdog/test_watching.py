"""A patrol against a real store: what is gathered, what is written down, and what is found."""

import socket
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from celery import Celery

from celery_lease import LeaseError
from celery_lease._ledger import Ledger
from celery_lease._store import store_of
from celery_lease.watchdog import Finding, watch
from tests.nodes.waiting import wait_until
from tests.support.leases import Job, leased

StartApp = Callable[..., Celery]
StartJob = Callable[..., Job]


def body() -> None: ...


def of_tenant(tenant: str) -> str:
    return tenant


def scheduled(start_app: StartApp, every: float = 3600, **settings: Any) -> Celery:
    """An app whose leased task `job` is due every so many seconds."""
    app = start_app(beat_schedule={"job": {"task": "job", "schedule": every}}, **settings)
    leased(app)(body)
    return app


def rules(findings: list[Finding]) -> set[str]:
    return {finding.rule for finding in findings}


def seen_long_ago(client: Any, entry: str = "job", hours: float = 100) -> None:
    """The watchdog has seen the entry for so long."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    client.hset("cron:{watchdog}:seen", entry, f"{now - round(hours * 3600_000)} {now}")


def test_on_the_first_day_nothing_is_wrong(start_app: StartApp) -> None:
    app = scheduled(start_app)
    assert watch(app) == []
    assert watch(app) == []


def test_skips_alone_make_a_finding(start_app: StartApp, start_job: StartJob) -> None:
    app = scheduled(start_app)
    job = start_job(app)
    job.acquire()
    for _ in range(3):
        job.refused()
    [finding] = watch(app)
    assert (finding.job, finding.rule) == ("job", "skips")
    assert "task one on w@here (pid 7)" in finding.what


def test_an_old_lock_that_nobody_releases_is_found_by_the_third_tick(
    start_app: StartApp, start_job: StartJob, client: Any
) -> None:
    app = scheduled(start_app)
    job = start_job(app)
    client.set(job.keys.lease, "1757851200000", ex=3 * 3600)
    found = []
    for _ in range(3):
        job.refused()
        found.append(rules(watch(app)))
    assert found == [set(), set(), {"skips"}]


def test_a_job_that_nobody_runs_is_overdue_and_its_slots_are_written_down(
    start_app: StartApp, start_job: StartJob, client: Any
) -> None:
    app = scheduled(start_app)
    seen_long_ago(client, hours=5)
    assert rules(watch(app)) == {"overdue", "missed"}
    job = start_job(app)
    slots = [record["slot"] for record in job.records]
    assert 3 <= len(slots) <= 4
    assert job.outcomes == ["missed"] * len(slots)
    assert {int(later) - int(earlier) for earlier, later in pairwise(slots)} == {3600}
    watch(app)
    assert [record["slot"] for record in job.records] == slots, "each is written down once"


def test_a_run_whose_lease_is_gone_is_closed_at_the_second_look(
    start_app: StartApp, start_job: StartJob
) -> None:
    app = scheduled(start_app, lease_seconds=1)
    job = start_job(app)
    _, grant = job.acquire()
    assert watch(app) == []
    job.expire()
    assert watch(app) == [], "one look proves nothing"
    wait_until(lambda: "abandoned" in rules(watch(app)))
    [record] = job.records
    assert (record["outcome"], record["fence"], record["task_id"]) == ("abandoned", str(grant.fence), "one")
    assert Ledger(store_of(app)).state("job").open_run is None


def test_between_the_two_looks_a_living_run_has_the_time_to_retake_its_lease(
    start_app: StartApp, start_job: StartJob
) -> None:
    job = start_job(start_app())
    claim, grant = job.acquire()

    def look(seconds: float) -> str:
        return job.store.abandon("job", leaseless_seconds=seconds, unconnected_seconds=0)

    assert look(0) == "open"
    job.expire()
    assert [look(60), look(60)] == ["missing", "missing"]
    assert job.renew(claim, grant) == "retaken"
    assert look(0) == "open"
    job.expire()
    assert look(0) == "missing", "the looks begin anew"
    assert job.outcomes == []
    assert [look(0), look(0)] == ["abandoned", "none"]
    assert job.outcomes == ["abandoned"]


def test_a_run_whose_process_is_gone_is_closed_before_its_lease_ends(
    start_app: StartApp, start_job: StartJob, client: Any
) -> None:
    app = scheduled(start_app, lease_seconds=3, lease_alert_after_skips=99)
    job = start_job(app)
    claim, grant = job.acquire()
    client.hset(job.keys.lease, "alive", f"{job.keys.lease}:alive:nobody")
    client.persist(job.keys.lease)
    watch(app)
    wait_until(lambda: "abandoned" in rules(watch(app)))
    assert job.held["token"] == claim.token, "the lease is left to those who want it"
    assert job.held["fence"] == str(grant.fence)


def test_a_run_that_lives_is_left_alone(start_app: StartApp) -> None:
    app = scheduled(start_app, lease_seconds=1)

    @leased(app, name="long")
    def long() -> list[Finding]:
        watch(app)
        return watch(app)

    assert long.apply().get() == []
    assert Ledger(store_of(app)).history("long")[0].outcome == "ran"


def test_a_task_that_no_worker_announced_is_named(start_app: StartApp, client: Any) -> None:
    app = start_app(beat_schedule={"typo": {"task": "jbo", "schedule": 60.0}})
    seen_long_ago(client, "typo")
    assert watch(app) == [], "nobody ever announced anything"
    store_of(app).announce(["job"], keep_seconds=60)
    [finding] = watch(app)
    assert (finding.job, finding.rule) == ("typo", "unregistered")
    store_of(app).announce(["jbo"], keep_seconds=60)
    assert watch(app) == []


def test_what_workers_no_longer_announce_is_forgotten(start_app: StartApp, client: Any) -> None:
    store = store_of(start_app())
    store.announce(["old"], keep_seconds=60)
    client.zadd("cron:{watchdog}:registered", {"old": 1.0})
    store.announce(["new"], keep_seconds=60)
    assert store.registered() == {"new"}


def test_an_entry_that_was_away_while_others_were_seen_starts_anew(start_app: StartApp, client: Any) -> None:
    store = store_of(start_app())
    now, since = store.seen(["here", "away"], 3600)
    assert since == {"here": now, "away": now}
    ms = round(now * 1000)
    client.hset("cron:{watchdog}:seen", mapping={"here": f"1 {ms}", "away": f"1 {ms - 3601_000}"})
    _, since = store.seen(["here", "away"], 3600)
    assert since["here"] == 0.001
    assert since["away"] >= now


def test_an_outage_of_everything_is_no_new_beginning(start_app: StartApp, client: Any) -> None:
    store = store_of(start_app())
    long_ago = "1757851200000"
    client.hset("cron:{watchdog}:seen", mapping={"job": f"1 {long_ago}", "": long_ago})
    assert store.seen(["job"], 3600)[1] == {"job": 0.001}


def test_a_ledger_that_cannot_be_read_is_a_finding_and_hides_no_other(
    start_app: StartApp, start_job: StartJob, client: Any
) -> None:
    app = scheduled(start_app)
    broken, job = start_job(app, "broken"), start_job(app)
    broken.run()
    client.xadd(broken.keys.runs, {"outcome": "ran", "ended": "yesterday"})
    job.acquire()
    for _ in range(3):
        job.refused()
    assert [(finding.job, finding.rule) for finding in watch(app)] == [
        ("broken", "unreadable"),
        ("job", "skips"),
    ]


def test_without_the_store_a_patrol_says_so_instead_of_finding_nothing(start_app: StartApp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    app = scheduled(start_app, lease_url=f"redis://127.0.0.1:{port}/0")
    with pytest.raises(LeaseError):
        watch(app)


def test_an_entrys_arguments_say_which_lease_it_is_about(start_app: StartApp, start_job: StartJob) -> None:
    entry = {"task": "export", "schedule": 3600.0, "kwargs": {"tenant": "acme"}}
    app = start_app(beat_schedule={"acme": entry})
    leased(app, name="export", lease="export:{tenant}")(of_tenant)
    job = start_job(app, "export:acme")
    job.acquire()
    for _ in range(3):
        job.refused()
    assert [(finding.job, finding.rule) for finding in watch(app)] == [("export:acme", "skips")]
