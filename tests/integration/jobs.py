"""Leased jobs that run on pytest-celery's worker nodes.

pytest-celery copies this file into the worker and imports it there by the same name, so it uses nothing
but Celery and the public names of celery_lease.
"""

from typing import Any

from celery import current_app

from celery_lease import current_lease, leased_task

ARRIVED, OPEN = "barrier:arrived", "barrier:open"
LONGEST_WAIT_SECONDS = 60


@leased_task(name="quick")
def quick(number: int) -> int:
    return 2 * number


@leased_task(name="patient")
def patient() -> str:
    """Report the lease's fence to whoever waits for an arrival, then wait for the barrier to open."""
    backend: Any = current_app.backend
    store = backend.client
    store.rpush(ARRIVED, current_lease().fence)
    if store.blpop(OPEN, timeout=LONGEST_WAIT_SECONDS) is None:
        raise TimeoutError("nobody opened the barrier")
    return "done"
