"""An app as a user of the library would write it, with jobs that tests can steer. Set up by environment."""

import json
import os
import signal
import time
from typing import Any

import redis
from celery import Celery, Task
from celery.exceptions import Ignore, Reject

from celery_lease import current_lease, hold, leased_task

URL = os.environ.get("PROBE_URL", "redis://127.0.0.1:1/0")

app = Celery("probe", broker=URL, backend=os.environ.get("PROBE_BACKEND", URL))
app.conf.update(
    lease_url=os.environ.get("PROBE_LEASE_URL"),
    lease_key_prefix=os.environ.get("PROBE_KEY_PREFIX", "cron:"),
    lease_seconds=float(os.environ.get("PROBE_LEASE_SECONDS", "3")),
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    task_track_started=True,
    worker_send_task_events=True,
    task_send_sent_event=True,
    broker_connection_retry_on_startup=True,
    redis_socket_timeout=float(os.environ.get("PROBE_SOCKET_TIMEOUT", "2")),
    redis_socket_connect_timeout=2.0,
    result_backend_transport_options={
        "retry_policy": {"timeout": float(os.environ.get("PROBE_SOCKET_TIMEOUT", "2"))}
    },
    worker_hijack_root_logger=True,
)
app.conf.update(json.loads(os.environ.get("PROBE_CONF", "{}")))


def beside() -> redis.Redis:
    """A client of the jobs' own, for barriers and for what they write."""
    url = os.environ.get("PROBE_SIDE_URL", URL)
    return redis.Redis.from_url(url, decode_responses=True, protocol=2, socket_timeout=None)


def note(key: str, **fields: Any) -> None:
    """Append to a stream that the test reads: the real effects of bodies, in the order they happened."""
    beside().xadd(key, {name: str(value) for name, value in fields.items()})


@leased_task(name="sleep")
def sleep(seconds: float) -> int:
    """Run for a time; say when it began and ended."""
    fence = current_lease().fence
    note("bodies", job="sleep", at="begin", fence=fence, pid=os.getpid())
    time.sleep(seconds)
    note("bodies", job="sleep", at="end", fence=fence, pid=os.getpid())
    return fence


@leased_task(name="barrier", ignore_result=False)
def barrier(key: str = "gate", seconds: float = 30) -> str:
    """Say that the body is entered, then wait until the test pushes to the key."""
    side = beside()
    side.lpush(f"{key}:entered", os.getpid())
    answer = side.blpop([key], timeout=seconds)
    return str(answer[1]) if answer else "nobody came"


@leased_task(name="curation")
def curation(key: str = "gate") -> dict[str, int]:
    """A barrier under the name of one of the application's jobs, for pictures."""
    barrier.run(key)
    return {"worked": 12, "backlog": 38}


@leased_task(name="burn")
def burn(seconds: float) -> int:
    """Burn CPU in Python, holding the interpreter's lock as much as Python lets it."""
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        rounds += 1
    return rounds


@leased_task(name="fail")
def fail(message: str = "on purpose") -> None:
    """Raise."""
    raise ValueError(message)


@leased_task(name="retry", bind=True, max_retries=10)
def retry(self: Task[Any, Any], times: int, countdown: float = 0, linger: float = 0) -> int:
    """Retry so many times, each time with something left to do, then return the number of attempts."""
    if self.request.retries < times:
        try:
            raise self.retry(countdown=countdown)
        finally:
            time.sleep(linger)
    return int(self.request.retries) + 1


@leased_task(
    name="autoretry", bind=True, autoretry_for=(ValueError,), retry_kwargs={"countdown": 0}, max_retries=3
)
def autoretry(self: Task[Any, Any], times: int) -> int:
    """Fail so many times and let Celery's autoretry do the rest."""
    if self.request.retries < times:
        raise ValueError("again")
    return int(self.request.retries) + 1


@leased_task(name="gives_up", bind=True, max_retries=1)
def gives_up(self: Task[Any, Any]) -> None:
    """Retry once more than allowed."""
    raise self.retry(countdown=0)


@leased_task(name="retries_and_returns", bind=True, max_retries=10)
def retries_and_returns(self: Task[Any, Any], times: int) -> int:
    """Have the next attempt sent without raising for it, and go on for a while."""
    if self.request.retries < times:
        self.retry(countdown=0, throw=False)
        time.sleep(0.2)
    note("attempts", number=self.request.retries)
    return int(self.request.retries) + 1


@leased_task(name="replaces", bind=True)
def replaces(self: Task[Any, Any], times: int) -> str:
    """Put itself, one less, in its own place."""
    if times:
        raise self.replace(self.si(times - 1))
    return "at the end of the row"


@leased_task(name="ignore")
def ignore() -> None:
    """End with Celery's Ignore."""
    raise Ignore


@leased_task(name="reject")
def reject() -> None:
    """End with Celery's Reject."""
    raise Reject("on purpose", requeue=False)


@leased_task(name="requeues", acks_late=True, reject_on_worker_lost=True)
def requeues(times: int) -> str:
    """Put its message back into the queue so many times."""
    if beside().incr("requeued") <= times:
        raise Reject("on purpose", requeue=True)
    return "done"


@leased_task(name="limited")
def limited(seconds: float) -> str:
    """Sleep; time limits come with the message."""
    time.sleep(seconds)
    return "done"


@leased_task(name="per_tenant", lease="export:{tenant}")
def per_tenant(tenant: Any = "acme", seconds: float = 0) -> str:
    """One lease per tenant."""
    time.sleep(seconds)
    return current_lease().name


@leased_task(name="counts")
def counts(worked: int, backlog: int) -> dict[str, int]:
    """Report what was done and what is left."""
    return {"worked": worked, "backlog": backlog}


@leased_task(name="batch")
def batch(size: int = 3, *, dry_run: bool = False) -> dict[str, int]:
    """Take items off the list `items`; say which, and how many are left. The item `gate` is a barrier."""
    side, lease, worked = beside(), current_lease(), 0
    for item in side.lrange("items", 0, size - 1):
        lease.check()
        if item == "gate":
            side.lpush("gate:entered", os.getpid())
            side.blpop(["gate"], timeout=30)
        if not dry_run:
            side.lpop("items")
            note("batch", item=item, fence=lease.fence)
        worked += 1
    return {"worked": worked, "backlog": int(side.llen("items"))}


@leased_task(name="forks")
def forks(seconds: float = 0) -> bool:
    """Fork a child that lives so long; the lease must still be this run's."""
    pid = os.fork()
    if not pid:
        time.sleep(seconds)
        os._exit(0)
    os.waitpid(pid, 0)
    return current_lease().check()


@leased_task(name="deaf")
def deaf(seconds: float) -> None:
    """Sleep and do not hear SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    time.sleep(seconds)


@leased_task(name="nested")
def nested() -> None:
    """Need a second lease in the body."""
    with hold("sleep"):
        pass


@app.task(name="plain")
def plain(value: Any = None) -> Any:
    """An ordinary task, for canvas."""
    return value


@app.task(name="notes", ignore_result=True)
def notes(key: str) -> None:
    """Say that it ran; touches no result backend."""
    note(key, pid=os.getpid())


@app.task(name="waits", ignore_result=True)
def waits(key: str) -> None:
    """An ordinary task that occupies its pool process until the test pushes to the key."""
    side = beside()
    side.lpush(f"{key}:entered", os.getpid())
    side.blpop([key], timeout=30)


@app.task(name="errback")
def errback(request: Any, exc: Any, _traceback: Any) -> None:
    """Say that it was called, and with what."""
    note("errbacks", task_id=request.id, exc=type(exc).__name__, reason=getattr(exc, "reason", ""))


@app.task(name="old_errback")
def old_errback(task_id: str) -> None:
    """The same in Celery's older form, which knows nothing but the id."""
    note("errbacks", task_id=task_id)


@leased_task(name="forgetful", lease="barrier", ignore_result=True)
def forgetful() -> None:
    """Under the lease of `barrier`; its results are not stored."""


@leased_task(name="half_forgetful", lease="barrier", ignore_result=True, store_errors_even_if_ignored=True)
def half_forgetful() -> None:
    """Under the lease of `barrier`; of its results only failures are stored."""


@leased_task(name="monthly", period=lambda: "2026-09")
def monthly() -> None:
    """About a period, which it names."""
