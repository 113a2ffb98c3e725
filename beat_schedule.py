"""When the jobs run, in UTC. What they do is in `tasks/`.

A message expires after one interval: after a downtime the backlog ends as one run for now, the rest is not
repeated.
"""

from celery.schedules import crontab

MINUTE_SECONDS = 60
QUARTER_OF_AN_HOUR_SECONDS = 900
HOUR_SECONDS = 3600
DAY_SECONDS = 24 * HOUR_SECONDS

beat_schedule = {
    "curation": {
        "task": "curation",
        "schedule": crontab(minute="*/15"),
        "options": {"expires": QUARTER_OF_AN_HOUR_SECONDS},
    },
    # Between two passes of the curation, so that a worker with one free process can do both.
    "sitemap": {
        "task": "sitemap",
        "schedule": crontab(minute="7"),
        "options": {"expires": HOUR_SECONDS},
    },
    # Every day, though a month is over but once: a day on which nothing ran costs a day, and not a month.
    "rewards": {
        "task": "rewards",
        "schedule": crontab(hour="3", minute="22"),
        "options": {"expires": DAY_SECONDS},
    },
    "watchdog": {
        "task": "watchdog",
        "schedule": crontab(),
        "options": {"expires": MINUTE_SECONDS},
    },
}
