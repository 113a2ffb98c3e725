"""What a worker says at its start about settings that would hurt a leased job later."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from celery_lease._clients import CALL_SECONDS
from tests.nodes.missing import needs_package
from tests.nodes.ports import free_port
from tests.support.servers import Server
from tests.support.site import ALONE
from tests.support.workers import Worker

Start = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def start(start_worker: Callable[..., Worker], redis_url: str) -> Start:
    """Start a worker of the app; what the library said until it was ready, as (level, line)."""

    def start(
        *options: str, conf: dict[str, Any] | None = None, task: dict[str, Any] | None = None, **urls: str
    ) -> list[tuple[str, str]]:
        settings = {
            "lease_url": urls.get("leases", redis_url),
            "task_reject_on_worker_lost": True,
            **(conf or {}),
        }
        worker = start_worker(
            *ALONE,
            *options,
            app="tests.startup.jobs",
            STARTUP_BROKER=urls.get("broker", redis_url),
            STARTUP_CONF=json.dumps({"worker_log_format": "%(levelname)s %(name)s %(message)s", **settings}),
            STARTUP_OPTIONS="none" if task is None else json.dumps(task),
        )
        return re.findall(r"^(\w+) celery_lease (.*)$", worker.log(), re.MULTILINE)

    return start


def test_a_worker_with_sound_settings_has_nothing_to_say(start: Start) -> None:
    sound = {"time_limit": 600, "soft_time_limit": 500, "acks_late": True, "default_retry_delay": 60}
    assert start(task=sound) == []


def test_a_worker_without_leased_jobs_has_nothing_to_say(start: Start) -> None:
    assert start("-P", "threads", conf={"lease_url": f"redis://127.0.0.1:{free_port()}/0"}) == []


@pytest.mark.parametrize(
    ("task", "numbers"),
    [
        ({"time_limit": 7200}, ["3600 s", "nightly", "7200 s", "above 7200"]),
        ({"time_limit": 7200, "acks_late": True}, ["3600 s", "nightly", "7200 s", "above 7200"]),
        ({"acks_late": True}, ["3600 s", "nightly", "as long as it likes", "time_limit"]),
        ({"default_retry_delay": 5000}, ["3600 s", "nightly", "5000 s", "above 5000", "default_retry_delay"]),
    ],
)
def test_a_visibility_timeout_that_is_too_short_is_named_beside_what_it_is_too_short_for(
    start: Start, task: dict[str, Any], numbers: list[str]
) -> None:
    [(level, line)] = start(task=task)
    assert level == "WARNING"
    assert "visibility_timeout" in line
    assert [number for number in numbers if number not in line] == []


def test_the_visibility_timeout_is_the_configured_one(start: Start) -> None:
    conf = {"broker_transport_options": {"visibility_timeout": 100}}
    [(_, line)] = start(conf=conf, task={"time_limit": 101, "default_retry_delay": 100})
    assert "100 s" in line
    assert start(conf=conf, task={"time_limit": 100, "default_retry_delay": 100}) == []


def test_the_limits_on_the_command_line_count_for_jobs_without_their_own(start: Start) -> None:
    [(_, line)] = start("--time-limit=7200", task={})
    assert "nightly may run for 7200 s" in line
    assert start("--time-limit=7200", task={"time_limit": 60}) == []
    [(level, line)] = start("--soft-time-limit=12", task={})
    assert level == "WARNING"
    assert [part for part in ("soft time limit is 12 s", "15 s or more", "nightly") if part not in line] == []


@pytest.mark.parametrize("pool", ["threads", "solo", "eventlet"])
def test_a_limit_that_the_pool_does_not_enforce_is_named(start: Start, pool: str) -> None:
    if pool == "eventlet":
        needs_package(pool)
    [(level, line)] = start("-P", pool, task={"time_limit": 600, "soft_time_limit": 500})
    assert level == "WARNING"
    wanted = (
        "pool does not enforce",
        "nightly (time_limit 600 s)",
        "nightly (soft_time_limit 500 s)",
        "prefork",
    )
    assert [part for part in wanted if part not in line] == []
    assert start("-P", pool, task={}) == []


def test_the_gevent_pool_enforces_hard_limits_but_no_soft_ones(start: Start) -> None:
    needs_package("gevent")
    assert start("-P", "gevent", task={"time_limit": 600}) == []
    [(level, line)] = start("-P", "gevent", task={"time_limit": 600, "soft_time_limit": 500})
    assert level == "WARNING"
    assert "nightly (soft_time_limit 500 s)" in line


def test_late_acknowledgement_without_repetition_is_mentioned(start: Start) -> None:
    conf = {"task_reject_on_worker_lost": False}
    [(level, line)] = start(conf=conf, task={"acks_late": True, "time_limit": 60})
    assert level == "INFO"
    assert "task_reject_on_worker_lost" in line
    assert "nightly" in line


def test_a_store_that_may_evict_leases_is_named_with_its_policy(
    start: Start, start_server: Callable[..., Server]
) -> None:
    full = start_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    [(level, line)] = start(task={}, leases=full.url)
    assert level == "WARNING"
    wanted = ("maxmemory 104857600 bytes", "allkeys-lru", "maxmemory-policy to noeviction")
    assert [part for part in wanted if part not in line] == []
    with full.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
    assert start(task={}, leases=full.url) == []
    with full.client() as client:
        client.config_set("maxmemory-policy", "volatile-ttl")
        client.config_set("maxmemory", 0)
    assert start(task={}, leases=full.url) == [], "without a limit nothing is evicted"


def test_a_user_who_may_not_ask_about_the_memory_is_left_in_peace(
    start: Start, start_server: Callable[..., Server]
) -> None:
    server = start_server("--user", "keeper", "on", ">secret", "~*", "&*", "+@all", "-info")
    assert start(task={}, leases=server.url.replace("//", "//keeper:secret@")) == []


def test_a_store_that_does_not_answer_is_named_and_the_worker_starts(start: Start) -> None:
    (level, line), *_ = start(task={}, leases=f"redis://127.0.0.1:{free_port()}/0")
    assert level == "WARNING"
    assert "leased tasks cannot run as things are: ConnectionError" in line


def test_a_frozen_store_delays_the_start_by_no_more_than_one_call(start: Start, server: Server) -> None:
    assert start(task={}, leases=server.url) == []
    server.freeze()
    began = time.monotonic()
    (_, line), *_ = start(task={}, leases=server.url)
    assert time.monotonic() - began < CALL_SECONDS + 4  # the rest is a worker's start
    assert "leased tasks cannot run as things are: TimeoutError" in line


def test_settings_that_cannot_be_right_are_named_and_the_worker_starts(start: Start) -> None:
    (level, line), *_ = start(task={}, conf={"lease_history": 0})
    assert level == "WARNING"
    assert "lease_history must be a whole number of at least 1, not 0" in line
