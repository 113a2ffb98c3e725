"""The probe app with a schedule and the web app on top, for `uvicorn tests.web.web_app:web`."""

import json
import os
from typing import Any

from celery.schedules import crontab

from celery_lease.web import create_app
from tests.support.probe import app


def _schedule(given: float | str) -> Any:
    return crontab(minute=given) if isinstance(given, str) else given


schedule = {
    entry: {"task": task, "schedule": _schedule(every)}
    for entry, (task, every) in json.loads(os.environ.get("PROBE_SCHEDULE", "{}")).items()
}
app.conf.update(timezone="UTC", beat_schedule=schedule)
web = create_app(app, requests_a_minute=int(os.environ.get("PROBE_LIMIT", "100000")))
