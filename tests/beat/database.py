"""django-celery-beat's scheduler with the lease in front, as a project with Django would have it."""

import os

import django  # type: ignore[import-untyped]
from django.conf import settings  # type: ignore[import-untyped]

from celery_lease.beat import LeasedSchedulerMixin
from tests.support.probe import app

settings.configure(
    INSTALLED_APPS=["django_celery_beat"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["PROBE_DATABASE"]}},
    USE_TZ=True,
)
django.setup()

# Only now that Django is set up.
from django_celery_beat.models import PeriodicTask  # type: ignore[import-untyped]  # noqa: E402
from django_celery_beat.schedulers import DatabaseScheduler  # type: ignore[import-untyped]  # noqa: E402

__all__ = ["PeriodicTask", "Scheduler", "app"]


class Scheduler(LeasedSchedulerMixin, DatabaseScheduler):  # type: ignore[misc]
    """Entries from the database, slots on the grid."""
