"""`python -m tasks.running.firstrun SECONDS JOB...`: these jobs now, and how each ended, as a line of JSON.

A program of its own because the application reads its settings once: `up` has read them before the embedded
server had an address, its children get that address from the start.
"""

import json
import sys
import time
from collections.abc import Sequence

from celery.exceptions import TimeoutError as CeleryTimeoutError

from tasks import app


def first_runs(jobs: Sequence[str], seconds: float) -> list[dict[str, object]]:
    """Send the jobs to the worker, each after the end of the one before; at most `seconds` for all.

    Returns:
        For each job that was sent `job`; `state` as Celery knows it, `PENDING` or `STARTED` if the time was
        too short; `result`: the job's counts, or the exception that ended it.
    """
    app.loader.import_default_modules()
    end = time.monotonic() + seconds
    outcomes: list[dict[str, object]] = []
    for job in jobs:
        sent = app.tasks[job].delay()
        try:
            result = sent.get(timeout=max(end - time.monotonic(), 0.1), propagate=False)
        except CeleryTimeoutError:
            result = None
        outcomes.append({"job": job, "state": sent.state, "result": result})
        if time.monotonic() > end:
            break
    return outcomes


def _in_words(error: object) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    print(json.dumps(first_runs(sys.argv[2:], float(sys.argv[1])), default=_in_words))  # noqa: T201 - its purpose
