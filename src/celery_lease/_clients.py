"""Redis clients for the lease store: every scheme, every call bounded, one connection class to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from celery_lease._errors import LeaseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery_lease._settings import Settings

#: Bound of connecting and of each answer. redis-py's own defaults can block one call for a minute.
CALL_SECONDS = 2.0

_BOUNDS = {"socket_timeout": CALL_SECONDS, "socket_connect_timeout": CALL_SECONDS}

#: Bound of connecting to one sentinel, and of its answer.
_SENTINEL_SECONDS = 0.5

_DEFAULT_SENTINEL_PORT = 26379


def connect(settings: Settings) -> redis.Redis | RedisCluster:
    """A client for `settings.url`. It connects at its first call, except in a cluster, which is asked now.

    Raises:
        LeaseError: the URL or an option cannot be used.
        RedisError, OSError: no node of a cluster answers.
    """
    try:
        if settings.url.startswith("redis+cluster://"):
            return _cluster(settings)
        if settings.url.startswith("sentinel://"):
            client = _sentinel(settings)
        else:
            # The scripts answer the same in protocols 2 and 3; servers before 6.0 refuse the handshake of 3.
            options = {**_BOUNDS, "protocol": 2, **settings.url_options}
            client = redis.Redis(connection_pool=redis.ConnectionPool.from_url(settings.url, **options))
        _bound(client.connection_pool.connection_kwargs)
        client.connection_pool.connection_class(
            **client.connection_pool.connection_kwargs
        )  # refuse now, not later
    except (ValueError, TypeError, RedisError) as error:
        if isinstance(error, RedisError) and settings.url.startswith("redis+cluster://"):
            raise  # what its nodes answered, or did not
        raise LeaseError(f"lease_url or lease_url_options cannot be used: {error}") from error
    return client


def live_connection(pool: redis.ConnectionPool, seconds: float) -> Any:
    """A connection beside the pool's, for subscribing: protocol 2, undecoded, and every wait bounded."""
    # What redis-py adds for protocol 3 belongs to the pool's own connections, and protocol 2 refuses it.
    of_the_pool = ("maint_notifications_", "orig_")
    options = {
        **{key: value for key, value in pool.connection_kwargs.items() if not key.startswith(of_the_pool)},
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
    }
    return pool.connection_class(**options)


def has_new_primary(client: redis.Redis | RedisCluster) -> bool:
    """Whether the sentinels name another primary than before; idle connections to that one are then dropped.

    Raises:
        RedisError: no sentinel answers.
    """
    pool = getattr(client, "connection_pool", None)
    if not isinstance(pool, SentinelConnectionPool):
        return False
    before = pool.master_address
    return bool(pool.get_master_address() != before)  # type: ignore[no-untyped-call]


def _bound(options: dict[str, Any]) -> None:
    """What must hold whatever the URL says: answers are text, and no call outlasts its bound."""
    for name in ("retry_on_timeout", "retry_on_error"):
        options.pop(name, None)
    options.update(
        {name: min(float(options.get(name) or bound), bound) for name, bound in _BOUNDS.items()},
        decode_responses=True,
        encoding="utf-8",
        encoding_errors="replace",
        # One more try on a connection that the server closed, none on a silent one: every script
        # may be repeated, and a second wait would double the bound.
        retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
    )


def _cluster(settings: Settings) -> RedisCluster:
    options: dict[str, Any] = {**_BOUNDS, "protocol": 2, **settings.url_options}
    _bound(options)
    # One redirection and one look at the topology; a failing node is then `lock_unavailable`.
    options["retry"] = Retry(NoBackoff(), 1)
    url = settings.url.replace("redis+cluster://", "redis://", 1)
    return RedisCluster.from_url(url, **options)


def _sentinel(settings: Settings) -> redis.Redis:
    options = dict(settings.url_options)
    master = options.pop("master_name", None)
    if not master:
        raise LeaseError('lease_url is sentinel://, so lease_url_options needs {"master_name": "..."}')
    asked = {**_BOUNDS, "protocol": 2, **_login(settings.url), **options.pop("sentinel_kwargs", {})}
    _bound(asked)
    # They are asked one after the other: several that do not answer must not use up a call's bound.
    asked.update(dict.fromkeys(_BOUNDS, _SENTINEL_SECONDS))
    make: Any = Sentinel  # untyped
    sentinel = make(_sentinels(settings.url), sentinel_kwargs=asked)
    path = urlsplit(settings.url.split(";", 1)[0]).path.strip("/")
    options = {**_BOUNDS, "protocol": 2, "db": int(path or 0), **_login(settings.url), **options}
    client: redis.Redis = sentinel.master_for(master, **options)
    return client


def _sentinels(urls: str) -> list[tuple[str, int]]:
    parts = [urlsplit(url if "://" in url else f"sentinel://{url}") for url in urls.split(";")]
    return [(part.hostname or "localhost", part.port or _DEFAULT_SENTINEL_PORT) for part in parts]


def _login(urls: str) -> Mapping[str, str]:
    part = urlsplit(urls.split(";", 1)[0])
    login = {"username": part.username, "password": part.password}
    return {name: unquote(value) for name, value in login.items() if value}


__all__ = ["CALL_SECONDS", "RedisError", "connect", "has_new_primary", "live_connection"]
