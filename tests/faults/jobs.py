"""The probe app with jobs that write down how they fare. Set up by environment."""

import os
import signal
import time
from typing import Any

from celery import Task

from celery_lease import _settings, current_lease, leased_task
from tests.faults.body import recorder, work
from tests.support.probe import app as app  # noqa: PLC0414 - what `celery -A` looks for
from tests.support.recording import record_store_calls

record_store_calls(recorder)
# Far below the lease, as by default, and without the waiting.
_settings.GRACE_SECONDS = float(os.environ.get("FAULTS_GRACE_SECONDS", _settings.GRACE_SECONDS))


@leased_task(name="works", lease="{name}", bind=True)
def works(self: Task[Any, Any], name: str, seconds: float = 60, gate: str = "") -> int:
    """Work until the gate is opened, or for a time."""
    lease = current_lease()
    work(lease, str(self.request.id), seconds, gate or name)
    return lease.fence


@leased_task(name="eats", lease="{name}", bind=True)
def eats(self: Task[Any, Any], name: str, seconds: float = 60, gate: str = "") -> None:
    """Work until the gate is opened, then take memory for ever."""
    work(current_lease(), str(self.request.id), seconds, gate or name)
    eaten = []
    while True:
        eaten.append(os.urandom(1 << 20))


@leased_task(name="leaves_a_child", lease="{name}", bind=True)
def leaves_a_child(self: Task[Any, Any], name: str, seconds: float = 60, gate: str = "") -> None:
    """Leave a forked child behind, which outlives its parent, and work."""
    work(current_lease(), str(self.request.id), seconds, gate or name, also=_fork)


@leased_task(name="hears_nothing", lease="{name}", bind=True)
def hears_nothing(self: Task[Any, Any], name: str, seconds: float = 60, gate: str = "") -> None:
    """Work and do not hear SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    work(current_lease(), str(self.request.id), seconds, gate or name)


@leased_task(name="kills_itself", lease="{name}", bind=True)
def kills_itself(self: Task[Any, Any], name: str, seconds: float = 60, gate: str = "") -> None:
    """Take its own process with it, every time."""
    work(current_lease(), str(self.request.id), seconds, gate or name, also=_kill_itself)


def _kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fork() -> None:
    if not os.fork():
        time.sleep(60)
        os._exit(0)
