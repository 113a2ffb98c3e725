"""The web app, for `uvicorn tasks.web:web`: triggers, status page, health and metrics of the jobs.

The library's own (`celery_lease.web`), with this application's settings.
"""

from celery_lease.web import create_app
from tasks import app
from tasks.settings import settings

web = create_app(
    app,
    secret=settings().cron_secret.get_secret_value(),
    previous_secret=settings().cron_secret_previous.get_secret_value(),
    flower_url=settings().flower_url,
)
