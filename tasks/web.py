"""The web app, for `uvicorn tasks.web:web`: the public site, and the operator's view of the jobs.

The site is `tasks.site`; triggers, status page, health and metrics are the library's (`celery_lease.web`).
The two share a port and nothing else: the site needs neither the secret nor Redis.
"""

from celery_lease.web import create_app
from tasks import app
from tasks.settings import settings
from tasks.site import router

web = create_app(
    app,
    secret=settings().cron_secret.get_secret_value(),
    previous_secret=settings().cron_secret_previous.get_secret_value(),
    flower_url=settings().flower_url,
    links={"Answers": "/answers"},
)
web.include_router(router(settings()))
