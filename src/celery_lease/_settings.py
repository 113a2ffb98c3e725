"""The library's settings, read from Celery's own configuration and checked by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from celery_lease._errors import LeaseError

if TYPE_CHECKING:
    from celery import Celery

#: Five minutes: short enough that a dead run costs less than one cycle of a 15-minute schedule.
LEASE_SECONDS = 300.0

#: Set well inside the lease, so that a failed renewal (or two) costs nothing.
RENEW_EVERY_SECONDS = 90.0

#: How long a holder may be disconnected before it counts as dead; or the lease, if that is shorter.
GRACE_SECONDS = 10.0

#: What a time limit has to leave a leased job beside waiting for a dead holder.
_SECONDS_BESIDE_GRACE = 5.0

#: Renewal as a share of the lease; `lease_seconds` in tests keeps the same proportion.
RENEW_SHARE = RENEW_EVERY_SECONDS / LEASE_SECONDS

_DEFAULTS: dict[str, Any] = {
    "lease_url": None,
    "lease_url_options": {},
    "lease_key_prefix": "cron:",
    "lease_history": 1000,
    "lease_delivery_cap": 5,
    "lease_alert_urls": [],
    "lease_alert_after_skips": 3,
    "lease_ping_urls": {},
    "lease_seconds": LEASE_SECONDS,
}

_SCHEMES = ("redis", "rediss", "unix", "redis+socket", "sentinel", "redis+cluster")
_SCHEMES_IN_WORDS = "redis://, rediss://, unix://, sentinel:// or redis+cluster://"
_ALERT_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_ONE_SECOND, _TEN_YEARS = 1.0, 10 * 366 * 24 * 3600.0


@dataclass(frozen=True)
class Settings:
    """Checked settings of one app.

    Attributes:
        url: where the leases live: `redis://`, `rediss://`, `unix://`, `sentinel://` or `redis+cluster://`.
        url_options: passed to the Redis client beside the URL, such as TLS files.
        key_prefix: in front of every key.
        history: run records kept per job, about.
        delivery_cap: deaths of one message together with its worker, after which it ends as FAILURE.
        seconds: length of a lease. For tests only: how long a job may run is not this number.
        alert_urls: Apprise URLs that the watchdog's alerts go to.
        alert_after_skips: skips in a row that are worth an alert.
        ping_urls: lease's name → the address of a dead-man's switch, called after real runs only.
    """

    url: str = field(repr=False)  # this, and what follows so marked, may hold a password
    url_options: Mapping[str, Any] = field(repr=False)
    key_prefix: str
    history: int
    delivery_cap: int
    seconds: float
    alert_urls: tuple[str, ...] = field(repr=False)
    alert_after_skips: int
    ping_urls: Mapping[str, str] = field(repr=False)

    @property
    def grace(self) -> float:
        """How long a holder may be disconnected before it counts as dead, in seconds."""
        return min(GRACE_SECONDS, self.seconds)

    @property
    def look_every(self) -> float:
        """Between two looks at who is connected, in seconds: one, where the grace is ten."""
        return self.grace / 10


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
        delivery_cap=_whole_number("lease_delivery_cap", values["lease_delivery_cap"]),
        seconds=_seconds("lease_seconds", values["lease_seconds"]),
        alert_urls=_alert_urls("lease_alert_urls", values["lease_alert_urls"]),
        alert_after_skips=_whole_number("lease_alert_after_skips", values["lease_alert_after_skips"]),
        ping_urls=_ping_urls("lease_ping_urls", values["lease_ping_urls"]),
    )


def refuse_unknown_settings(app: Celery) -> None:
    """Refuse a misspelt `lease_*` setting, which Celery would silently ignore.

    Raises:
        LeaseError: naming the setting and the nearest known one.
    """
    for given in _given_names(app):
        if given.lower().startswith("lease_") and given not in _DEFAULTS:
            near = difflib.get_close_matches(given.lower(), _DEFAULTS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_DEFAULTS)}"
            raise LeaseError(f"unknown setting {given!r}; {hint}")


def shortest_time_limit(app: Celery) -> float:
    """What the time limit of a leased job has to be at least: waiting for a dead holder, and 5 s beside."""
    seconds = _seconds("lease_seconds", app.conf.get("lease_seconds", LEASE_SECONDS))
    return min(GRACE_SECONDS, seconds) + _SECONDS_BESIDE_GRACE


def refuse_short_limits(app: Celery, task: Any) -> None:
    """Refuse a time limit that could end a leased job while it still waits for a dead holder.

    Raises:
        LeaseError: naming the limit, its value and the least.
    """
    for name in ("time_limit", "soft_time_limit"):
        limit = getattr(task, name)
        if limit and limit < (least := shortest_time_limit(app)):
            raise LeaseError(
                f"{name}={limit:g} of task {task.name!r} is too short: a leased job may have to wait for a "
                f"dead holder before it starts, so give it {least:g} s or more, or no {name} "
                f"(task_{name} is for all tasks)"
            )


def _given_names(app: Celery) -> Iterator[str]:
    """The names in the app's configuration, as far as Celery would look at them, without the namespace."""
    prefix = app.conf.prefix or ""
    for name in app.conf.without_defaults():
        if not isinstance(name, str):
            continue
        if prefix and name.startswith(prefix):
            yield name.removeprefix(prefix).lower()
        elif name.islower() or not prefix:  # with a namespace, other names in capitals are not Celery's
            yield name


def _url(app: Celery, given: Any) -> str:
    if given is not None:
        return _redis_url("lease_url", given)
    for source in ("result_backend", "broker_url"):
        url = getattr(app.conf, source)
        if isinstance(url, str) and url.split("://", 1)[0] in _SCHEMES:
            return _redis_url(source, url)
    raise LeaseError(
        "lease_url is not set, and neither result_backend nor broker_url is a Redis to use instead; "
        f"set lease_url to a {_SCHEMES_IN_WORDS} URL"
    )


def _redis_url(setting: str, url: Any) -> str:
    scheme = url.split("://", 1)[0] if isinstance(url, str) and "://" in url else None
    if scheme not in _SCHEMES:
        # The URL itself stays out of the message: it may hold a password.
        raise LeaseError(f"{setting} has the scheme {scheme!r}; use {_SCHEMES_IN_WORDS}")
    if ";" in url and scheme != "sentinel":
        raise LeaseError(f"{setting} lists several servers; name the one that holds the leases in lease_url")
    if not all(_has_readable_address(part) for part in url.split(";")):
        raise LeaseError(
            f"{setting} cannot be read as a URL; in a password, each of / ? # [ ] @ % must be percent-encoded"
        )
    return _from_celery_dialect(url)


def _has_readable_address(url: str) -> bool:
    try:
        urlsplit(url if "://" in url else f"//{url}").port  # noqa: B018 - parsed when it is asked for
    except ValueError:  # its text repeats what stands in the port's place, which may be half a password
        return False
    return True


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


def _alert_urls(name: str, value: Any) -> tuple[str, ...]:
    # Addresses stay out of the messages: whoever knows one can send to it.
    if not isinstance(value, list | tuple):
        raise LeaseError(f"{name} must be a list of Apprise URLs, not {type(value).__name__}")
    for number, url in enumerate(value, 1):
        if not isinstance(url, str) or not _ALERT_URL.match(url):
            raise LeaseError(
                f"{name}: number {number} is not an Apprise URL, such as mailtos://user:password@example.com"
            )
    return tuple(value)


def _ping_urls(name: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise LeaseError(f"{name} must be a dict of job and URL, not {type(value).__name__}")
    for job, url in value.items():
        is_web = isinstance(url, str) and url.startswith(("http://", "https://"))
        if not is_web or not _has_readable_address(url):
            raise LeaseError(f"{name}: the URL of {job!r} must begin with https:// or http://")
    return dict(value)


def _seconds(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not _ONE_SECOND <= value <= _TEN_YEARS:
        raise LeaseError(
            f"{name} must be a number of at least 1 second (it is for tests only), not {value!r}"
        )
    return float(value)
