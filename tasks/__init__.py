"""The application: the Celery app and its jobs. `celery -A tasks worker` works from the project's root.

What runs when is in `beat_schedule.py`, how the machine runs in `celeryconfig.py`; a job is a module here,
named in `include`. Reading path: `curation.py` (the job), `desk.py` (one pass), `proposer.py` or
`asking.py` (who is asked), `engine.py` and `rules.py`, `store.py`; then `sitemap.py` and
`announcing/`; then `rewards.py` and `settlement.py`.
"""

from celery import Celery

import celery_lease  # noqa: F401 - also whoever only sends a job or asks for its result must know SKIPPED

# Every job is named here: a worker that does not know a task drops its messages.
app = Celery("tasks", include=["tasks.curation", "tasks.sitemap", "tasks.rewards", "tasks.watchdog"])
app.config_from_object("celeryconfig")
