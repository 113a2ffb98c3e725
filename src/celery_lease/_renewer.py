"""The one thread per process that keeps this process's leases, and shows that the process lives.

Started by the first lease and therefore after any fork; a daemon, so it never delays an exit; ended
after a minute without work. In its loop it

* renews what is due, all leases of a server in one round trip, and tries again with backoff, well
  inside the lease, what could not be renewed;
* keeps the live connections, and asks every second whether the store sees them;
* repeats what the store did not confirm at the end of a run (a release, the withdrawal of an
  unanswered acquire) until it is confirmed.

The thread itself never dies of an error. Runs talk to it through a queue and a socket and never share a
lock with it: a soft time limit may strike inside any call here, and a lock that it leaves locked would
stop every renewal of the process.
"""

from __future__ import annotations

import logging
import os
import queue  # the module: gevent and eventlet replace what is in it, perhaps after this import
import secrets
import selectors  # the module, as above
import socket
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from redis.exceptions import ResponseError

from celery_lease._errors import StoreUnavailable
from celery_lease._live import LiveConnection
from celery_lease._settings import RENEW_SHARE
from celery_lease._threads import start

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

    from celery_lease._keys import Keys
    from celery_lease._lease import Lease
    from celery_lease._store import Renewal, Store

logger = logging.getLogger("celery_lease")

#: Waits after a failed renewal: doubled from the first to the last of these, or less for a short lease.
_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 10.0

#: Leases due within this share of their interval go along in the round trip of the first.
_BATCH_SHARE = 0.1

#: How long a run waits for its channel before it acquires without; the next check would put that right.
_JOIN_SECONDS = 0.5

#: Looks in a row that must miss us before the store is told not to count on our connection.
_MISSES = 2

#: Between two attempts at what the store has not confirmed.
_SETTLE_EVERY_SECONDS = 1.0

#: Unconfirmed ends kept by a process; beyond it the oldest is given up, and its lease ends by itself.
_MOST_UNSETTLED = 64

#: Channels that stay subscribed after their lease, for the next run of that name.
_MOST_CHANNELS = 64

#: How long sentinels that did not answer are left alone: asking them holds up the looks.
_SENTINEL_PAUSE_SECONDS = 60.0

_IDLE_SECONDS = 60.0


@dataclass
class _Entry:
    """A lease under renewal. `due` and `until` are monotonic seconds; at `until` it is given up."""

    lease: Lease
    store: Store
    every: float
    due: float
    until: float
    failures: int = 0
    misses: int = 0

    @property
    def channel(self) -> str:
        return self.lease.claim.channel

    def back_off(self, now: float) -> None:
        wait = min(_FIRST_RETRY_SECONDS * 2**self.failures, _LAST_RETRY_SECONDS, self.every / 2)
        self.failures += 1
        self.plan(now + wait)

    def plan(self, due: float) -> None:
        """Renew next at `due`, unless that is past the end."""
        self.due = min(due, self.until)


class Renewer:
    """Keeps leases alive until they are removed, lost, or past their hard time limit."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(8)
        self._inbox: deque[Callable[[_Work], None]] = deque()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._work: _Work | None = None

    def join(self, store: Store, keys: Keys) -> str:
        """Subscribe to this process's channel for a lease, and wait a moment until the store has seen it.

        Returns:
            The channel, to be presented at acquire; the store checks for itself whether we are there.
        """
        channel = keys.alive(self._nonce)
        joined: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._tell(lambda work: work.live_of(store).join(keys.lease, channel, joined))
        try:
            joined.get(timeout=_JOIN_SECONDS)
        except queue.Empty:
            logger.debug("%s: the live connection is not there yet", keys.name)
        return channel

    def add(self, lease: Lease, store: Store, runs_at_most: float | None = None) -> None:
        """Renew `lease` from now on.

        Args:
            lease: freshly acquired.
            store: where it lives.
            runs_at_most: the task's own hard time limit in seconds. Past it the lease is left to end,
                in every pool, because threads and gevent do not enforce limits.
        """
        every = store.settings.seconds * RENEW_SHARE
        now = time.monotonic()
        until = now + runs_at_most if runs_at_most else float("inf")
        entry = _Entry(lease, store, every, due=min(now + every, until), until=until)
        self._tell(lambda work: work.take(entry))

    def remove(self, lease: Lease) -> None:
        """Stop renewing `lease`. A renewal already under way cannot revive it: the store refuses that."""
        self._inbox.append(lambda work: work.drop(lease))  # read at the next occasion; a bell would cost more

    def settle(
        self, store: Store, channel: str, action: Callable[[], object], *, expendable: bool = False
    ) -> None:
        """Repeat `action` every second until it stops raising `StoreUnavailable`.

        Until then the store may believe that the lease is held, so its channel is left at once: whoever
        wants the lease need not wait for us, only for the grace.

        Args:
            store: where.
            channel: of the lease.
            action: what the store has not confirmed.
            expendable: given up before others, should there be too many.
        """
        self._change_channels()

        def take_over(work: _Work) -> None:
            work.live_of(store).leave(channel)
            work.keep(_Unsettled(store, action, expendable))

        self._tell(take_over)

    def close_inherited(self) -> None:
        """In a forked child: the parent's connections must not look alive through our copies."""
        if self._work is not None:
            self._work.close_inherited()

    def _change_channels(self) -> None:
        """Let later runs join channels of their own, or they would make one that was given up look alive."""
        self._nonce = secrets.token_hex(8)

    def _tell(self, message: Callable[[_Work], None]) -> None:
        self._inbox.append(message)
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._work = _Work(self._change_channels)
                self._thread = threading.Thread(
                    target=self._run, args=(self._work,), name="celery-lease-renewer", daemon=True
                )
                start(self._thread)
            work = self._work
        if work is not None:
            work.bell.ring()

    def _run(self, work: _Work) -> None:
        while True:
            try:
                self._wait(work)
            except Exception:
                logger.exception("the renewer cannot wait for its sockets and goes on without")
                time.sleep(_FIRST_RETRY_SECONDS)
            try:
                while self._inbox:
                    self._inbox.popleft()(work)
                if work.is_over() and self._may_end():
                    work.close()
                    return
                work.do()
            except Exception:
                # Dying here would let every lease of the process run out in silence, which is the worse
                # failure; the pause keeps a lasting error from spinning.
                logger.exception("the renewer met an unexpected error and goes on")
                time.sleep(_FIRST_RETRY_SECONDS)

    def _wait(self, work: _Work) -> None:
        """Sleep until a run says something, a server does, or something is due."""
        if self._inbox:
            return
        # Not `select`, which knows no descriptor from 1,024 on.
        with selectors.DefaultSelector() as selector:
            for sock in (work.bell.socket, *work.sockets()):
                selector.register(sock, selectors.EVENT_READ)
            ready = selector.select(work.seconds_until_due())
        if any(key.fileobj is work.bell.socket for key, _ in ready):
            work.bell.silence()

    def _may_end(self) -> bool:
        with self._starting:
            if self._inbox:
                return False
            self._thread = None
            return True


class _Bell:
    """Wakes the thread from its select. Made with the thread, so that no daemon closes it before."""

    def __init__(self) -> None:
        self.socket, self._pulled = socket.socketpair()
        for end in (self.socket, self._pulled):
            end.setblocking(False)  # noqa: FBT003 - the one argument that it has

    def ring(self) -> None:
        try:
            self._pulled.send(b"!")
        except OSError:
            return  # full, so it rings already; or closed, and the thread that ends looks once more

    def silence(self) -> None:
        self.socket.recv(4096)

    def close(self) -> None:
        self.socket.close()
        self._pulled.close()


class _Place(NamedTuple):
    """Where a channel is subscribed, for the lease at `key`."""

    key: str
    connection: LiveConnection


class _Live:
    """The live connections to one store: one, or in a cluster one per node that has a lease of ours."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connections: dict[str, LiveConnection] = {}
        self._places: dict[str, _Place] = {}
        self._waiting: dict[str, list[queue.SimpleQueue[None]]] = defaultdict(list)
        self._follow_at = 0.0

    def join(self, key: str, channel: str, joined: queue.SimpleQueue[None] | None = None) -> None:
        """Subscribe to `channel` where `key` lives; say so through `joined` once that is confirmed."""
        try:
            node = self._store.node(key)
        except StoreUnavailable:
            return
        connection = self._connection(node)
        before = self._places.pop(channel, None)
        if before is not None and before.connection is not connection:
            before.connection.leave(channel)
        self._places[channel] = _Place(key, connection)
        connection.join(channel)
        if joined is not None:
            self._waiting[channel].append(joined)

    def rejoin(self, key: str, channel: str) -> None:
        """Come back to a channel that was left too early: idle for long, or by another run of its name."""
        if channel and channel not in self._places:
            self.join(key, channel)

    def leave(self, channel: str) -> None:
        place = self._places.pop(channel, None)
        if place is not None:
            place.connection.leave(channel)

    def follow(self) -> None:
        """Go where Sentinel says that the primary is. The former one may serve us for ten seconds more."""
        now = time.monotonic()
        if now < self._follow_at:
            return
        try:
            moved = self._store.has_new_primary()
        except StoreUnavailable:
            self._follow_at = now + _SENTINEL_PAUSE_SECONDS
            return
        if moved:
            for connection in self._connections.values():
                connection.reconnect()

    def reconnect(self, channel: str) -> None:
        """Make the connection of a channel anew that the store does not see."""
        place = self._places.get(channel)
        if place is not None:
            place.connection.reconnect()

    def tend(self, in_use: set[str]) -> None:
        """Keep the connections up; ping while leases are held; leave the idle channels beyond a number."""
        idle = [channel for channel in self._places if channel not in in_use]
        for channel in idle[:-_MOST_CHANNELS]:
            self.leave(channel)
        for connection in self._connections.values():
            connection.tend(ping=bool(in_use))
        for channel in [channel for channel in self._waiting if self._is_settled(channel)]:
            for joined in self._waiting.pop(channel):
                joined.put(None)

    def _is_settled(self, channel: str) -> bool:
        """Whether waiting for the channel has come to an end, good or bad."""
        place = self._places.get(channel)
        if place is None:
            return True
        return channel in place.connection.confirmed or not place.connection.supported

    def read(self) -> list[str]:
        """The channels that were joined anew, or on which an operator said something."""
        return [channel for connection in self._connections.values() for channel in connection.read()]

    def look(self, channels: set[str]) -> tuple[float, dict[str, bool]]:
        """Ask the store which channels it sees connected, in one command per node.

        Returns:
            When that was sent, in monotonic seconds, and the answers, as far as there are any.
        """
        sent_at, seen = time.monotonic(), {}
        by_node: dict[int, tuple[Redis, list[str]]] = {}
        for channel in channels & self._places.keys():
            key, connection = self._places[channel]
            try:
                node = self._store.node(key)
            except StoreUnavailable:
                continue
            if self._connection(node) is not connection or not connection.wants(channel):
                self.join(key, channel)  # its slot has moved, and perhaps back
            by_node.setdefault(id(node), (node, []))[1].append(channel)
        for node, asked in by_node.values():
            try:
                seen.update(self._store.connected(node, asked))
            except StoreUnavailable as error:
                # No answer is neither yes nor no: trust runs out by itself.
                if isinstance(error.__cause__, ResponseError):
                    self._connection(node).refused(error.__cause__)
        return sent_at, seen

    def connected_since(self, channel: str) -> float:
        """When the server confirmed the channel, in monotonic seconds; infinity where it has not yet."""
        place = self._places.get(channel)
        return place.connection.confirmed.get(channel, inf) if place is not None else inf

    def is_supported(self, channel: str) -> bool:
        """Whether the server that the channel is on lets us do this, as far as we know."""
        place = self._places.get(channel)
        return place is None or place.connection.supported

    def connections(self) -> list[LiveConnection]:
        return list(self._connections.values())

    def _connection(self, node: Redis) -> LiveConnection:
        options = node.connection_pool.connection_kwargs
        place = f"{options.get('host')}:{options.get('port')}"
        if place not in self._connections:
            self._connections[place] = LiveConnection(node.connection_pool, self._store.settings.look_every)
        return self._connections[place]


class _Unsettled(NamedTuple):
    """The end of a run that the store has not confirmed."""

    store: Store
    action: Callable[[], object]
    expendable: bool


class _Work:
    """What the thread has to do. Only the thread touches it."""

    def __init__(self, change_channels: Callable[[], None]) -> None:
        self.bell = _Bell()
        self._change_channels = change_channels
        self.unsettled: deque[_Unsettled] = deque()
        self._entries: dict[str, _Entry] = {}
        self._live: dict[Store, _Live] = {}
        self._look_at = 0.0
        self._settle_at = 0.0
        self._idle_since = time.monotonic()

    def take(self, entry: _Entry) -> None:
        if not self._entries:
            self._look_at = time.monotonic() + entry.store.settings.look_every
        self._entries[entry.lease.token] = entry

    def drop(self, lease: Lease) -> None:
        self._entries.pop(lease.token, None)

    def keep(self, end: _Unsettled) -> None:
        """Repeat it until it is confirmed."""
        if len(self.unsettled) >= _MOST_UNSETTLED:
            given_up = next((each for each in self.unsettled if each.expendable), self.unsettled[0])
            self.unsettled.remove(given_up)
            logger.warning(
                "more than %s ends of runs are not confirmed; one %s is given up",
                _MOST_UNSETTLED,
                "skip" if given_up.expendable else "release",
            )
        self.unsettled.append(end)

    def live_of(self, store: Store) -> _Live:
        self._idle_since = time.monotonic()  # whoever joins is about to take a lease
        if store not in self._live:
            self._live[store] = _Live(store)
        return self._live[store]

    def sockets(self) -> list[socket.socket]:
        return [sock for connection in self._connections() if (sock := connection.socket()) is not None]

    def seconds_until_due(self) -> float:
        now = time.monotonic()
        waits = [_IDLE_SECONDS, *(entry.due - now for entry in self._entries.values())]
        if self.unsettled:
            waits.append(self._settle_at - now)
        if self._entries:
            waits.append(self._look_at - now)
        if self._entries or any(connection.is_behind() for connection in self._connections()):
            waits.extend(connection.seconds_until_due() for connection in self._connections())
        return max(min(waits), 0.0)

    def is_over(self) -> bool:
        now = time.monotonic()
        if self._entries or self.unsettled:
            self._idle_since = now
        return now - self._idle_since >= _IDLE_SECONDS

    def do(self) -> None:
        """Everything that is due. What is unsettled comes before we show ourselves alive again.

        Raises:
            Exception: what went wrong unexpectedly; the other steps have been taken all the same.
        """
        failure: Exception | None = None
        for step in (self._settle, self._show_alive, self._look, self._renew):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - raised again below
                failure = failure or error
        if failure is not None:
            raise failure

    def close(self) -> None:
        for connection in self._connections():
            connection.close()
        self.bell.close()

    def close_inherited(self) -> None:
        self.bell.close()
        for connection in self._connections():
            connection.close_inherited()

    def _connections(self) -> list[LiveConnection]:
        return [connection for live in self._live.values() for connection in live.connections()]

    def _settle(self) -> None:
        if not self.unsettled or time.monotonic() < self._settle_at:
            return
        silent: set[Store] = set()
        for _ in range(len(self.unsettled)):
            end = self.unsettled.popleft()
            if end.store in silent:
                self.unsettled.append(end)
                continue
            try:
                end.action()
            except StoreUnavailable as error:
                self.unsettled.append(end)
                if not isinstance(error.__cause__, ResponseError):  # each wait for it would delay renewals
                    silent.add(end.store)
            except Exception:
                logger.exception("the renewer met an unexpected error and gives up the end of a run")
        if self.unsettled:
            self._settle_at = time.monotonic() + _SETTLE_EVERY_SECONDS

    def _show_alive(self) -> None:
        for store, live in self._live.items():
            called = set(live.read())
            held = [entry for entry in self._entries.values() if entry.store is store]
            for entry in held:
                live.rejoin(entry.lease.claim.keys.lease, entry.channel)
            live.tend({entry.channel for entry in held})
            for entry in self._entries.values():
                if entry.channel in called:
                    entry.due = 0.0  # there is reason to look at the lease now

    def _look(self) -> None:
        """Ask whether the store still sees us, as often as a taker-over would."""
        now = time.monotonic()
        if not self._entries or now < self._look_at:
            return
        by_store = defaultdict(list)
        for entry in self._entries.values():
            by_store[entry.store].append(entry)
        self._look_at = now + min(store.settings.look_every for store in by_store)
        for store, entries in by_store.items():
            live = self.live_of(store)
            supported = {entry.channel for entry in entries if live.is_supported(entry.channel)}
            sent_at, seen = live.look(supported)
            for entry in entries:
                if entry.channel in seen:
                    self._take_look(entry, sent_at, connected=seen[entry.channel])
                elif entry.lease.alive and not live.is_supported(entry.channel):
                    entry.due = 0.0  # as below: the permission was taken from us, and with it the connection
            if supported:
                live.follow()

    def _take_look(self, entry: _Entry, sent_at: float, *, connected: bool) -> None:
        if connected:
            entry.misses = 0
            since = self.live_of(entry.store).connected_since(entry.channel)
            if not entry.lease.confirm_connected(sent_at, since) or not entry.lease.alive:
                entry.due = 0.0  # the renewal restores trust, and puts `alive` back
            return
        entry.misses += 1
        if entry.misses % _MISSES:
            return
        # A server that became a replica, or lies behind a changed name, may leave the connection open.
        self.live_of(entry.store).reconnect(entry.channel)
        if entry.lease.alive:
            entry.due = 0.0  # the renewal takes `alive` away, and the expiry decides

    def _renew(self) -> None:
        now = time.monotonic()
        if not any(entry.due <= now for entry in self._entries.values()):
            return
        by_store = defaultdict(list)
        for entry in list(self._entries.values()):
            if now >= entry.until:
                self._give_up(entry)
            elif entry.due <= now + entry.every * _BATCH_SHARE:
                by_store[entry.store].append(entry)
        for store, entries in by_store.items():
            sent_at = time.monotonic()
            live = self.live_of(store)
            for entry in entries:
                if live.is_supported(entry.channel):
                    entry.lease.expect_answer(sent_at)
            answers = store.renew([(e.lease.claim, e.lease.grant) for e in entries])
            for entry, answer in zip(entries, answers, strict=True):
                self._take_answer(entry, answer, sent_at)

    def _take_answer(self, entry: _Entry, answer: Renewal | StoreUnavailable, sent_at: float) -> None:
        name = entry.lease.name
        if isinstance(answer, StoreUnavailable):
            now = time.monotonic()
            entry.back_off(now)
            logger.warning("%s: renewal failed (%s); trying again in %.1f s", name, answer, entry.due - now)
            return
        entry.failures = 0
        entry.plan(sent_at + entry.every)
        if answer.answer in ("renewed", "retaken"):
            entry.lease.confirm(sent_at, alive=answer.alive)
            if answer.answer == "retaken":
                logger.warning("%s: the lease was gone and free, and has been retaken", name)
            return
        self.drop(entry.lease)
        if answer.answer == "lost":
            entry.lease.lose()

    def _give_up(self, entry: _Entry) -> None:
        self.drop(entry.lease)
        self._change_channels()
        self.live_of(entry.store).leave(entry.channel)
        logger.error(
            "%s: the run is past its hard time limit and goes on; its lease is no longer renewed",
            entry.lease.name,
        )


renewer = Renewer()


def _forget_after_fork() -> None:
    # The parent's leases are the parent's to renew, and its thread does not exist here.
    renewer.close_inherited()
    renewer.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget_after_fork)
