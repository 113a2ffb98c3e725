"""`python -m tasks.running.firstrun SECONDS`: one curation now, and how it ended, as a line of JSON.

A program of its own because the application reads its settings once: `up` has read them before the embedded
server had an address, its children get that address from the start.
"""

import json
import sys

from celery.exceptions import TimeoutError as CeleryTimeoutError

from tasks.curation import curate


def first_run(seconds: float) -> dict[str, object]:
    """Send the job to the worker and wait for its end, at most `seconds`.

    Returns:
        `task_id`; `state` as Celery knows it, `PENDING` or `STARTED` if the wait was too short; `result`: the
        job's counts, or the exception that ended it.
    """
    sent = curate.delay()
    try:
        result = sent.get(timeout=seconds, propagate=False)
    except CeleryTimeoutError:
        result = None
    return {"task_id": sent.id, "state": sent.state, "result": result}


def _in_words(error: object) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    print(json.dumps(first_run(float(sys.argv[1])), default=_in_words))  # noqa: T201 - its purpose
