"""The live connections of a process: who subscribes is alive, and the store itself knows who subscribes.

The kernel closes a connection when its process dies, wherever it ran. So a process that holds leases
keeps one connection per server, subscribed to a channel per lease, and the store can tell a dead holder
from a living one within milliseconds (`PUBSUB SHARDNUMSUB`, inside the scripts).

Only the renewer's thread touches what is here. A subscribing connection has no use for redis-py's
health check, which does not notice a silent drop; it pings by itself and gives an answer one look's time.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from celery_lease._clients import live_connection

if TYPE_CHECKING:
    import redis

logger = logging.getLogger("celery_lease")

#: Between two attempts to connect. Constant: a growing delay would outlast the grace.
_RECONNECT_SECONDS = 0.5


class LiveConnection:
    """One subscribing connection to one server.

    Attributes:
        confirmed: channels that the server has confirmed on the present connection, and when.
        supported: False once the server refused that for good; the expiry decides then.
    """

    def __init__(self, pool: redis.ConnectionPool, look_every: float) -> None:
        self.confirmed: dict[str, float] = {}
        self.supported = True
        self._pool = pool
        self._look_every = look_every
        self._wanted: dict[str, None] = {}
        self._sent: set[str] = set()
        self._left: list[str] = []  # whose confirmation is still to come
        self._connection: Any = None
        self._connect_at = 0.0
        self._asked_at: float | None = None
        self._heard_at = 0.0

    def socket(self) -> Any:
        """What to select on; None while there is no connection."""
        return self._connection and self._connection._sock  # noqa: SLF001 - redis-py has no public way to it

    def join(self, channel: str) -> None:
        """Be subscribed to `channel` from now on, over every reconnect."""
        self._wanted[channel] = None

    def wants(self, channel: str) -> bool:
        """Whether it is to be subscribed to `channel`."""
        return channel in self._wanted

    def leave(self, channel: str) -> None:
        """Be subscribed to `channel` no longer."""
        self._wanted.pop(channel, None)
        self.confirmed.pop(channel, None)
        if channel in self._sent:
            self._sent.discard(channel)
            self._left.append(channel)
            self._guarded(lambda: self._connection.send_command("SUNSUBSCRIBE", channel))

    def tend(self, *, ping: bool) -> None:
        """Connect, subscribe, and ask for a sign of life, as far as due. Blocks for one look at most."""
        now = time.monotonic()
        if not self.supported or not self._wanted:
            return
        if self._asked_at is not None and now - self._asked_at > self._look_every:
            self._drop("no answer in time")
        if self._connection is None:
            if now < self._connect_at:
                return
            self._connect_at = now + _RECONNECT_SECONDS
            self._guarded(self._connect)
        self._guarded(self._subscribe)
        if ping and self._asked_at is None and now - self._heard_at >= self._look_every:
            self._guarded(self._ping)

    def is_behind(self) -> bool:
        """Whether a channel is still to be confirmed."""
        return self.supported and not self._wanted.keys() <= self.confirmed.keys()

    def seconds_until_due(self) -> float:
        """When `tend` has something to do next; a look at most."""
        if self._connection is None and self.is_behind():
            return max(self._connect_at - time.monotonic(), 0.0)
        return self._look_every

    def read(self) -> list[str]:
        """Take in what the server sent; the channels that were joined or that somebody sent a message on."""
        messages: list[str] = []
        self._guarded(lambda: self._read(messages))
        return messages

    def reconnect(self) -> None:
        """The store is not where we are: connect anew."""
        self._drop("it was at the wrong server")

    def close(self) -> None:
        """Drop the connection without a word."""
        self._wanted.clear()
        self._drop(None)

    def close_inherited(self) -> None:
        """In a forked child: let go of the parent's socket without ending the parent's connection."""
        sock = self.socket()
        if sock is not None:
            os.close(sock.detach())
        self._connection = None

    def _connect(self) -> None:
        self._connection = live_connection(self._pool, self._look_every)
        self._connection.connect()
        self._heard_at = time.monotonic()

    def _subscribe(self) -> None:
        for channel in [channel for channel in self._wanted if channel not in self._sent]:
            # One by one: in a cluster, one command may name the channels of one slot only.
            self._connection.send_command("SSUBSCRIBE", channel)
            self._sent.add(channel)
            self._asked_at = self._asked_at or time.monotonic()

    def _ping(self) -> None:
        self._connection.send_command("PING")
        self._asked_at = time.monotonic()

    def _read(self, messages: list[str]) -> None:
        while self._connection is not None and self._connection.can_read(timeout=0):
            try:
                answer = self._connection.read_response()
            except ResponseError as error:
                self.refused(error)
                self._drop(type(error).__name__)
                return
            self._heard_at, self._asked_at = time.monotonic(), None
            if not isinstance(answer, list):
                continue
            kind, channel = answer[0], answer[1].decode(errors="replace")
            if kind == b"ssubscribe" and channel in self._wanted:
                self.confirmed[channel] = self._heard_at
                # A server that we come back to may have lost its data, or be another one.
                messages.append(channel)
            elif kind == b"sunsubscribe" and channel in self._left:
                self._left.remove(channel)
            elif kind == b"sunsubscribe":
                self._moved(channel)
            elif kind == b"smessage":
                messages.append(channel)

    def _moved(self, channel: str) -> None:
        # Unasked, when the channel's slot has moved to another node; the checks find out where to.
        self.confirmed.pop(channel, None)
        self._sent.discard(channel)
        self._wanted.pop(channel, None)

    def refused(self, error: ResponseError) -> None:
        """The server answered with an error: give up for good, if it will never let us do this."""
        if not _is_for_good(error) or not self.supported:
            return
        self.supported = False
        self._drop(None)
        logger.warning(
            "the lease store does not let this user subscribe, or count subscribers (%s), so a killed run "
            "costs up to a lease; it takes a server from 7.0 on and the permissions +ssubscribe, "
            "+sunsubscribe, +pubsub and the channels of the leases",
            type(error).__name__,
        )

    def _guarded(self, action: Any) -> None:
        if self._connection is None and action != self._connect:
            return
        try:
            action()
        except (RedisError, OSError) as error:
            self._drop(type(error).__name__)

    def _drop(self, why: str | None) -> None:
        if why is not None and self._connection is not None and self.confirmed:
            logger.info("the live connection to the lease store dropped (%s); connecting again", why)
        connection, self._connection = self._connection, None
        self.confirmed.clear()
        self._sent.clear()
        self._left.clear()
        self._asked_at = None
        if connection is not None:
            connection.disconnect()


def _is_for_good(error: ResponseError) -> bool:
    """Whether an error stays: no permission, or an old server. Busy, moved and the like pass."""
    return isinstance(error, NoPermissionError) or str(error).lower().startswith("unknown ")
