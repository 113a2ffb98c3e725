"""A trigger is queued, or says why not; with `?wait` it says how the run ended."""

import concurrent.futures
import uuid
from collections.abc import Callable

import pytest

from tests.nodes.waiting import wait_until
from tests.support.site import Site
from tests.web.server import Web

MEMBERS = {"job", "id", "outcome", "reason", "holder", "result"}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_trigger_is_accepted_and_its_location_tells_what_becomes_of_it(
    web: Web, site: Site, method: str
) -> None:
    answer = web.ask("/api/cron/barrier", method)
    accepted = answer.response.json()
    assert answer.status == 202
    assert accepted.keys() == MEMBERS
    assert accepted["job"] == "barrier"
    location = answer.response.headers["location"]
    assert location == f"/api/runs/{accepted['id']}"
    assert web.json(location)["state"] == "queued"
    assert web.json(location)["terminal"] is False
    site.start_worker()
    site.entered()
    running = web.json(location)
    assert (running["state"], running["terminal"]) == ("running", False)
    assert running["holder"]["task_id"] == accepted["id"]
    site.open()
    wait_until(lambda: web.json(location)["terminal"])
    ended = web.json(location)
    assert (ended["state"], ended["outcome"], ended["result"]) == ("ended", "ran", "opened")


def test_waiting_answers_with_the_result_of_the_run(web: Web, site: Site) -> None:
    site.start_worker()
    site.open()
    answer = web.trigger("barrier", wait=20)
    assert answer.status == 200
    body = answer.response.json()
    assert (body["job"], body["outcome"], body["reason"], body["result"]) == (
        "barrier",
        "ran",
        None,
        "opened",
    )


def test_waiting_for_a_run_that_fails_is_a_500_that_names_the_exception(web: Web, site: Site) -> None:
    site.start_worker()
    answer = web.trigger("fail", wait=20)
    body = answer.response.json()
    assert answer.status == 500
    assert answer.response.headers["content-type"] == "application/problem+json"
    assert (body["error"], body["outcome"], body["reason"]) == ("failed", "failed", "ValueError")
    assert body.keys() >= MEMBERS | {"type", "title", "status", "detail"}
    assert body["status"] == 500
    assert "on purpose" not in answer.response.text, "an exception's text may hold a secret"


def test_a_wait_that_is_too_short_is_a_202(web: Web, site: Site) -> None:
    site.start_worker()
    answer = web.trigger("barrier", wait=0.5)
    body = answer.response.json()
    assert answer.status == 202
    assert body["outcome"] is None
    assert answer.response.headers["location"] == f"/api/runs/{body['id']}"
    site.open()


def test_a_trigger_under_a_live_run_is_refused_with_its_holder_and_queues_nothing(
    web: Web, site: Site
) -> None:
    site.start_worker()
    first = site.occupy()
    answer = web.trigger("barrier")
    body = answer.response.json()
    assert (answer.status, body["error"], body["outcome"]) == (409, "locked", "skipped_locked")
    assert body["holder"]["task_id"] == first.id
    assert body["holder"].keys() & {"token", "token_prefix", "alive"} == set()
    assert body["id"] is None
    assert site.side.llen("celery") == 0
    site.open()
    first.get(timeout=20)
    assert site.total("barrier", "skipped_locked") == 0


def test_a_run_that_finds_the_lease_taken_ends_the_wait_as_a_409(web: Web, site: Site) -> None:
    worker = site.start_worker(concurrency=1)
    site.send("waits", "worker")
    site.entered("worker")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(web.trigger, "barrier", 20)
        worker.wait_for(r"Task barrier\[.*received")
        site.leases.set(site.key("barrier"), "taken meanwhile")
        site.open("worker")
        answer = waiting.result(30)
    body = answer.response.json()
    assert (answer.status, body["error"], body["outcome"]) == (409, "locked", "skipped_locked")
    assert body["reason"] == "locked"


def test_a_dead_holder_is_no_reason_to_refuse(web: Web, site: Site) -> None:
    worker = site.start_worker()
    site.occupy()
    worker.kill_tree()
    # The store has seen the connection close; the lease itself is still there.
    wait_until(lambda: web.trigger("barrier").status == 202)
    assert site.held("barrier")


def test_an_old_string_lock_is_a_holder_that_nobody_knows(web: Web, site: Site) -> None:
    site.leases.set(site.key("barrier"), "a lock of an older kind")
    answer = web.trigger("barrier")
    assert (answer.status, answer.error) == (409, "locked")
    assert answer.response.json()["holder"] == {}


@pytest.mark.parametrize("job", ["nobody", "plain", "export:acme", "counts"])
def test_only_leased_tasks_that_need_no_arguments_can_be_triggered(web: Web, job: str) -> None:
    answer = web.trigger(job)
    assert (answer.status, answer.error) == (404, "unknown_job")


def test_an_unknown_id_is_a_404_and_never_pending(web: Web) -> None:
    answer = web.ask(f"/api/runs/{uuid.uuid4()}")
    assert (answer.status, answer.error) == (404, "unknown_run")


def test_a_run_that_the_schedule_sent_is_known_while_its_result_is(web: Web, site: Site) -> None:
    site.start_worker()
    site.open()
    sent = site.send("barrier")
    sent.get(timeout=20)
    seen = web.json(f"/api/runs/{sent.id}")
    assert (seen["state"], seen["outcome"], seen["result"]) == ("ended", "ran", "opened")
    sent.forget()
    assert web.ask(f"/api/runs/{sent.id}").error == "unknown_run"


def test_a_triggered_run_is_known_by_its_ledger_when_its_result_has_expired(web: Web, site: Site) -> None:
    site.start_worker()
    site.open()
    run_id = web.trigger("barrier", wait=20).response.json()["id"]
    site.leases.delete(f"celery-task-meta-{run_id}")
    seen = web.json(f"/api/runs/{run_id}")
    assert (seen["state"], seen["outcome"], seen["result"]) == ("ended", "ran", None)
    wait_until(lambda: web.json(f"/api/runs/{run_id}")["terminal"])  # the result might have been on its way


def test_what_is_known_of_a_trigger_ends_with_it(web: Web, site: Site) -> None:
    run_id = web.trigger("barrier").response.json()["id"]
    site.leases.delete(f"cron:trigger:{run_id}")
    assert web.ask(f"/api/runs/{run_id}").error == "unknown_run"


def test_a_trigger_that_nobody_picks_up_expires_with_its_interval(
    start_web: Callable[..., Web], site: Site
) -> None:
    web = start_web(site, {"often": ("barrier", 1)})
    answer = web.trigger("barrier", wait=5)
    assert (answer.status, answer.error) == (410, "expired")


def test_answers_are_not_kept_by_anybody(web: Web) -> None:
    for path in ("/api/cron/barrier", "/api/cron/nobody", "/", "/metrics", "/healthz", "/nothing"):
        assert web.ask(path).response.headers["cache-control"] == "no-store"


def test_a_wrong_method_names_the_right_ones(web: Web) -> None:
    answer = web.ask("/api/cron/barrier", "DELETE")
    assert (answer.status, answer.error) == (405, "method_not_allowed")
    assert answer.response.headers["allow"]


@pytest.mark.parametrize("wait", ["-1", "61", "soon", "nan", "inf"])
def test_a_wait_that_makes_no_sense_is_refused_before_anything_is_queued(
    web: Web, site: Site, wait: str
) -> None:
    answer = web.ask(f"/api/cron/barrier?wait={wait}", "POST")
    assert (answer.status, answer.error) == (422, "invalid_request")
    assert site.side.llen("celery") == 0


def test_a_job_that_is_about_a_period_names_it_in_every_answer(web: Web, site: Site) -> None:
    accepted = web.trigger("monthly").response
    assert (accepted.status_code, accepted.json()["period"]) == (202, "2026-09")
    assert web.json(accepted.headers["location"])["period"] == "2026-09"
    site.leases.set(site.key("monthly"), "taken")
    refused = web.trigger("monthly").response
    assert (refused.status_code, refused.json()["period"]) == (409, "2026-09")
