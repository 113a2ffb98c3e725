"""The lease store: one Redis, reached only through the scripts in `lua/`, every call bounded.

A `Store` belongs to one process. `store_of` hands out the current process's own, so that no socket
crosses a fork.
"""

from __future__ import annotations

import json
import os
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.cluster import RedisCluster
from redis.exceptions import MovedError, NoScriptError, RedisError, ResponseError

from celery_lease._clients import connect, has_new_primary
from celery_lease._errors import StoreUnavailable
from celery_lease._keys import Keys, trigger_key
from celery_lease._settings import Settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from celery import Celery
    from redis import Redis

#: Keys of a per-argument lease go this long after their last run: 90 days.
_KEEP_PER_ARGUMENT_MS = 90 * 24 * 3600 * 1000


#: Fields of a lease that are for the scripts and not for people.
_BOOKKEEPING = frozenset({"alive", "gone_since", "gone_seen", "parked", "parked_by"})


class Grant(NamedTuple):
    """An acquired lease.

    Attributes:
        fence: grows with every grant.
        since: by the server's clock, ISO 8601, UTC.
        alive: whether the store saw this process's live connection and wrote that down.
    """

    fence: int
    since: str
    alive: bool = False


class Refusal(NamedTuple):
    """Why there is no lease.

    Attributes:
        answer: `locked`; `waiting` (the holder is not connected, look again soon); `already_done`;
            `finished` (this delivery was carried out before); `live` (it is being carried out now);
            `capped` (it died with its worker too often).
        holder: who holds the lease, as far as that is known.
        detail: of `live`, what to park the copy as, or ""; of `capped`, the deaths.
    """

    answer: str
    holder: dict[str, Any]
    detail: str = ""


class Renewal(NamedTuple):
    """The answer to one renewal: `renewed`, `retaken`, `released` or `lost`; and `Grant.alive`."""

    answer: str
    alive: bool


@dataclass(frozen=True)
class Claim:
    """What a run presents at acquire, renew and release.

    Attributes:
        keys: the lease's keys.
        token: random; proof of ownership.
        holder: for people: task, task_id, retries, worker, host, pid.
        delivery: "task id/retries", or "" without a message.
        message: what all copies of the message share and no other message does, or "" where the broker has
            no such thing.
        copy: "" for the message itself, `redelivered` when the broker says that it was sent before,
            else what a parked copy was sent with.
        slot: UTC epoch seconds of the schedule's instant as text, or "" for a manual run.
        entry: of the schedule that the slot is of, or "".
        per_argument: whether the lease's name was made from arguments; such keys expire.
        channel: which this process subscribes to while it lives, or "".
        standby: it is presented again and again, as long as the claimant lives; a refusal is then no skip.
        park_seconds: how long a copy of a live delivery is to be parked.
    """

    keys: Keys
    token: str = field(repr=False)
    holder: Mapping[str, str]
    delivery: str = ""
    message: str = ""
    copy: str = ""
    slot: str = ""
    entry: str = ""
    per_argument: bool = False
    channel: str = ""
    standby: bool = False
    park_seconds: float = 30.0

    @property
    def remembered(self) -> str:
        """What the delivery is remembered as once it is carried out."""
        return f"{self.delivery}#{self.message}" if self.message else self.delivery

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
        # A cluster client asks the cluster when it is made, so that one is made at the first call.
        in_cluster = settings.url.startswith("redis+cluster://")
        self._made: Redis | RedisCluster | None = None if in_cluster else connect(settings)
        self._known: set[str] = set()

    def keys(self, name: str) -> Keys:
        """The keys of the lease called `name`."""
        return Keys(self.settings.key_prefix, name)

    def acquire(self, claim: Claim, *, patient: bool = False) -> Grant | Refusal:
        """Take the lease if it is free or its holder is dead. Idempotent for a repeated token.

        Args:
            claim: what the run presents.
            patient: the caller looks again, every `look_every`, when the answer is `waiting`; without it
                that answer is `locked`.
        """
        answer = self._call(
            "acquire",
            claim.keys.all,
            claim.token,
            self._lease_ms,
            self.settings.history,
            claim.keep_ms,
            claim.delivery,
            claim.remembered,
            claim.copy,
            claim.slot,
            claim.entry,
            claim.channel,
            round(self.settings.grace * 1000),
            "standby" if claim.standby else int(patient),
            round(claim.park_seconds * 1000),
            self.settings.delivery_cap,
            *_flat(claim.holder),
        )
        self._register(claim.keys.name)
        if answer[0] == "granted":
            return Grant(int(answer[1]), answer[2], answer[3] == "1")
        if answer[0] in ("locked", "waiting"):
            return Refusal(answer[0], _shown(_holder(answer[1:])))
        return Refusal(answer[0], {}, "".join(str(part) for part in answer[1:]))

    def renew(self, claims: Sequence[tuple[Claim, Grant]]) -> list[Renewal | StoreUnavailable]:
        """Set each lease back to its full length, in one round trip per node; the answers in order."""
        answers: list[Renewal | StoreUnavailable] = [StoreUnavailable("not asked")] * len(claims)
        by_node: dict[int, list[int]] = {}
        nodes: dict[int, Redis] = {}
        try:
            for index, (claim, _) in enumerate(claims):
                node = self.node(claim.keys.lease)
                nodes[id(node)] = node
                by_node.setdefault(id(node), []).append(index)
        except StoreUnavailable as error:
            return [error] * len(claims)
        for key, indices in by_node.items():
            batch = self._batch(nodes[key], [self._renewal(*claims[index]) for index in indices])
            for index, answer in zip(indices, batch, strict=True):
                answers[index] = answer
        return answers

    def connected(self, node: Redis, channels: Iterable[str]) -> dict[str, bool]:
        """Which of the channels somebody is subscribed to on their node, in one command."""
        try:
            answer = node.pubsub_shardnumsub(*channels)
        except (RedisError, OSError) as error:
            self._follow(error)
            raise _unavailable(error) from error
        return {_as_text(channel): bool(count) for channel, count in answer}

    def has_new_primary(self) -> bool:
        """Whether Sentinel names another primary than it did before."""
        try:
            return has_new_primary(self._client)
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error

    def node(self, key: str) -> Redis:
        """The client of the server that has `key` now."""
        client = self._client
        if not isinstance(client, RedisCluster):
            return client
        try:
            node = client.get_node_from_key(key)  # type: ignore[no-untyped-call]
            if node is None:
                raise StoreUnavailable("the cluster has no node for the slot")
            return client.get_redis_connection(node)
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error

    def _renewal(self, claim: Claim, grant: Grant) -> tuple[list[str], list[Any]]:
        keys = [claim.keys.lease, claim.keys.fence, claim.keys.ledger]
        holder = _flat({**claim.holder, "since": grant.since})
        return keys, [claim.token, grant.fence, self._lease_ms, claim.channel, *holder]

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
            claim.remembered,
            claim.slot,
            claim.entry,
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
            since: when the run was skipped, ISO 8601, UTC; "" when it was not, because it will ask again.
        """
        keys = claim.keys
        self._call(
            "withdraw",
            [keys.lease, keys.done, keys.ledger, keys.runs],
            claim.token,
            self.settings.history,
            claim.keep_ms,
            since,
            claim.delivery,
            claim.remembered,
            *_flat(claim.holder),
        )

    def amend(self, claim: Claim, grant: Grant, facts: Mapping[str, Any]) -> None:
        """Correct a run recorded as `ran` to `failed`: its result could not be stored.

        Args:
            claim: as acquired.
            grant: as granted.
            facts: what else belongs into the run record.
        """
        self._call(
            "amend",
            [claim.keys.ledger, claim.keys.runs],
            grant.fence,
            self.settings.history,
            *_flat({**claim.holder, "since": grant.since, **facts}),
        )

    def finish(self, claim: Claim) -> None:
        """Remember the claim's delivery as carried out, once the message that follows it is sent."""
        self._call("finish", [claim.keys.done], claim.remembered)

    def sent(self, keys: Keys, slots: Mapping[str, int]) -> dict[str, int]:
        """Remember the last slot sent of these schedule entries; all that is remembered.

        Args:
            keys: of the scheduler's lease.
            slots: UTC epoch seconds by the entry's name; one that is not newer changes nothing.
        """
        answer = self._call("sent", [keys.sent], *_flat(slots))
        return {entry: int(slot) for entry, slot in zip(answer[::2], answer[1::2], strict=True)}

    def take_away(self, name: str, token_prefix: str, facts: Mapping[str, Any], *, force: bool) -> list[Any]:
        """Take the lease away from its holder; the answer of `break.lua`.

        Args:
            name: the lease's.
            token_prefix: as the operator saw it; "" for an unknown holder.
            facts: who does it, for the ledger.
            force: also from a holder that is connected.
        """
        keys = self.keys(name)
        return self._call(
            "break",
            [keys.lease, keys.fence, keys.ledger, keys.runs],
            token_prefix,
            int(force),
            self.settings.history,
            *_flat(facts),
        )

    def fence(self, name: str) -> Grant:
        """A fence without a lease, for a run that goes although the lease is held."""
        fence, since = self._call("fence", [self.keys(name).fence])
        self._register(name)
        return Grant(int(fence), since)

    def unguarded(self, claim: Claim, grant: Grant, outcome: str, facts: Mapping[str, Any]) -> None:
        """Write down a run that went without a lease.

        Args:
            claim: what it would have presented.
            grant: its fence, and when it began.
            outcome: how the body ended.
            facts: as for `release`.
        """
        facts = dict(facts)
        worked, backlog = facts.pop("worked", 1), facts.pop("backlog", "")
        self._call(
            "unguarded",
            [claim.keys.ledger, claim.keys.runs],
            grant.fence,
            self.settings.history,
            claim.keep_ms,
            outcome,
            worked,
            backlog,
            *_flat({**claim.holder, "since": grant.since, **facts}),
        )

    def note(self, name: str, outcome: str, facts: Mapping[str, Any], *, per_argument: bool) -> None:
        """Write down a message that nobody tried to carry out."""
        keys, keep_ms = self.keys(name), _KEEP_PER_ARGUMENT_MS if per_argument else 0
        self._call("note", [keys.ledger, keys.runs], self.settings.history, keep_ms, outcome, *_flat(facts))
        self._register(name)

    def judge(self, name: str, until: int, missed: Iterable[int], *, per_argument: bool) -> None:
        """Write down the slots that left no trace; every slot up to `until` has been judged by now.

        Args:
            name: the lease's.
            until: UTC epoch seconds.
            missed: UTC epoch seconds, in order.
            per_argument: as in `Claim`.
        """
        keys, keep_ms = self.keys(name), _KEEP_PER_ARGUMENT_MS if per_argument else 0
        self._call("judge", [keys.ledger, keys.runs], self.settings.history, keep_ms, until, *missed)
        self._register(name)

    def abandon(self, name: str, *, leaseless_seconds: float, unconnected_seconds: float) -> str:
        """Close the open run if nobody is there any more to report its end; the answer of `abandon.lua`."""
        keys = self.keys(name)
        answer = self._call(
            "abandon",
            [keys.lease, keys.ledger, keys.runs],
            self.settings.history,
            round(leaseless_seconds * 1000),
            round(unconnected_seconds * 1000),
        )
        return str(answer[0])

    def seen(self, entries: Iterable[str], gap_seconds: float) -> tuple[float, dict[str, float]]:
        """Since when each entry has been in the schedule, and the time now, in UTC epoch seconds.

        Args:
            entries: all entries of the schedule.
            gap_seconds: an entry that was missing so long, while others were seen, counts as new.
        """
        now, *flat = self._call("seen", [self._watchdog.seen], round(gap_seconds * 1000), *entries)
        since = {entry: int(ms) / 1000 for entry, ms in zip(flat[::2], flat[1::2], strict=True)}
        return int(now) / 1000, since

    def announce(self, tasks: Iterable[str], keep_seconds: int) -> None:
        """Remember which tasks a worker has registered, for so many seconds unless announced again."""
        self._call("announce", [self._watchdog.registered], keep_seconds, *tasks)

    def registered(self) -> set[str]:
        """The tasks that workers have announced; empty where no worker ever did."""
        return set(self._read(lambda client: client.zrange(self._watchdog.registered, 0, -1)))

    def hand_out(
        self, wrong: Mapping[str, str], *, remind_seconds: float, patience_seconds: float
    ) -> list[tuple[str, str, str, float]]:
        """What is to be said about the alerts now: (kind, alert, what, opened), as in `alert.lua`.

        Args:
            wrong: alert → what is wrong; all that is wrong now.
            remind_seconds: an open alert is said again after so long.
            patience_seconds: what is not confirmed (`said`) by then is handed out again.
        """
        remind_ms, patience_ms = round(remind_seconds * 1000), round(patience_seconds * 1000)
        flat = self._call("alert", [self._watchdog.alerts], remind_ms, patience_ms, *_flat(wrong))
        parts = [flat[start::4] for start in range(4)]
        return [(kind, alert, what, int(ms) / 1000) for kind, alert, what, ms in zip(*parts, strict=True)]

    def said(self, said: Iterable[tuple[str, str]]) -> None:
        """Confirm that these (kind, alert) have been said."""
        self._call("said", [self._watchdog.alerts], *(part for pair in said for part in pair))

    def alerts(self) -> dict[str, str]:
        """The alerts as they are: JSON by alert."""
        answer: dict[str, str] = self._read(lambda client: client.hgetall(self._watchdog.alerts))
        return answer

    @property
    def _watchdog(self) -> Keys:
        return self.keys("watchdog")

    def peek(self, name: str) -> dict[str, Any] | None:
        """Who holds the lease, as in `Skipped.holder` with `fence` and `token_prefix`; None when free."""
        answer = self._call("peek", [self.keys(name).lease])
        return _shown(_holder(answer)) if answer else None

    def note_trigger(self, run_id: str, fields: Mapping[str, Any], seconds: float) -> None:
        """Remember for `seconds` that a run of this id was asked for over HTTP."""
        key = trigger_key(self.settings.key_prefix, run_id)
        self._read(lambda client: client.set(key, json.dumps(fields), px=round(seconds * 1000)))

    def trigger(self, run_id: str) -> dict[str, Any] | None:
        """What `note_trigger` remembers; None when that is nothing, or over."""
        key = trigger_key(self.settings.key_prefix, run_id)
        noted = self._read(lambda client: client.get(key))
        return None if noted is None else dict(json.loads(noted))

    def names(self) -> list[str]:
        """The names of all jobs, sorted."""
        return sorted(self._read(lambda client: client.smembers(f"{self.settings.key_prefix}jobs")))

    def ledger(self, name: str) -> dict[str, str]:
        """The job's ledger hash as it is."""
        answer: dict[str, str] = self._read(lambda client: client.hgetall(self.keys(name).ledger))
        return answer

    def records(
        self, name: str, limit: int | None, since_ms: int | None = None
    ) -> list[tuple[str, dict[str, str]]]:
        """The job's run records as they are, newest first: (id, fields); recorded at `since_ms` or later."""
        runs, oldest = self.keys(name).runs, "-" if since_ms is None else str(since_ms)
        return list(self._read(lambda client: client.xrevrange(runs, min=oldest, count=limit)))

    def oldest_record(self, name: str) -> tuple[str, dict[str, str]] | None:
        """The oldest of them that is kept."""
        runs = self.keys(name).runs
        return next(iter(self._read(lambda client: client.xrange(runs, count=1))), None)

    def memory(self) -> dict[str, Any]:
        """What the server does when its memory is full: `policy`, and `limit` in bytes (0 = none)."""
        client = self.node(self.keys("watchdog").lease)
        try:
            info = client.info("memory")
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error
        return {"policy": str(info.get("maxmemory_policy", "?")), "limit": int(info.get("maxmemory", 0))}

    def close(self) -> None:
        """Close the store's connections."""
        if self._made is not None:
            self._made.close()

    @property
    def _client(self) -> Redis | RedisCluster:
        if self._made is None:
            try:
                self._made = connect(self.settings)
            except (RedisError, OSError) as error:
                raise _unavailable(error) from error
        return self._made

    def _read(self, read: Callable[[Redis | RedisCluster], Any]) -> Any:
        try:
            return read(self._client)
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error

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
        script, client = _script(name), self._client
        try:
            try:
                answer = client.evalsha(script.sha, len(keys), *keys, *args)
            except NoScriptError:
                answer = client.eval(script.text, len(keys), *keys, *args)
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error
        return list(answer)

    def _batch(
        self, node: Redis, calls: Sequence[tuple[list[str], list[Any]]]
    ) -> list[Renewal | StoreUnavailable]:
        script = _script("renew")
        try:
            answers = _pipelined(node, script, calls)
            if any(isinstance(answer, NoScriptError) for answer in answers):
                # Whoever may EVAL need not be allowed to SCRIPT LOAD.
                answers = _pipelined(node, script, calls, by_text=True)
        except (RedisError, OSError) as error:
            self._follow(error)
            return [_unavailable(error)] * len(calls)
        for answer in answers:
            self._follow(answer)
        return [_unavailable(a) if isinstance(a, Exception) else Renewal(a[0], a[1] == "1") for a in answers]

    def _follow(self, answer: Any) -> None:
        """Look at a cluster's topology anew when a node moved a slot away, or does not answer."""
        client = self._made
        moved = isinstance(answer, MovedError | OSError) or (
            isinstance(answer, RedisError) and not isinstance(answer, ResponseError)
        )
        if isinstance(client, RedisCluster) and moved:
            try:
                client.nodes_manager.initialize()
            except (RedisError, OSError):
                # The next renewal or check, within a second, tries again.
                return


def _pipelined(
    node: Redis, script: _Script, calls: Sequence[tuple[list[str], list[Any]]], *, by_text: bool = False
) -> list[Any]:
    with node.pipeline(transaction=False) as pipe:
        for keys, args in calls:
            if by_text:
                pipe.eval(script.text, len(keys), *keys, *args)
            else:
                pipe.evalsha(script.sha, len(keys), *keys, *args)
        return pipe.execute(raise_on_error=False)


_stores: dict[str, Store] = {}
os.register_at_fork(after_in_child=_stores.clear)


def store_of(app: Celery) -> Store:
    """This process's store for the app's current settings.

    Raises:
        LeaseError: the settings are wrong.
    """
    settings = read_settings(app)
    key = repr(astuple(settings))
    if key not in _stores:
        _stores[key] = Store(settings)
    return _stores[key]


def _unavailable(error: Exception) -> StoreUnavailable:
    """The cause in words. Of an error that the server answered only the code: the rest may repeat a token."""
    said = str(error).split(" ", 1)[0] if isinstance(error, ResponseError) else str(error)
    unavailable = StoreUnavailable(f"{type(error).__name__}: {said}")
    unavailable.__cause__ = error
    return unavailable


def _as_text(channel: Any) -> str:
    return channel.decode() if isinstance(channel, bytes) else str(channel)


def _flat(fields: Mapping[str, Any]) -> list[Any]:
    return [part for pair in fields.items() for part in pair]


def _shown(holder: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in holder.items() if field not in _BOOKKEEPING}


def _holder(answer: Sequence[Any]) -> dict[str, Any]:
    """{milliseconds left, field, value, ...} as a dict with `expires_in` in seconds."""
    left, *flat = answer
    holder: dict[str, Any] = dict(zip(flat[::2], flat[1::2], strict=True))
    if holder and int(left) >= 0:
        holder["expires_in"] = int(left) / 1000
    return holder
