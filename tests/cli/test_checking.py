"""`check`: what a crash can cost, and what is wrong before it hurts."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from celery_lease._checkup import Checkup, JobCheck, examine
from celery_lease._jobs import leased_tasks
from tests.cli.command import Lease
from tests.support.leases import leased, make_app
from tests.support.servers import Server
from tests.support.workers import ROOT

ALL = "all is well"


def check(
    url: str, *, every: float = 900, seconds: float = 300, limit: float | None = 780, **settings: Any
) -> Checkup:
    """Examine an app whose leased task `job` is due every so many seconds."""
    entry = {"task": "job", "schedule": every, "options": {"expires": every}}
    entry |= settings.pop("entry", {})
    app = make_app(url, lease_seconds=seconds, beat_schedule={"entry": entry}, **settings)
    leased(app, time_limit=limit, acks_late=True)(body)
    return examined(app)


def examined(app: Any) -> Checkup:
    """Without the shared tasks of other tests' modules, which belong to every app of this process."""
    ours = {"job", "export", "one", "two", "three"}
    for name in [task.name for task in leased_tasks(app) if task.name not in ours]:
        app.tasks.unregister(name)
    return examine(app)


def body() -> None: ...


def other() -> None: ...


def job(checkup: Checkup) -> JobCheck:
    [found] = checkup.jobs
    return found


def test_a_sound_schedule_is_well(redis_url: str) -> None:
    checkup = check(redis_url)
    assert checkup.ok, checkup.wrong
    assert (job(checkup).lease, job(checkup).hard_limit, job(checkup).expires) == ("job", 780, "900 s")


@pytest.mark.parametrize(
    ("every", "kill", "power"), [(900, 0, 1), (300, 0, 1), (250, 0, 2), (60, 0, 5), (10, 0, 30), (3, 3, 100)]
)
def test_the_ticks_that_a_crash_costs_follow_from_interval_grace_and_lease(
    redis_url: str, every: float, kill: int, power: int
) -> None:
    found = job(check(redis_url, every=every))
    assert (found.ticks_lost_to_a_kill, found.ticks_lost_to_power_loss) == (kill, power)


def test_a_lease_longer_than_the_interval_is_wrong(redis_url: str) -> None:
    [wrong] = check(redis_url, every=60).wrong
    assert "due every 60 s, and a lease lasts 300 s" in wrong


def test_a_leased_task_without_a_hard_time_limit_is_wrong_also_outside_of_the_schedule(
    redis_url: str,
) -> None:
    app = make_app(redis_url, beat_schedule={})
    leased(app)(body)
    [wrong] = examined(app).wrong
    assert wrong.startswith("job: it has no hard time limit")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"limit": 4000}, "not below the broker's visibility timeout of 3600 s"),
        ({"broker_transport_options": {"visibility_timeout": 600}}, "visibility timeout of 600 s"),
        (
            {"entry": {"options": {"time_limit": 14, "expires": 900}}},
            "may end it while it waits for a dead holder; give it 15 s",
        ),
        ({"entry": {"options": {}}}, "its messages never expire"),
        ({"entry": {"task": "jbo"}}, "the task 'jbo' is not known to this app"),
        ({"entry": {"args": [1]}}, ""),
    ],
)
def test_what_is_wrong_is_said_by_name(redis_url: str, settings: dict[str, Any], said: str) -> None:
    wrong = check(redis_url, **settings).wrong
    assert (said in "\n".join(wrong)) if said else not wrong


def test_the_visibility_timeout_does_not_matter_to_a_broker_without_one(redis_url: str) -> None:
    assert check(redis_url, limit=4000, broker_url="amqp://nowhere", lease_url=redis_url).ok


def test_messages_of_the_leased_scheduler_expire_by_themselves(redis_url: str) -> None:
    scheduler = "celery_lease.beat:LeasedScheduler"
    checkup = check(redis_url, entry={"options": {}}, beat_scheduler=scheduler)
    assert checkup.ok, checkup.wrong
    assert job(checkup).expires == "interval"


def test_arguments_that_do_not_fit_the_lease_are_wrong(redis_url: str) -> None:
    entry = {"task": "export", "schedule": 900.0, "options": {"expires": 900}}
    app = make_app(redis_url, beat_schedule={"nobody": entry})
    leased(app, name="export", lease="export:{tenant}", time_limit=60)(of_tenant)
    [wrong] = examined(app).wrong
    assert "its arguments give no lease: missing a required argument: 'tenant'" in wrong


def of_tenant(tenant: str) -> str:
    return tenant


def test_two_tasks_of_one_lease_are_wrong_and_so_is_the_name_of_beats_own(redis_url: str) -> None:
    app = make_app(redis_url)
    leased(app, name="one", time_limit=60)(body)
    leased(app, name="two", lease="one", time_limit=60)(other)
    leased(app, name="three", lease="beat", time_limit=60)(other)
    assert examined(app).wrong == [
        "the tasks one, two take one lease, 'one', so they skip each other",
        "the lease 'beat' is beat's own; the task three needs another one",
    ]


@pytest.mark.parametrize(
    ("options", "ok"),
    [
        (["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"], False),
        (["--maxmemory", "50mb", "--maxmemory-policy", "volatile-ttl"], False),
        (["--maxmemory", "50mb", "--maxmemory-policy", "noeviction"], True),
        (["--maxmemory-policy", "allkeys-lru"], True),
    ],
)
def test_a_store_that_evicts_leases_is_wrong(
    start_server: Callable[..., Server], options: list[str], *, ok: bool
) -> None:
    checkup = check(start_server(*options).url)
    assert checkup.ok is ok, checkup.wrong
    assert options[-1] in checkup.facts["eviction policy"]


def test_the_command_prints_it_and_its_exit_code_says_whether_something_is_wrong(lease: Lease) -> None:
    done = lease("check")
    assert done.code == 1
    assert "wrong: sleep: it has no hard time limit" in done.out
    answer = lease("check", "--json")
    assert (answer.code, answer.json["ok"]) == (1, False)
    assert {"job", "lease", "interval", "ticks_lost_to_a_kill", "hard_limit"} <= answer.json["jobs"][0].keys()


def test_the_application_itself_is_well(redis_url: str) -> None:
    lease = Lease({"REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)})
    done = lease.application("check")
    assert done.code == 0, done.out + done.err
    assert ALL in done.out
    facts = lease.application("check", "--json").json
    assert {entry["job"] for entry in facts["jobs"]} >= {"curation", "watchdog"}
    assert json.dumps(facts)
