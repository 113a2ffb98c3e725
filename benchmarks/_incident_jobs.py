"""The same job twice: under the lock of the incident, and under a lease."""

import os
import time
from typing import Any

import redis
from celery import Celery

from celery_lease import leased_task

URL = os.environ.get("INCIDENT_URL", "redis://127.0.0.1:1/0")

#: What three hours are in the replay, in seconds.
LOCK_SECONDS = float(os.environ.get("INCIDENT_LOCK_SECONDS", "36"))

#: How long a run takes.
RUN_SECONDS = float(os.environ.get("INCIDENT_RUN_SECONDS", "1"))

app = Celery("incident", broker=URL, backend=URL)
app.conf.update(
    lease_seconds=1.0,  # a shorter one is not allowed
    task_track_started=True,
    broker_connection_retry_on_startup=True,
)


def _work(client: redis.Redis, task_id: str) -> None:
    time.sleep(RUN_SECONDS)
    client.sadd("worked", task_id)


@app.task(name="old_lock", bind=True)
def old_lock(self: Any) -> dict[str, object]:
    """As it was: a key that lives for the job's worst case, and a skip that is a success."""
    with redis.Redis.from_url(URL) as client:
        if not client.set("cron:old_lock", time.time(), nx=True, px=round(LOCK_SECONDS * 1000)):
            return {"skipped": True, "reason": "locked"}
        try:
            _work(client, self.request.id)
        finally:
            client.delete("cron:old_lock")
    return {"skipped": False}


@leased_task(name="lease", bind=True)
def lease(self: Any) -> None:
    """The same under a lease."""
    with redis.Redis.from_url(URL) as client:
        _work(client, self.request.id)
