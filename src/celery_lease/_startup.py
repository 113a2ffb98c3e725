"""What a worker says at its start about settings that would hurt a leased job later.

One line a check, with the numbers and the way out. These are observers: nothing here stops a worker, and a
check that cannot be made says so and lets the others go on. What cannot work at all is refused elsewhere
(`LeasedTask.on_bound`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from celery.signals import celeryd_after_setup
from redis.exceptions import ResponseError

from celery_lease._errors import LeaseError, StoreUnavailable
from celery_lease._settings import read_settings, shortest_time_limit
from celery_lease._store import Store
from celery_lease._task import VISIBILITY_TIMEOUT, LeasedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from celery import Celery

    Tasks = Sequence[LeasedTask]

logger = logging.getLogger("celery_lease")

#: Transports that give an unacknowledged message to another worker after a time.
_WITH_VISIBILITY_TIMEOUT = ("redis", "rediss", "sentinel", "sqs", "gcpubsub")

#: Which limits a pool does not enforce, by the module that its class is in.
_NOT_ENFORCED = {
    "celery.concurrency.thread": ("time_limit", "soft_time_limit"),
    "celery.concurrency.solo": ("time_limit", "soft_time_limit"),
    "celery.concurrency.eventlet": ("time_limit", "soft_time_limit"),
    "celery.concurrency.gevent": ("soft_time_limit",),
}


def visibility_timeout(app: Celery) -> float | None:
    """Seconds after which the broker sends an unacknowledged message again; None if it does not."""
    scheme = str(app.conf.broker_url or "").partition("://")[0].partition("+")[0]
    if scheme not in _WITH_VISIBILITY_TIMEOUT:
        return None
    options: dict[str, Any] = app.conf.broker_transport_options or {}
    return float(options.get("visibility_timeout", VISIBILITY_TIMEOUT))


# Before the pool is made: what is opened here is closed again before there is a process to inherit it.
@celeryd_after_setup.connect(weak=False)
def check_worker(sender: Any = None, instance: Any = None, **_: Any) -> None:  # noqa: ARG001 - Celery's names
    """Make every check, for a worker that knows a leased task."""
    tasks = sorted(
        (task for task in instance.app.tasks.values() if isinstance(task, LeasedTask)),
        key=lambda task: str(task.name),
    )
    for check in _CHECKS if tasks else ():
        try:
            check(instance, tasks)
        except LeaseError as error:
            logger.warning("leased tasks cannot run as things are: %s", error)
        except Exception as error:  # noqa: BLE001 - whatever it is, a worker must not fail to start for it
            logger.warning("a check at the start could not be made (%s: %s)", check.__name__, error)


def _check_redelivery(worker: Any, tasks: Tasks) -> None:
    timeout = visibility_timeout(worker.app)
    if timeout is None:
        return
    longest, task = max(((_hard_limit(worker, task), task) for task in tasks), key=lambda pair: pair[0])
    if longest > timeout:
        how_long = "as long as it likes" if longest == float("inf") else f"{longest:g} s"
        way_out = "set its time_limit below it" if longest == float("inf") else f"set it above {longest:g}"
        logger.warning(
            "the broker's visibility_timeout is %g s and %s may run for %s: past it, the broker sends the "
            "messages again that are under way or wait behind it, and the copies only cost time; %s "
            "(broker_transport_options)",
            *(timeout, task.name, how_long, way_out),
        )
    slowest = max(tasks, key=lambda task: task.default_retry_delay or 0)
    if (slowest.default_retry_delay or 0) > timeout:
        logger.warning(
            "the broker's visibility_timeout is %g s and %s waits %g s for its retry (default_retry_delay): "
            "the broker sends a message again that waits longer; set visibility_timeout above %g "
            "(broker_transport_options), and above every countdown",
            *(timeout, slowest.name, slowest.default_retry_delay, slowest.default_retry_delay),
        )


def _hard_limit(worker: Any, task: LeasedTask) -> float:
    """How long a run may keep its message, or those behind it, unacknowledged; 0 = not known."""
    limit = task.time_limit or worker.time_limit
    if limit:
        return float(limit)
    return float("inf") if task.acks_late else 0.0


def _check_limits(worker: Any, tasks: Tasks) -> None:
    least = shortest_time_limit(worker.app)
    for field in ("time_limit", "soft_time_limit"):
        own = getattr(worker, field)
        bare = [str(task.name) for task in tasks if not getattr(task, field)]
        if own and own < least and bare:
            logger.warning(
                "this worker's %s is %g s, and a leased job may have to wait for a dead holder before it "
                "starts: raise it to %g s or more for %s",
                *(field.replace("_", " "), own, least, _some(bare)),
            )


def _check_pool(worker: Any, tasks: Tasks) -> None:
    module = worker.pool_cls.__module__
    fields = _NOT_ENFORCED.get(module, ())
    limited = [
        f"{task.name} ({field} {limit:g} s)"
        for task in tasks
        for field in fields
        if (limit := getattr(task, field) or getattr(worker, field))
    ]
    if not limited:
        return
    past_it = "past a time_limit its lease is not renewed, and another worker may run it beside the first"
    logger.warning(
        "the %s pool does not enforce %s: %s; %s; use the prefork pool for these",
        *(module.rpartition(".")[2], " and ".join(fields), _some(limited)),
        past_it if "time_limit" in fields else "nothing tells the body",
    )


def _check_repetition(_worker: Any, tasks: Tasks) -> None:
    dropped = [
        str(task.name)
        for task in tasks
        if task.acks_late
        and not task.reject_on_worker_lost
        and not getattr(task, "retry_on_worker_lost", False)  # new in Celery 5.7
    ]
    if dropped:
        logger.info(
            "acks_late without task_reject_on_worker_lost: a run whose process is killed is not repeated, "
            "and the next one is the schedule's (%s)",
            _some(dropped),
        )


def _check_store(worker: Any, _tasks: Tasks) -> None:
    store = Store(read_settings(worker.app))
    try:
        memory = store.memory()
    except StoreUnavailable as error:
        if isinstance(error.__cause__, ResponseError):
            return  # the user may not ask for INFO, and need not
        raise
    finally:
        store.close()
    if memory["limit"] and memory["policy"] != "noeviction":
        logger.warning(
            "the lease store may drop leases when its memory is full (maxmemory %d bytes, policy %s): set "
            "maxmemory-policy to noeviction, or give the leases a server of their own (lease_url)",
            *(memory["limit"], memory["policy"]),
        )


def _some(names: Sequence[str]) -> str:
    """A few of them, and how many more."""
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown  # noqa: PLR2004 - said above


_CHECKS: tuple[Callable[[Any, Tasks], None], ...] = (
    _check_redelivery,
    _check_limits,
    _check_pool,
    _check_repetition,
    _check_store,
)
