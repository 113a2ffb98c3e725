"""Stands in for pytest-celery's `utils.py` inside a worker that is a local process.

The original lists every process it can see, which in a container are the container's own.
"""

import json
import os

import psutil

_COLUMNS = ["pid", "name", "username", "cmdline", "cpu_percent", "memory_percent", "create_time"]


def get_running_processes_info(columns: list[str] | None = None) -> str:
    """Return the given facts about each process of the worker's session, as JSON."""
    found = [process.info for process in psutil.process_iter(columns or _COLUMNS) if _is_ours(process.pid)]
    return json.dumps(found)


def _is_ours(pid: int) -> bool:
    try:
        return os.getsid(pid) == int(os.environ["NODE_SESSION"])
    except ProcessLookupError:  # it ended while we were looking
        return False
