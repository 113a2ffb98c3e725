"""The ways to start a beat, and what cannot stop it from starting."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.beat.conftest import Beat
from tests.support.workers import Process

StartBeat = Callable[..., Process]

SCHEDULE = {"entry": {"task": "sleep", "schedule": 1, "args": [0]}}


def test_it_is_chosen_on_the_command_line(start_beat: StartBeat) -> None:
    beat = start_beat(SCHEDULE)
    beat.wait_for(r"scheduler -> celery_lease\.beat\.LeasedScheduler")
    beat.wait_for("Sending due task entry")


def test_it_is_chosen_by_the_setting(start_beat: StartBeat) -> None:
    beat = start_beat(SCHEDULE, scheduler="", conf={"beat_scheduler": "celery_lease.beat:LeasedScheduler"})
    beat.wait_for(r"scheduler -> celery_lease\.beat\.LeasedScheduler")
    beat.wait_for("Sending due task entry")


@pytest.mark.parametrize("content", [b"", b"no shelf", b"\x00" * 4096])
def test_a_broken_schedule_file_does_not_matter(
    start_beat: StartBeat, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "schedule"
    file.write_bytes(content)
    start_beat(SCHEDULE, "-s", str(file)).wait_for("Sending due task entry")
    assert file.read_bytes() == content, "it is not even opened"


def test_a_missing_folder_for_the_schedule_file_does_not_matter(
    start_beat: StartBeat, tmp_path: Path
) -> None:
    start_beat(SCHEDULE, "-s", str(tmp_path / "none" / "schedule")).wait_for("Sending due task entry")


def test_celerys_own_entry_for_old_results_is_kept(make_beat: Callable[..., Beat], tmp_path: Path) -> None:
    one = make_beat(
        {"entry": {"task": "plain", "schedule": 60}}, result_backend=f"db+sqlite:///{tmp_path}/db"
    )
    assert set(one.scheduler.schedule) == {"entry", "celery.backend_cleanup"}
