"""Four workers, eight jobs and faults at random: whatever happens, every promise is kept.

A failing run says its seed; `FAULT_SEED=... pytest tests/faults/test_random.py` repeats its faults, as far
as processes can be made to repeat anything. `FAULT_SECONDS` is for how long harm is done.
"""

import os
import random
from collections.abc import Callable

import pytest

from tests.faults.mischief import Mischief
from tests.faults.stage import Stage
from tests.support.proxy import Proxy
from tests.support.servers import Server

SECONDS = float(os.environ.get("FAULT_SECONDS", "45"))
SETTLES_WITHIN_SECONDS = 90

LEASE_SECONDS = 12
GRACE_SECONDS = 2
#: Longer than a message ever waits here in a busy worker: a copy means that its worker is gone.
VISIBILITY_SECONDS = 20

NAMES = [f"job{number}" for number in range(8)]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + SETTLES_WITHIN_SECONDS + 60)
def test_every_promise_is_kept_under_random_faults(
    set_up: Callable[..., Stage], start_proxy: Callable[[Server], Proxy]
) -> None:
    seed = int(os.environ.get("FAULT_SEED", random.randrange(10**6)))
    print(f"FAULT_SEED={seed}")
    stage = set_up(
        *("--appendfsync", "always"),
        persistent=True,
        lease_seconds=LEASE_SECONDS,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_SECONDS,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        },
    )
    stage.site.environment["FAULTS_GRACE_SECONDS"] = str(GRACE_SECONDS)
    mischief = Mischief(stage, seed, [start_proxy(stage.store) for _ in range(4)], NAMES)
    mischief.go_on(SECONDS)
    print(mischief.done)
    stage.settle(queue="work", seconds=SETTLES_WITHIN_SECONDS)
    print({said: len(stage.of("sample", said=said)) for said in ("trusted", "suspect", "lost")})
    print(stage.outcomes())
    assert len(stage.lost_by_broker) <= mischief.done.get("kill_worker", 0), "only a killed worker loses any"
    stage.assert_promises_kept()
