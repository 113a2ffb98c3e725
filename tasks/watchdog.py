"""The task `watchdog`: every minute, what the schedule promised against what was done.

It alerts, and runs nothing.

A plain task without a lease: it must not be kept from looking by what it looks for, and any number of them
say each alert once. The web app's `/healthz` looks as well, so that dead workers cannot silence it.
"""

from celery import current_app, shared_task

from celery_lease.watchdog import patrol

# Long enough for a slow mail server, and over before the next is due.
_SOFT_LIMIT_SECONDS = 50
_HARD_LIMIT_SECONDS = 55


@shared_task(
    name="watchdog", ignore_result=True, soft_time_limit=_SOFT_LIMIT_SECONDS, time_limit=_HARD_LIMIT_SECONDS
)
def watchdog() -> None:
    """Look at every job, and alert."""
    patrol(current_app)
