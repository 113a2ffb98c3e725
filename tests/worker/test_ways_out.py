"""However a run ends, its lease is free before anybody learns of it, and the ledger says how it ended."""

from typing import Any

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery.exceptions import MaxRetriesExceededError, SoftTimeLimitExceeded

from celery_lease import SKIPPED, Skipped
from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends


def assert_free(site: Site, name: str) -> None:
    assert site.held(name) == {}
    assert "open_fence" not in site.ledger(name)
    assert site.total(name, "skipped_locked") == 0


@pytest.mark.parametrize(
    ("job", "args", "state", "outcome"),
    [
        ("counts", (3, 4), "SUCCESS", "ran"),
        ("fail", (), "FAILURE", "failed"),
        ("forks", (), "SUCCESS", "ran"),
    ],
)
def test_the_lease_is_free_once_the_state_is_visible(
    site: Site, job: str, args: tuple[Any, ...], state: str, outcome: str
) -> None:
    site.start_worker()
    for _ in range(10):
        result = site.send(job, *args)
        while not result.ready():
            pass
        assert site.held(job) == {}
        assert result.state == state
    assert site.outcomes(job) == [outcome] * 10
    assert_free(site, job)


def test_a_retried_job_gets_the_lease_again_at_every_attempt(site: Site) -> None:
    site.start_worker(concurrency=4)
    assert site.send("retry", 3, 0, 0.2).get(timeout=20) == 4
    assert site.outcomes("retry") == ["retried", "retried", "retried", "ran"]
    assert site.ledger("retry")["streak"] == "0"
    assert len({record["fence"] for record in site.records("retry")}) == 4
    assert_free(site, "retry")


def test_autoretry_gets_the_lease_again_at_every_attempt(site: Site) -> None:
    site.start_worker(concurrency=4)
    assert site.send("autoretry", 2).get(timeout=20) == 3
    assert site.outcomes("autoretry") == ["retried", "retried", "ran"]
    assert_free(site, "autoretry")


def test_a_job_that_waits_for_its_retry_holds_no_lease(site: Site) -> None:
    worker = site.start_worker()
    result = site.send("retry", 1, 30)
    wait_until(lambda: result.state == "RETRY")
    assert site.outcomes("retry") == ["retried"]
    assert_free(site, "retry")
    worker.kill_tree()
    assert_free(site, "retry")
    site.start_worker()
    assert site.send("retry", 0).get(timeout=20) == 1


def test_retries_that_are_used_up_end_as_failure_with_a_free_lease(site: Site) -> None:
    site.start_worker()
    with pytest.raises(MaxRetriesExceededError):
        site.send("gives_up").get(timeout=20)
    assert site.outcomes("gives_up") == ["retried", "failed"]
    assert_free(site, "gives_up")


def test_a_retry_without_raising_is_sent_once_the_lease_is_free(site: Site) -> None:
    site.start_worker(concurrency=4)
    site.send("retries_and_returns", 3)
    wait_until(lambda: site.side.xlen("attempts") == 4)
    wait_until(lambda: site.held("retries_and_returns") == {})
    assert site.outcomes("retries_and_returns") == ["ran"] * 4
    assert_free(site, "retries_and_returns")


def test_a_job_may_replace_itself(site: Site) -> None:
    site.start_worker(concurrency=4)
    assert site.send("replaces", 5).get(timeout=20) == "at the end of the row"
    assert set(site.outcomes("replaces")) == {"ran"}
    assert_free(site, "replaces")


@pytest.mark.parametrize(("job", "said"), [("ignore", "ignored"), ("reject", "rejected")])
def test_a_body_may_end_its_message_without_a_state(site: Site, job: str, said: str) -> None:
    worker = site.start_worker()
    result = site.send(job)
    worker.wait_for(rf"(?i){job}\[{result.id}\] {said}|reject requeue=False")
    assert site.outcomes(job) == ["failed"]
    assert_free(site, job)


def test_a_message_that_the_body_puts_back_into_its_queue_is_carried_out_again(site: Site) -> None:
    site.start_worker()
    assert site.send("requeues", 2).get(timeout=20) == "done"
    assert site.outcomes("requeues") == ["retried", "retried", "ran"]
    assert_free(site, "requeues")


def test_a_soft_limit_in_the_body_frees_the_lease(site: Site) -> None:
    site.start_worker()
    with pytest.raises(SoftTimeLimitExceeded):
        site.send("limited", 30, soft_time_limit=0.5).get(timeout=20)
    assert site.outcomes("limited") == ["failed"]
    assert site.records("limited")[0]["error"] == "SoftTimeLimitExceeded"
    assert_free(site, "limited")


def test_a_hard_limit_in_the_body_frees_the_lease(site: Site) -> None:
    worker = site.start_worker()
    killed = site.send("limited", 30, time_limit=1)
    with pytest.raises(TimeLimitExceeded):
        killed.get(timeout=20)
    wait_until(lambda: site.held("limited") == {}, 3.5)
    assert site.send("limited", 0).get(timeout=20) == "done"
    # The child is given a tenth of a second between SIGTERM and SIGKILL, in which it can say so itself.
    assert site.outcomes("limited") in (["failed", "ran"], ["abandoned", "ran"])
    assert worker.is_alive()


def test_a_hard_limit_on_a_child_that_has_to_be_killed_leaves_a_lease_that_nobody_renews(site: Site) -> None:
    worker = site.start_worker()
    killed = site.send("deaf", 30, time_limit=1)
    with pytest.raises(TimeLimitExceeded):
        killed.get(timeout=20)
    worker.wait_for("Hard time limit")
    wait_until(lambda: site.held("deaf") == {}, 3.5)
    assert site.outcomes("deaf") == []
    assert ends(site.send("deaf", 0)) == ["SUCCESS"]
    assert site.outcomes("deaf") == ["abandoned", "ran"]
    assert site.records("deaf")[0]["task_id"] == killed.id
    assert_free(site, "deaf")


def test_a_hard_limit_does_not_free_a_lease_that_somebody_else_has_by_then(site: Site) -> None:
    worker = site.start_worker()
    killed = site.send("limited", 30, time_limit=1)
    wait_until(lambda: site.held("limited"))
    with site.leases.pipeline() as pipe:
        pipe.delete(site.key("limited"))
        pipe.hset(site.key("limited"), mapping={"token": "f" * 32, "task_id": "elsewhere"})
        pipe.execute()
    assert ends(killed) == ["FAILURE"]
    worker.wait_for(r"Hard time limit \(1\.?0?s\) exceeded")
    assert ends(site.send("limited", 0)) == [SKIPPED]
    assert site.held("limited")["token"] == "f" * 32


def test_a_failure_before_the_lease_is_taken_leaves_the_holder_alone(site: Site) -> None:
    site.start_worker()
    first = site.occupy()
    token = site.held("barrier")["token"]
    wrong = site.send("barrier", headers={"lease_slot": "noon"})
    assert ends(wrong) == ["FAILURE"]
    assert site.held("barrier")["token"] == token
    site.open()
    assert ends(first) == ["SUCCESS"]
    assert site.outcomes("barrier") == ["ran"]


def test_a_task_id_may_be_used_again(site: Site) -> None:
    site.start_worker()
    for _ in range(2):
        assert site.send("counts", 1, 0, task_id="same").get(timeout=20) == {"worked": 1, "backlog": 0}
        site.app.AsyncResult("same").forget()
    assert site.outcomes("counts") == ["ran", "ran"]


def test_a_child_that_a_body_forks_neither_ends_nor_keeps_its_lease(site: Site) -> None:
    worker = site.start_worker()
    result = site.send("forks", 4)
    assert result.get(timeout=20) is True
    assert_free(site, "forks")
    assert site.outcomes("forks") == ["ran"]
    assert worker.count("lost|renewal failed") == 0


def test_a_second_message_with_the_id_of_the_running_one_does_not_disturb_it(site: Site) -> None:
    worker = site.start_worker()
    first = site.send("barrier", task_id="same")
    site.entered()
    token = site.held("barrier")["token"]
    site.send("barrier", task_id="same")
    worker.wait_for(r"barrier\[same\].* is being carried out")
    assert site.held("barrier")["token"] == token
    site.open()
    wait_until(lambda: site.app.AsyncResult(first.id).state == "SUCCESS")
    assert site.outcomes("barrier") == ["ran"]


def test_a_body_that_cannot_have_its_second_lease_is_skipped_too(site: Site) -> None:
    worker = site.start_worker()
    site.leases.hset(site.key("sleep"), mapping={"token": "f" * 32, "task_id": "elsewhere"})
    result = site.send("nested")
    assert ends(result) == [SKIPPED]
    skip = result.result
    assert isinstance(skip, Skipped)
    assert (skip.reason, skip.name, skip.holder["task_id"]) == ("locked", "sleep", "elsewhere")
    assert site.outcomes("nested") == ["skipped_locked"]
    assert site.held("nested") == {}
    assert site.held("sleep")["token"] == "f" * 32
    site.leases.delete(site.key("sleep"))
    assert ends(site.send("nested")) == ["SUCCESS"]
    assert site.outcomes("sleep") == ["skipped_locked", "ran"]
    assert worker.is_alive()
