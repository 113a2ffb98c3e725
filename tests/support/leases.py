"""Leases inside the test's own process: apps, and one job as the lease store's scripts see it."""

import secrets
from collections.abc import Callable
from typing import Any

from celery import Celery

from celery_lease import LeasedTask
from celery_lease._store import Claim, Grant, Refusal, Renewal, Store

SECONDS = 3.0


def make_app(url: str, **settings: Any) -> Celery:
    """An app that is not the current one, with everything on one server unless settings say otherwise."""
    app = Celery("inside", broker=url, backend=url, set_as_current=False)
    app.conf.update(
        lease_seconds=SECONDS,
        redis_socket_timeout=2.0,
        redis_socket_connect_timeout=2.0,
        broker_connection_timeout=2.0,
        result_backend_transport_options={"retry_policy": {"timeout": 2.0}},
    )
    app.conf.update(settings)
    return app


def leased(app: Celery, name: str = "job", **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a leased task of this app alone, at once."""
    make: Any = app.task  # its types know no options of ours
    return make(name=name, base=LeasedTask, shared=False, lazy=False, **options)  # type: ignore[no-any-return]


class Job:
    """One name: claims on its lease, and what the store holds about it.

    Attributes:
        client: looks at the store from outside.
    """

    def __init__(self, store: Store, client: Any, name: str = "job", *, per_argument: bool = False) -> None:
        self.client = client  # of redis-py; its answers are typed as if every client were asynchronous
        self.store = store
        self.keys = store.keys(name)
        self._per_argument = per_argument

    def claim(self, **about: Any) -> Claim:
        """A new run's claim, with a token of its own."""
        holder = {
            "task": "job",
            "task_id": "one",
            "retries": "0",
            "worker": "w@here",
            "host": "here",
            "pid": "7",
        }
        holder.update(about.pop("holder", {}))
        return Claim(self.keys, secrets.token_hex(16), holder, per_argument=self._per_argument, **about)

    def acquire(self, claim: Claim | None = None, **about: Any) -> tuple[Claim, Grant]:
        """A granted claim; a new one unless it is given."""
        claim = claim or self.claim(**about)
        answer = self.store.acquire(claim)
        assert isinstance(answer, Grant), answer
        return claim, answer

    def refused(self, claim: Claim | None = None, **about: Any) -> Refusal:
        """The refusal of a claim; of a new one unless it is given."""
        answer = self.store.acquire(claim or self.claim(**about))
        assert isinstance(answer, Refusal), answer
        return answer

    def renew(self, claim: Claim, grant: Grant) -> str:
        """The answer to one renewal."""
        [answer] = self.store.renew([(claim, grant)])
        assert isinstance(answer, Renewal), answer
        return answer.answer

    def release(self, claim: Claim, grant: Grant, outcome: str = "ran", **facts: Any) -> str:
        """Give the lease back; the outcome that was recorded."""
        late = facts.pop("late", False)
        return self.store.release(claim, grant, outcome, facts, late=late)

    def run(self, outcome: str = "ran", **facts: Any) -> Grant:
        """One whole run; what it was granted."""
        claim, grant = self.acquire()
        assert self.release(claim, grant, outcome, **facts) == outcome
        return grant

    def expire(self) -> None:
        """The end of an unrenewed lease, without the waiting."""
        assert self.client.pexpire(self.keys.lease, 0)
        assert not self.is_held()

    def is_held(self) -> bool:
        """Whether there is anything at the lease's key."""
        return bool(self.client.exists(self.keys.lease))

    @property
    def held(self) -> dict[str, str]:
        """The lease as it is now; empty when it is free."""
        return dict(self.client.hgetall(self.keys.lease))

    @property
    def ledger(self) -> dict[str, str]:
        """The job's counters."""
        return dict(self.client.hgetall(self.keys.ledger))

    @property
    def records(self) -> list[dict[str, str]]:
        """The job's run records, oldest first."""
        return [fields for _, fields in self.client.xrange(self.keys.runs)]

    @property
    def outcomes(self) -> list[str]:
        """Of the run records, oldest first."""
        return [record["outcome"] for record in self.records]

    def total(self, outcome: str) -> int:
        """How many runs ended like this."""
        return int(self.ledger.get(f"total:{outcome}", 0))

    @property
    def streak(self) -> int:
        """Skips in a row."""
        return int(self.ledger.get("streak", 0))
