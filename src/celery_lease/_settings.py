"""The library's settings, read from Celery's own configuration and checked by name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from celery_lease._errors import LeaseError

if TYPE_CHECKING:
    from celery import Celery

#: Five minutes: short enough that a dead run costs less than one cycle of a 15-minute schedule.
LEASE_SECONDS = 300.0

#: Set well inside the lease, so that a failed renewal (or two) costs nothing.
RENEW_EVERY_SECONDS = 90.0

#: Renewal as a share of the lease; `lease_seconds` in tests keeps the same proportion.
RENEW_SHARE = RENEW_EVERY_SECONDS / LEASE_SECONDS

_DEFAULTS: dict[str, Any] = {
    "lease_url": None,
    "lease_url_options": {},
    "lease_key_prefix": "cron:",
    "lease_history": 1000,
    "lease_seconds": LEASE_SECONDS,
}

_SCHEMES = ("redis", "rediss", "unix", "redis+socket")
_ONE_SECOND = 1.0


@dataclass(frozen=True)
class Settings:
    """Checked settings of one app.

    Attributes:
        url: where the leases live: `redis://`, `rediss://` or `unix://`.
        url_options: passed to the Redis client beside the URL, such as TLS files.
        key_prefix: in front of every key.
        history: run records kept per job, about.
        seconds: length of a lease. For tests only: how long a job may run is not this number.
    """

    url: str
    url_options: Mapping[str, Any]
    key_prefix: str
    history: int
    seconds: float


def read_settings(app: Celery) -> Settings:
    """The app's settings, read anew, so that a changed configuration is never ignored.

    Raises:
        LeaseError: a value is wrong, or no Redis is configured.
    """
    values = {name: app.conf.get(name, default) for name, default in _DEFAULTS.items()}
    return Settings(
        url=_url(app, values["lease_url"]),
        url_options=_mapping("lease_url_options", values["lease_url_options"]),
        key_prefix=_text("lease_key_prefix", values["lease_key_prefix"]),
        history=_whole_number("lease_history", values["lease_history"]),
        seconds=_seconds("lease_seconds", values["lease_seconds"]),
    )


def refuse_unknown_settings(app: Celery) -> None:
    """Refuse a misspelt `lease_*` setting, which Celery would silently ignore.

    Raises:
        LeaseError: naming the setting and the nearest known one.
    """
    for given in _given_names(app):
        if given.startswith("lease_") and given not in _DEFAULTS:
            near = difflib.get_close_matches(given, _DEFAULTS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_DEFAULTS)}"
            raise LeaseError(f"unknown setting {given!r}; {hint}")


def _given_names(app: Celery) -> Iterator[str]:
    prefix = app.conf.prefix or ""
    for name in app.conf.without_defaults():
        if isinstance(name, str):
            yield name.removeprefix(prefix).lower()


def _url(app: Celery, given: Any) -> str:
    if given is not None:
        return _redis_url("lease_url", given)
    for source in ("result_backend", "broker_url"):
        url = getattr(app.conf, source)
        if isinstance(url, str) and url.split("://", 1)[0] in _SCHEMES:
            return _redis_url(source, url)
    raise LeaseError(
        "lease_url is not set, and neither result_backend nor broker_url is a Redis to use instead; "
        "set lease_url to a redis://, rediss:// or unix:// URL"
    )


def _redis_url(setting: str, url: Any) -> str:
    scheme = url.split("://", 1)[0] if isinstance(url, str) and "://" in url else None
    if scheme not in _SCHEMES:
        # The URL itself stays out of the message: it may hold a password.
        raise LeaseError(f"{setting} has the scheme {scheme!r}; use redis://, rediss:// or unix://")
    if ";" in url:
        raise LeaseError(f"{setting} lists several servers; name the one that holds the leases in lease_url")
    return _from_celery_dialect(url)


def _from_celery_dialect(url: str) -> str:
    """Celery's spellings of a Redis URL in redis-py's."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "redis+socket":
        query["db"] = query.pop("virtual_host", query.get("db", "0")).lstrip("/") or "0"
        login = f":{quote(unquote(parts.password))}@" if parts.password else ""
        return f"unix://{login}{parts.path}?{urlencode(query)}"
    if query.get("ssl_cert_reqs", "").startswith("CERT_"):
        query["ssl_cert_reqs"] = query["ssl_cert_reqs"].removeprefix("CERT_").lower()
        return parts._replace(query=urlencode(query)).geturl()
    return url


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise LeaseError(f"{name} must be a dict of options for the Redis client, not {type(value).__name__}")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or "{" in value or "}" in value:
        raise LeaseError(f"{name} must be a string without braces, not {value!r}")
    return value


def _whole_number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise LeaseError(f"{name} must be a whole number of at least 1, not {value!r}")
    return value


def _seconds(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < _ONE_SECOND:
        raise LeaseError(
            f"{name} must be a number of at least 1 second (it is for tests only), not {value!r}"
        )
    return float(value)
