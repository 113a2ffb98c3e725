import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.running.instance import BusyError, Instance, Process, claim


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def itself() -> Process:
    return Process.look("up", os.getpid(), "")


def test_a_folder_has_one_owner_at_a_time_who_is_named(tmp_path: Path, itself: Process) -> None:
    with claim(tmp_path) as instance:
        instance.record([itself])
        with pytest.raises(BusyError) as refused, claim(tmp_path):
            pass
        assert refused.value.processes == [itself]
    with claim(tmp_path):
        pass


def test_a_killed_owner_has_given_the_folder_back(tmp_path: Path) -> None:
    script = (
        "import sys, time, pathlib; from tasks.running.instance import claim\n"
        "with claim(pathlib.Path(sys.argv[1])): print('mine', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"mine\n"
        owner.kill()
    with claim(tmp_path):
        pass


def test_leftovers_of_a_killed_up_are_ended(
    tmp_path: Path, itself: Process, sleeper: "subprocess.Popen[bytes]"
) -> None:
    left = Process.look("worker", sleeper.pid, "")
    instance = Instance(tmp_path)
    instance.record([itself, left])
    assert instance.end_leftovers() == [left]
    assert sleeper.wait(5) == -signal.SIGTERM


def test_a_stranger_who_got_the_same_pid_is_left_alone(
    tmp_path: Path, itself: Process, sleeper: "subprocess.Popen[bytes]"
) -> None:
    recycled = replace(Process.look("worker", sleeper.pid, ""), started="Mon Sep 14 03:15:00 2026")
    instance = Instance(tmp_path)
    instance.record([itself, recycled])
    assert instance.end_leftovers() == []
    assert sleeper.poll() is None


def test_a_half_written_or_foreign_record_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('[{"name": "up"')
    assert Instance(tmp_path).recorded() == []
    (tmp_path / "run.json").write_text('[{"title": "something else"}]')
    assert Instance(tmp_path).recorded() == []
