"""What the metrics say while workers come and go."""

import time

import pytest

from tests.nodes.waiting import wait_until
from tests.support.site import Site, ends
from tests.web.server import Web

LAST_RAN = 'celery_lease_last_ran_timestamp_seconds{job_name="barrier"}'


@pytest.mark.slow
def test_with_everything_killed_the_age_grows_as_time_does(web: Web, site: Site) -> None:
    worker = site.start_worker()
    site.open()
    assert web.trigger("barrier", wait=20).status == 200
    worker.kill_tree()
    ages = []
    for _ in range(2):
        ages.append(time.time() - web.samples()[LAST_RAN])
        time.sleep(10)  # what is measured
    assert ages[1] - ages[0] == pytest.approx(10, abs=0.3)


def test_forty_runs_in_four_processes_are_forty(web: Web, site: Site) -> None:
    site.start_worker(concurrency=4)
    results = [site.send("per_tenant", f"tenant{number % 8}") for number in range(40)]
    states = ends(*results)
    samples = web.samples()
    total = 'celery_lease_runs_total{{job_name="per_tenant",outcome="{}"}}'.format
    assert samples[total("ran")] == states.count("SUCCESS")
    assert samples[total("ran")] + samples[total("skipped_locked")] == 40
    assert samples['celery_lease_run_duration_seconds_count{job_name="per_tenant"}'] == samples[total("ran")]


def test_a_run_that_goes_on_is_held_and_a_killed_one_becomes_abandoned(web: Web, site: Site) -> None:
    worker = site.start_worker()
    site.occupy()
    assert web.samples()['celery_lease_held{job_name="barrier"}'] == 1
    worker.kill_tree()

    def abandoned() -> bool:
        web.ask("/healthz")  # it does what the watchdog does
        return web.samples()['celery_lease_runs_total{job_name="barrier",outcome="abandoned"}'] == 1

    wait_until(abandoned, 30)
    assert web.samples()['celery_lease_held{job_name="barrier"}'] == 0
