"""The lease store: one Redis, reached only through the scripts in `lua/`, every call bounded.

A `Store` belongs to one process. `store_of` hands out the current process's own, so that no socket
crosses a fork.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from celery_lease._errors import LeaseError, StoreUnavailable
from celery_lease._keys import Keys
from celery_lease._settings import Settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from celery import Celery

#: Bound of connecting and of each answer. redis-py's own defaults can block one call for a minute.
CALL_SECONDS = 2.0

#: Keys of a per-argument lease go this long after their last run: 90 days.
_KEEP_PER_ARGUMENT_MS = 90 * 24 * 3600 * 1000

Renewal = Literal["renewed", "retaken", "released", "lost"]


class Grant(NamedTuple):
    """An acquired lease: its fence, and since when, by the server's clock (ISO 8601, UTC)."""

    fence: int
    since: str


class Refusal(NamedTuple):
    """Why there is no lease, and who holds it as far as that is known.

    `answer` is `locked`, `already_done`, `finished` (this delivery was carried out before) or `live`
    (this delivery is being carried out now).
    """

    answer: str
    holder: dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """What a run presents at acquire, renew and release.

    Attributes:
        keys: the lease's keys.
        token: random; proof of ownership.
        holder: for people: task, task_id, retries, worker, host, pid.
        delivery: "task id/retries", or "" without a message.
        redelivered: whether the broker says that the message was sent before.
        slot: UTC epoch seconds of the schedule's instant as text, or "" for a manual run.
        per_argument: whether the lease's name was made from arguments; such keys expire.
    """

    keys: Keys
    token: str
    holder: Mapping[str, str]
    delivery: str = ""
    redelivered: bool = False
    slot: str = ""
    per_argument: bool = False

    @property
    def keep_ms(self) -> int:
        """How long the lease's other keys stay after a run, in milliseconds; 0 = for ever."""
        return _KEEP_PER_ARGUMENT_MS if self.per_argument else 0


class _Script(NamedTuple):
    text: str
    sha: str


@lru_cache
def _script(name: str) -> _Script:
    lua = files("celery_lease") / "lua"
    text = (lua / "common.lua").read_text() + (lua / f"{name}.lua").read_text()
    return _Script(text, sha1(text.encode()).hexdigest())  # noqa: S324 - the protocol's name for a script


class Store:
    """The operations on leases. Each is one script call in one round trip.

    All raise `StoreUnavailable` within about `CALL_SECONDS` when the store does not answer.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lease_ms = round(settings.seconds * 1000)
        self._client = _client(settings)
        self._known: set[str] = set()

    def keys(self, name: str) -> Keys:
        """The keys of the lease called `name`."""
        return Keys(self.settings.key_prefix, name)

    def acquire(self, claim: Claim) -> Grant | Refusal:
        """Take the lease if it is free. Idempotent for a repeated token."""
        answer = self._call(
            "acquire",
            claim.keys.all,
            claim.token,
            self._lease_ms,
            self.settings.history,
            claim.keep_ms,
            claim.delivery,
            int(claim.redelivered),
            claim.slot,
            *_flat(claim.holder),
        )
        self._register(claim.keys.name)
        if answer[0] == "granted":
            return Grant(int(answer[1]), answer[2])
        return Refusal(answer[0], _holder(answer[1:]) if answer[0] == "locked" else {})

    def renew(self, claims: Sequence[tuple[Claim, Grant]]) -> list[Renewal | StoreUnavailable]:
        """Set each lease back to its full length, all in one round trip; an answer for each, in order."""
        calls = [
            (
                [claim.keys.lease, claim.keys.fence, claim.keys.ledger],
                [claim.token, grant.fence, self._lease_ms, *_flat(claim.holder), "since", grant.since],
            )
            for claim, grant in claims
        ]
        return self._batch("renew", calls)

    def release(
        self, claim: Claim, grant: Grant, outcome: str, facts: Mapping[str, Any], *, late: bool = False
    ) -> str:
        """Give the lease back and close the run; return the outcome that was recorded.

        Args:
            claim: as acquired.
            grant: as granted.
            outcome: how the body ended; the answer is `lost` instead when another owner was seen.
            facts: `worked` and `backlog` (integers), and what else belongs into the run record.
            late: the body ended under a trusted lease, and only this call comes late.
        """
        facts = dict(facts)
        worked, backlog = facts.pop("worked", 1), facts.pop("backlog", "")
        answer = self._call(
            "release",
            claim.keys.all,
            claim.token,
            grant.fence,
            self.settings.history,
            claim.keep_ms,
            claim.delivery,
            claim.slot,
            outcome,
            worked,
            backlog,
            int(late),
            *_flat({**claim.holder, "since": grant.since, **facts}),
        )
        return str(answer[1])

    def withdraw(self, claim: Claim, since: str) -> None:
        """Take back an acquire whose answer never came, and record the skip that it became.

        Args:
            claim: as presented to `acquire`.
            since: when the run was skipped, ISO 8601, UTC.
        """
        keys = claim.keys
        self._call(
            "withdraw",
            [keys.lease, keys.done, keys.ledger, keys.runs],
            claim.token,
            self.settings.history,
            claim.keep_ms,
            since,
            *_flat(claim.holder),
        )

    def peek(self, name: str) -> dict[str, Any] | None:
        """Who holds the lease, as in `Skipped.holder` with `fence` and `token_prefix`; None when free."""
        answer = self._call("peek", [self.keys(name).lease])
        return _holder(answer) if answer else None

    def close(self) -> None:
        """Close the store's connections."""
        self._client.close()

    def _register(self, name: str) -> None:
        """Add the name to the set of jobs, once per process; outside the scripts, for clusters."""
        if name in self._known:
            return
        try:
            self._client.sadd(f"{self.settings.key_prefix}jobs", name)
        except (RedisError, OSError):
            # The set only lists what there is to look at; the lease does not depend on it, and the
            # next run of this name tries again.
            return
        self._known.add(name)

    def _call(self, name: str, keys: Sequence[str], *args: Any) -> list[Any]:
        script = _script(name)
        try:
            try:
                answer = self._client.evalsha(script.sha, len(keys), *keys, *args)
            except NoScriptError:
                answer = self._client.eval(script.text, len(keys), *keys, *args)
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error
        return list(answer)

    def _batch(self, name: str, calls: Sequence[tuple[list[str], list[Any]]]) -> list[Any]:
        script = _script(name)
        try:
            answers = self._pipelined(script, calls)
            if any(isinstance(answer, NoScriptError) for answer in answers):
                self._client.script_load(script.text)
                answers = self._pipelined(script, calls)
        except (RedisError, OSError) as error:
            return [_unavailable(error)] * len(calls)
        return [_unavailable(a) if isinstance(a, Exception) else a[0] for a in answers]

    def _pipelined(self, script: _Script, calls: Sequence[tuple[list[str], list[Any]]]) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipe:
            for keys, args in calls:
                pipe.evalsha(script.sha, len(keys), *keys, *args)
            return pipe.execute(raise_on_error=False)


_stores: dict[tuple[Any, ...], Store] = {}
os.register_at_fork(after_in_child=_stores.clear)


def store_of(app: Celery) -> Store:
    """This process's store for the app's current settings.

    Raises:
        LeaseError: the settings are wrong.
    """
    settings = read_settings(app)
    identity = (
        settings.url,
        repr(sorted(settings.url_options.items())),
        settings.key_prefix,
        settings.history,
    )
    key = (*identity, settings.seconds)
    if key not in _stores:
        _stores[key] = Store(settings)
    return _stores[key]


def _client(settings: Settings) -> redis.Redis:
    bounds: dict[str, Any] = {
        "socket_timeout": CALL_SECONDS,
        "socket_connect_timeout": CALL_SECONDS,
    }
    # The scripts answer the same in protocols 2 and 3, and servers before 6.0 refuse the handshake of 3.
    options = {**bounds, "protocol": 2, **settings.url_options}
    try:
        pool = redis.ConnectionPool.from_url(settings.url, **options)
        # What must hold whatever the URL says: answers are text, and no call outlasts its bound.
        pool.connection_kwargs.update(
            {
                name: min(float(pool.connection_kwargs.get(name) or bound), bound)
                for name, bound in bounds.items()
            },
            decode_responses=True,
            encoding="utf-8",
            encoding_errors="replace",
            # One more try on a connection that the server closed, none on a silent one: every script
            # may be repeated, and a second wait would double the bound.
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        )
        pool.connection_class(**pool.connection_kwargs)  # says now what it would refuse at the first call
        return redis.Redis(connection_pool=pool)
    except (ValueError, TypeError, RedisError) as error:
        raise LeaseError(f"lease_url or lease_url_options cannot be used: {error}") from error


def _unavailable(error: Exception) -> StoreUnavailable:
    """The cause in words. Of an error that the server answered only the code: the rest may repeat a token."""
    said = str(error).split(" ", 1)[0] if isinstance(error, redis.ResponseError) else str(error)
    unavailable = StoreUnavailable(f"{type(error).__name__}: {said}")
    unavailable.__cause__ = error
    return unavailable


def _flat(fields: Mapping[str, Any]) -> list[Any]:
    return [part for pair in fields.items() for part in pair]


def _holder(answer: Sequence[Any]) -> dict[str, Any]:
    """{milliseconds left, field, value, ...} as a dict with `expires_in` in seconds."""
    left, *flat = answer
    holder: dict[str, Any] = dict(zip(flat[::2], flat[1::2], strict=True))
    if holder and int(left) >= 0:
        holder["expires_in"] = int(left) / 1000
    return holder
