"""Dead-man's switches: told of real runs, and of nothing else."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from celery_lease import Skipped, _pings, hold
from tests.nodes.waiting import wait_until
from tests.support.leases import Job, leased
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.site import Site
from tests.watchdog.conftest import Hook

StartApp = Callable[..., Celery]


def with_switch(start_app: StartApp, hook: Hook, *url: str) -> Celery:
    """An app whose job `job` has a dead-man's switch at the webhook."""
    return start_app(*url, lease_ping_urls={"job": f"http://127.0.0.1:{hook.port}/s3cret"})


def test_a_real_run_is_told_once(start_app: StartApp, hook: Hook) -> None:
    app = with_switch(start_app, hook)
    leased(app)(body).apply()
    wait_until(lambda: hook.asked)
    with hold("job", app=app):
        pass
    wait_until(lambda: len(hook.asked) > 1)
    assert hook.asked == ["GET /s3cret"] * 2


def test_a_skip_a_failure_and_another_job_are_not_told(
    start_app: StartApp, start_job: Callable[..., Job], hook: Hook
) -> None:
    app = with_switch(start_app, hook)
    task = leased(app)(body)
    job = start_job(app)
    held = job.acquire()
    assert task.apply().state == "SKIPPED"
    job.release(*held, "failed")
    leased(app, name="other")(body).apply()
    leased(app, name="fails", lease="job")(failing).apply()
    job.acquire()
    with pytest.raises(Skipped), hold("job", app=app):
        pass
    _pings._finish()
    assert hook.asked == []


def test_the_run_does_not_wait_for_its_switch(start_app: StartApp, hook: Hook) -> None:
    hook.silent = True
    task = leased(with_switch(start_app, hook))(body)
    began = time.monotonic()
    assert task.apply().state == "SUCCESS"
    assert time.monotonic() - began < 2
    wait_until(lambda: hook.asked)


def test_a_switch_that_cannot_be_told_is_a_line_without_its_address(
    start_app: StartApp, hook: Hook, caplog: Any
) -> None:
    hook.answer = 500
    assert leased(with_switch(start_app, hook))(body).apply().state == "SUCCESS"
    wait_until(lambda: "job: the dead-man's switch could not be told of a run (HTTPError)" in caplog.text)
    assert len(hook.asked) == 2, "it is tried once more"
    assert "s3cret" not in caplog.text


def test_a_run_whose_end_is_confirmed_late_is_told_then(
    start_app: StartApp, server: Server, start_proxy: Callable[[Server], Proxy], hook: Hook
) -> None:
    proxy = start_proxy(server)
    app = with_switch(start_app, hook, f"redis://127.0.0.1:{proxy.port}/0")

    @leased(app)
    def job() -> None:
        server.freeze()

    try:
        job.apply()
        assert hook.asked == []
    finally:
        server.thaw()
    wait_until(lambda: hook.asked, seconds=20)


def test_a_process_that_ends_after_its_run_tells_first(
    start_site: Callable[..., Site], redis_url: str, hook: Hook
) -> None:
    switch = {"barrier": f"http://127.0.0.1:{hook.port}/"}
    site = start_site(redis_url, conf={"lease_ping_urls": switch})
    site.start_worker("--max-tasks-per-child=1", concurrency=1)
    hook.answer, hook.delay = 500, 0.5
    result = site.occupy()
    site.side.lpush("gate", "go")
    result.get(timeout=20)
    wait_until(lambda: hook.asked == ["GET /"] * 2)


def body() -> None: ...


def failing() -> None:
    raise ValueError
