"""The result backend goes away while a job runs: the run is on record and blocks nobody."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.stage import Stage
from tests.nodes.waiting import wait_until
from tests.support.servers import Server
from tests.support.site import Site, ends

pytestmark = pytest.mark.slow


def test_a_run_whose_result_cannot_be_stored_is_on_record_and_blocks_nobody(
    redis_url: str, start_server: Callable[..., Server], start_site: Callable[..., Site], tmp_path: Path
) -> None:
    leases, results = start_server(), start_server()
    site = start_site(redis_url, backend=results.url, leases=leases.url)
    stage = Stage(site, leases, tmp_path / "stage", lease_seconds=300)
    worker = stage.start_worker("queue")
    stage.send("job", queue="queue")
    stage.entered("job")
    os.kill(results.pid, signal.SIGKILL)
    stage.open("job")
    wait_until(lambda: stage.site.total("job", "ran") == 1, 5)
    assert not stage.site.held("job")
    stage.send("job", queue="queue")
    wait_until(lambda: stage.site.total("job", "ran") == 2, 20)
    wait_until(lambda: worker.count("Connection refused") >= 2, 20)
    results.close()
    results.start()
    third = stage.send("job", queue="queue")
    assert ends(third, seconds=40) == ["SUCCESS"]
    assert worker.is_alive()
    assert stage.site.outcomes("job") == ["ran", "ran", "ran"]
    assert "open_fence" not in stage.site.ledger("job")
    stage.assert_promises_kept()
