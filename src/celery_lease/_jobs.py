"""Which jobs there are to show: what is scheduled or ever left a trace, with the leases of each.

A job is shown under the name of its lease. A task with one lease per argument is one job, under the task's
name, with all its leases: pages and metrics must not grow with the arguments.
"""

from __future__ import annotations

import inspect
import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_lease._errors import LeaseError
from celery_lease._expectations import Expectation, read_expectations
from celery_lease._task import LeasedTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from celery import Celery

#: The lease of the active scheduler, which is no job.
BEAT = "beat"


@dataclass(frozen=True)
class Job:
    """One row, one label.

    Attributes:
        name: the lease's; of a task with one lease per argument, the task's.
        leases: those of them that ever left a trace.
        expectations: the entries of the schedule that are for it.
    """

    name: str
    leases: tuple[str, ...]
    expectations: tuple[Expectation, ...] = ()


def read_jobs(app: Celery, names: Iterable[str]) -> list[Job]:
    """All jobs, by name.

    Args:
        app: its tasks must have been imported.
        names: of the leases that ever left a trace.
    """
    families = [task for task in leased_tasks(app) if task.is_per_argument]
    leases: dict[str, list[str]] = {}
    for name in names:
        owner = next((str(task.name) for task in families if _is_of(task, name)), name)
        leases.setdefault(owner, []).append(name)
    expected: dict[str, list[Expectation]] = {}
    for expectation in read_expectations(app):
        if expectation.lease is not None:
            owner = expectation.task if expectation.per_argument else expectation.lease
            expected.setdefault(owner, []).append(expectation)
    return [
        Job(name, tuple(leases.get(name, ())), tuple(expected.get(name, ())))
        for name in sorted(leases.keys() | expected.keys())
    ]


def leased_tasks(app: Celery) -> Iterator[LeasedTask]:
    """All leased tasks that the app knows."""
    return (task for task in app.tasks.values() if isinstance(task, LeasedTask))


def triggerable(app: Celery, name: str) -> tuple[LeasedTask, str]:
    """The leased task of this name, and the lease that it takes when called without arguments.

    Raises:
        LookupError: there is none, or it needs arguments; the message says which.
    """
    task = app.tasks.get(name)
    if not isinstance(task, LeasedTask):
        known = ", ".join(sorted(str(each.name) for each in leased_tasks(app))) or "none"
        raise LookupError(f"{name!r} is no leased task of this app; known are {known}")  # noqa: TRY004 - of a name
    try:
        inspect.signature(task.run).bind()
        return task, task.lease_name((), {})
    except (TypeError, LeaseError) as error:
        raise LookupError(f"{name!r} needs arguments and cannot be triggered here: {error}") from error


def _is_of(task: LeasedTask, name: str) -> bool:
    """Whether `name` may have been made from the task's template."""
    parts = string.Formatter().parse(task.lease or "")
    pattern = "".join(
        re.escape(literal) + (".*" if field is not None else "") for literal, field, *_ in parts
    )
    return re.fullmatch(pattern, name, re.DOTALL) is not None
