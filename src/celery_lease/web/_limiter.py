"""So many requests a minute and client, counted in Redis, or in memory when that does not answer.

The opposite choice from the lease, on purpose: without the store no job may run, because an unguarded run
costs money and data; without the store everybody may still ask, because a request too many costs next to
nothing.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from limits import RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import FixedWindowRateLimiter
from redis import Redis

from celery_lease._clients import connect

if TYPE_CHECKING:
    from limits.storage import Storage

    from celery_lease._settings import Settings

logger = logging.getLogger("celery_lease")

#: For one answer of Redis; a limiter must cost less than what it protects.
_ANSWER_SECONDS = 0.4

#: So long Redis is left alone after an error, so that not every request pays for it.
_PAUSE_SECONDS = 5.0


class Limiter:
    """Counts requests by purpose and client. Of a cluster, each process counts its own."""

    def __init__(self, settings: Settings, a_minute: int) -> None:
        self._limit = RateLimitItemPerMinute(a_minute)
        self._memory = FixedWindowRateLimiter(MemoryStorage())
        storage = _redis_storage(settings)
        self._redis = FixedWindowRateLimiter(storage) if storage else None
        self._paused_until = 0.0

    def wait(self, purpose: str, client: str) -> int:
        """Count a request; 0 if it is within the limit, else the seconds until the client may come again.

        Args:
            purpose: requests for different purposes do not count together.
            client: whom to count it for.
        """
        if self._redis is not None and time.monotonic() >= self._paused_until:
            try:
                return self._count(self._redis, purpose, client)
            except StorageError as error:
                self._pause(error.storage_error)
        return self.wait_in_memory(purpose, client)

    def wait_in_memory(self, purpose: str, client: str) -> int:
        """The same without asking Redis."""
        return self._count(self._memory, purpose, client)

    def _count(self, limiter: FixedWindowRateLimiter, purpose: str, client: str) -> int:
        if limiter.hit(self._limit, purpose, client):
            return 0
        ends = limiter.get_window_stats(self._limit, purpose, client).reset_time
        return max(1, round(ends - time.time()))

    def _pause(self, why: Exception) -> None:
        self._paused_until = time.monotonic() + _PAUSE_SECONDS
        logger.warning(
            "rate limiter: Redis does not answer (%s); counting in memory for %g s",
            type(why).__name__,
            _PAUSE_SECONDS,
        )


def _redis_storage(settings: Settings) -> Storage | None:
    if settings.url.startswith("redis+cluster://"):
        return None
    bounds = {"socket_timeout": _ANSWER_SECONDS, "socket_connect_timeout": _ANSWER_SECONDS}
    client = connect(replace(settings, url_options={**settings.url_options, **bounds}))
    if not isinstance(client, Redis):
        return None
    return RedisStorage(
        "redis://",
        connection_pool=client.connection_pool,
        key_prefix=f"{settings.key_prefix}limits",
        wrap_exceptions=True,
    )
