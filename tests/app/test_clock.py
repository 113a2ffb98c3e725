"""A machine whose clock nobody set writes nothing that is dated by it."""

import os
import subprocess
import sys

import pytest

from tests.support.workers import ROOT


def now_at(year: int) -> subprocess.CompletedProcess[str]:
    """`tasks.clock.now` in a process whose datetime says that it is the middle of that year."""
    script = f"""
import datetime
class Clock(datetime.datetime):
    @classmethod
    def now(cls, zone=None):
        return cls({year}, 7, 1, tzinfo=zone)
datetime.datetime = Clock
from tasks.clock import now
print(now())
"""
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_moment_is_iso_8601_in_utc() -> None:
    assert now_at(2026).stdout == "2026-07-01T00:00:00+00:00\n"


@pytest.mark.parametrize("year", [1970, 2019])
def test_a_clock_that_was_never_set_is_named_with_the_way_out(year: int) -> None:
    done = now_at(year)
    assert done.stdout == ""
    assert f"ClockError: the clock of this machine says {year}-07-01T00:00:00+00:00; set it" in done.stderr
