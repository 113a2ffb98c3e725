"""A Celery application whose only task takes as long as it is told."""

import os
import time

from celery import Celery

app = Celery("naps", broker=os.environ.get("REDIS_URL"), backend=os.environ.get("REDIS_URL"))
app.conf.update(task_track_started=True, broker_connection_retry_on_startup=True)


@app.task(name="nap")
def nap(seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return "rested"
