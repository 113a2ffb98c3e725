"""A past for the pages to show: records and counters as the scripts write them, at any instant."""

from datetime import UTC, datetime, timedelta
from typing import Any

import redis

from celery_lease._keys import Keys

_REAL = ("ran", "unguarded")


class Past:
    """One job's ledger, written from the oldest record to the newest."""

    def __init__(self, client: redis.Redis, name: str, task: str | None = None) -> None:
        self._client = client
        self._name = name
        self._task = task or name
        self._keys = Keys("cron:", name)
        self._number = 0
        client.sadd("cron:jobs", name)

    def add(self, at: datetime, outcome: str = "ran", *, took: float = 1.0, **fields: Any) -> str:
        """One record of a run that began at `at`; its task id."""
        self._number += 1
        task_id = f"{self._number:08x}-0000-4000-8000-000000000000"
        ended = at if outcome.startswith("skipped") or outcome == "missed" else at + timedelta(seconds=took)
        record = {"outcome": outcome, "ended": _iso(ended), "task": self._task, "task_id": task_id}
        record |= {"worker": "worker@host", "host": "host", "pid": "1"}
        if not outcome.startswith("skipped") and outcome != "missed":
            record |= {"since": _iso(at), "fence": str(int(at.timestamp() * 1e6)), "worked": "1"}
        record |= {name: str(value) for name, value in fields.items()}
        self._client.xadd(self._keys.runs, record, id=f"{int(ended.timestamp() * 1000)}-{self._number}")  # type: ignore[arg-type]
        self._count(outcome, ended, took, record)
        return task_id

    def _count(self, outcome: str, ended: datetime, took: float, record: dict[str, str]) -> None:
        ledger = self._keys.ledger
        self._client.hincrby(ledger, f"total:{outcome}", 1)
        if outcome in _REAL:
            self._client.hset(ledger, mapping={"last_ran": _iso(ended), "streak": 0})
            if record["worked"] != "0":
                self._client.hset(ledger, "last_worked", _iso(ended))
        if outcome in ("skipped_locked", "skipped_lock_unavailable"):
            self._client.hincrby(ledger, "streak", 1)
        if record.get("backlog"):
            self._client.hset(ledger, "backlog", record["backlog"])
        if "since" in record:
            self._client.hset(ledger, mapping={"last_started": record["since"]})
            self._client.hincrby(ledger, "took_ms", round(took * 1000))

    def hold(self, at: datetime, *, seconds: float = 300, connected: bool | None = None) -> str:
        """A lease that is held since `at`; its task id."""
        task_id = "cafe0000-0000-4000-8000-000000000000"
        held = {
            "token": "0" * 32,
            "fence": str(int(at.timestamp() * 1e6)),
            "since": _iso(at),
            "renewed": _iso(at),
        }
        held |= {"task": self._task, "task_id": task_id, "worker": "worker@host", "host": "host", "pid": "1"}
        if connected is not None:
            held["alive"] = f"{self._keys.lease}:alive:nobody"
        self._client.hset(self._keys.lease, mapping=held)  # type: ignore[arg-type]
        self._client.pexpire(self._keys.lease, round(seconds * 1000))
        opened = {"open_fence": held["fence"], "open_task_id": task_id, "open_worker": "worker@host"}
        opened |= {"open_since": held["since"], "last_started": held["since"]}
        self._client.hset(self._keys.ledger, mapping=opened)  # type: ignore[arg-type]
        return task_id

    def seen_since(self, at: datetime, entry: str | None = None) -> None:
        """The watchdog knows the schedule's entry since then."""
        now = int(datetime.now(UTC).timestamp() * 1000)
        seen = f"{int(at.timestamp() * 1000)} {now}"
        self._client.hset(Keys("cron:", "watchdog").lease + ":seen", entry or self._name, seen)


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def quarters(until: datetime, hours: float) -> list[datetime]:
    """The quarters of an hour up to `until`, oldest first."""
    last = until.replace(minute=until.minute // 15 * 15, second=0, microsecond=0)
    count = int(hours * 4)
    return [last - timedelta(minutes=15 * back) for back in range(count, -1, -1)]
