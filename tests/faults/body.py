"""What holders do in fault runs: they ask their lease all the time, and write with its fence."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from celery_lease import Lease
from tests.support.probe import beside
from tests.support.recording import Recorder

STAGE = Path(os.environ.get("FAULTS_DIRECTORY", "."))

recorder = Recorder(STAGE)

_STEP_SECONDS = 0.02

# Accepts what a newer fence writes, or the same holder again. Returns the write's place; 0 = refused.
_FENCED_WRITE = """
local stored, fence = redis.call('HMGET', KEYS[1], 'fence', 'token'), tonumber(ARGV[1])
local newest = tonumber(stored[1] or '0')
if fence < newest or (fence == newest and stored[2] ~= ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'token', ARGV[2])
return redis.call('INCR', KEYS[2])
"""


def nothing() -> None:
    """Do nothing else."""


def work(lease: Lease, task_id: str, seconds: float, gate: str, also: Callable[[], object] = nothing) -> None:
    """Hold the lease until the gate is opened, or for a time.

    That the body is entered is said on the side, under the gate's name, and `also` done right after it.
    """
    tell = recorder.of(lease)
    side = beside()
    fenced_write = side.register_script(_FENCED_WRITE)
    opened = STAGE / f"{gate}.open"

    def write() -> None:
        at = time.monotonic()
        place: int = fenced_write([f"data:{lease.name}", "places"], [str(lease.fence), lease.token])
        said = "accepted" if place else "refused"
        tell("wrote", at=at, until=time.monotonic(), said=said, number=place)

    tell("entered", task_id=task_id)
    recorder.sample(lease)
    side.lpush(f"{gate}:entered", os.getpid())
    also()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not opened.exists():
        recorder.sample(lease)
        write()
        time.sleep(_STEP_SECONDS)
    tell("left", said="returned")
    side.close()
