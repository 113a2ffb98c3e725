"""An app with one leased job, whose settings and options a test gives by environment."""

import json
import os

from celery import Celery

from celery_lease import leased_task

app = Celery("startup", broker=os.environ["STARTUP_BROKER"])
app.conf.update(json.loads(os.environ["STARTUP_CONF"]))

if os.environ["STARTUP_OPTIONS"] != "none":

    @leased_task(name="nightly", **json.loads(os.environ["STARTUP_OPTIONS"]))
    def nightly() -> None:
        """Do nothing."""


@app.task(name="plain", time_limit=1)
def plain() -> None:
    """Not a leased job: its limits are nobody's business here."""
