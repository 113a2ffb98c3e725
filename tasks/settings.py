"""The environment, read once and checked.

| variable | meaning | when unset |
|---|---|---|
| `REDIS_URL` | the Redis of the leases | `redis://127.0.0.1:6379/0` |
| `BROKER_URL` | the broker | `REDIS_URL` |
| `RESULT_BACKEND` | the result backend | `REDIS_URL` |
| `TASKS_DATA` | folder for the files of this application | `.dev` in the current folder |
| `DATABASE_URL` | the database, SQLite or PostgreSQL | an SQLite file in `TASKS_DATA` |
| `CURATION_BATCH` | ingredients a pass of the curation takes at most | 50 |
| `CURATION_MODEL_URL` | an OpenAI-compatible endpoint: `http://127.0.0.1:11434/v1` | the lexicon, offline |
| `CURATION_MODEL_NAME` | the model there | needed with a URL |
| `CURATION_MODEL_KEY` | its bearer token | none is sent |
| `CURATION_MODEL_TIMEOUT` | seconds for one call | 30 |
| `CURATION_MODEL_CONCURRENCY` | calls at once | 4 |
| `CURATION_MODEL_EXTRA` | JSON object: more fields for a request; null takes one out | `{}` |
| `CURATION_PRICE_IN`, `_OUT` | micro-units for a million tokens asked, answered | 0 |
| `CURATION_BUDGET_PASS`, `_DAY`, `_MONTH` | micro-units that may be spent | 1, 10, 100 million |
| `SITE_URL` | the site of the answers, whose sitemap is announced | `http://127.0.0.1:8080` |
| `INDEXNOW_ENDPOINT` | where changed pages are announced: `https://api.indexnow.org/indexnow` | nowhere |
| `INDEXNOW_KEY` | the key that `SITE_URL` shows in `/<key>.txt`; public by design | the one of this project |
| `REWARDS_POOL` | what contributors share for a month, in minor units (cents) | 100000 |
| `REWARDS_CURRENCY` | its currency, as in ISO 4217 | `EUR` |
| `ALERT_URLS` | Apprise URLs that the watchdog's alerts go to, separated by blanks | the log only |
| `CRON_SECRET` | opens the web app; at least 16 random characters | it answers 503 |
| `CRON_SECRET_PREVIOUS` | opens it, too, while the secret is being changed everywhere | |
| `FLOWER_URL` | where people find Flower, for links | no links |

A micro-unit is a millionth of the currency: 150000 for a million tokens are 0.15. What a server wants
otherwise goes into the extra fields: `{"max_completion_tokens": null, "max_tokens": 800}`.

An empty variable counts as unset.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from kombu.transport import TRANSPORT_ALIASES
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

_LEASE_SCHEMES = ("redis", "rediss", "unix", "redis+socket")
_DATABASES = ("sqlite", "postgresql")
# The two names that servers have for the most tokens of an answer; the first is sent unless it is taken out.
_LIMITS = ("max_completion_tokens", "max_tokens")
_FIXED_FIELDS = frozenset({"messages", "model", "n", "stream"})
_MOST_NAME_CHARACTERS = 100
_LEAST_SECRET_CHARACTERS = 16  # as the web app wants it
# Public by design: IndexNow's key proves nothing but that its owner can put a file onto the site, and
# everybody may read that file. It is no secret, and kept here so that a fresh copy of the project just works.
_INDEXNOW_KEY = "804fab0e126559a094556729fabddb15"


class SettingsError(ValueError):
    """A variable has a value that cannot be used. The message names it, the value and the way out."""


def _check_port(parts: SplitResult) -> None:
    try:
        _ = parts.port
    except ValueError:
        # Its own message would quote what may be a part of a password.
        raise ValueError("its port must be a number up to 65535; a / in a password is %2F") from None


def _lease_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in _LEASE_SCHEMES:
        raise ValueError(
            f"it must begin with one of {', '.join(f'{scheme}://' for scheme in _LEASE_SCHEMES)}"
        )
    _check_port(parts)
    return url


def _broker_url(url: str) -> str:
    # A list of brokers to fail over to is separated by semicolons.
    for each in url.split(";"):
        scheme = urlsplit(each).scheme
        if scheme.partition("+")[0] not in TRANSPORT_ALIASES:
            raise ValueError(f"{scheme or 'nothing'} is no transport of Celery; use redis:// or amqp://")
    return url


def _backend_url(url: str) -> str:
    if "://" not in url:
        raise ValueError("it must be a URL, such as redis://127.0.0.1:6379/1")
    return url


def _web_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must begin with http:// or https:// and name a host")
    _check_port(parts)
    return url


def _database_url(url: str) -> str:
    try:
        backend = make_url(url).get_backend_name()
    except ArgumentError:
        raise ValueError("it must be a URL, such as sqlite:////var/lib/tasks/tasks.sqlite3") from None
    if backend not in _DATABASES:
        raise ValueError(f"{backend} is not supported; use {' or '.join(_DATABASES)}")
    return url


def _folder(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise ValueError("there is a file of that name; it must be a folder, or not exist yet")
    return path


def _model_url(url: str) -> str:
    parts = urlsplit(_web_url(url))
    if parts.username or parts.query or parts.fragment:
        raise ValueError("it must be the address alone, up to /v1; a key goes into CURATION_MODEL_KEY")
    return url


def _site_url(url: str) -> str:
    parts = urlsplit(_web_url(url))
    if parts.username or parts.query or parts.fragment or parts.path.strip("/"):
        raise ValueError("it must be the root of a site: scheme and host, such as https://example.com")
    return url.rstrip("/")


def _header_text(key: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]*", key.get_secret_value()):
        raise ValueError("it must be printable ASCII without blanks")
    return key


def _json_object(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError("it must be a JSON object")  # noqa: TRY004  # pydantic reports no other kind
    return parsed


def _extra_fields(fields: dict[str, Any]) -> dict[str, Any]:
    fixed = sorted(fields.keys() & _FIXED_FIELDS)
    if fixed:
        raise ValueError(f"{', '.join(fixed)} cannot be set here")
    limits = [limit for name in _LIMITS if (limit := {_LIMITS[0]: 1, **fields}.get(name)) is not None]
    if not limits:
        raise ValueError(f"it must leave one of {' and '.join(_LIMITS)}, or no cost could be reserved")
    if not all(type(limit) is int and limit > 0 for limit in limits):
        raise ValueError(f"{' and '.join(_LIMITS)} must be whole numbers from 1, or null")
    return fields


def _currency(code: str) -> str:
    # Reads a table of all currencies, for those few who set another one.
    from tasks.currency import exponent  # noqa: PLC0415

    exponent(code)
    return code


def _long_enough(secret: SecretStr) -> SecretStr:
    if secret.get_secret_value() and len(secret.get_secret_value().strip()) < _LEAST_SECRET_CHARACTERS:
        raise ValueError(f"it must have at least {_LEAST_SECRET_CHARACTERS} characters")
    return secret


def _urls(value: Any) -> Any:
    urls = value.split() if isinstance(value, str) else value
    if not all(re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url) for url in urls):
        raise ValueError("each must be an Apprise URL, such as mailtos://user:password@example.com")
    return urls


MicroUnits = Annotated[int, Field(ge=0, le=10**15)]


class Settings(BaseSettings):
    """The settings; each field is the variable of its name in capitals."""

    model_config = SettingsConfigDict(
        env_ignore_empty=True, extra="ignore", frozen=True, validate_default=False
    )

    redis_url: Annotated[str, AfterValidator(_lease_url)] = "redis://127.0.0.1:6379/0"
    broker_url: Annotated[str, AfterValidator(_broker_url)] = ""
    result_backend: Annotated[str, AfterValidator(_backend_url)] = ""
    tasks_data: Annotated[Path, AfterValidator(_folder)] = Path(".dev")
    database_url: Annotated[str, AfterValidator(_database_url)] = ""
    curation_batch: Annotated[int, Field(ge=1, le=10_000)] = 50
    curation_model_url: Annotated[str, AfterValidator(_model_url)] = ""
    curation_model_name: Annotated[str, Field(max_length=_MOST_NAME_CHARACTERS)] = ""
    curation_model_key: Annotated[SecretStr, AfterValidator(_header_text)] = SecretStr("")
    curation_model_timeout: Annotated[float, Field(gt=0, le=120)] = 30.0
    curation_model_concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    curation_model_extra: Annotated[
        dict[str, Any], NoDecode, BeforeValidator(_json_object), AfterValidator(_extra_fields)
    ] = Field(default_factory=dict)
    curation_budget_pass: MicroUnits = 1_000_000
    curation_budget_day: MicroUnits = 10_000_000
    curation_budget_month: MicroUnits = 100_000_000
    curation_price_in: MicroUnits = 0
    curation_price_out: MicroUnits = 0
    site_url: Annotated[str, AfterValidator(_site_url)] = "http://127.0.0.1:8080"
    indexnow_endpoint: Annotated[str, AfterValidator(_web_url)] = ""
    indexnow_key: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{8,128}$")] = _INDEXNOW_KEY
    rewards_pool: Annotated[int, Field(ge=0, le=10**15)] = 100_000
    rewards_currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$"), AfterValidator(_currency)] = "EUR"
    alert_urls: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_urls)] = ()
    cron_secret: Annotated[SecretStr, AfterValidator(_long_enough)] = SecretStr("")
    cron_secret_previous: Annotated[SecretStr, AfterValidator(_long_enough)] = SecretStr("")
    flower_url: Annotated[str, AfterValidator(_web_url)] = ""

    @model_validator(mode="after")
    def _fill(self) -> "Settings":
        if self.curation_model_url and not self.curation_model_name:
            raise ValueError("CURATION_MODEL_URL needs CURATION_MODEL_NAME: the model to ask there")
        # Celery knows a Unix socket by another scheme than redis-py does.
        redis = re.sub("^unix://", "redis+socket://", self.redis_url)
        data = self.tasks_data.absolute()
        filled = {
            "tasks_data": data,
            "broker_url": self.broker_url or redis,
            "result_backend": self.result_backend or redis,
            "database_url": self.database_url or f"sqlite:///{data / 'tasks.sqlite3'}",
        }
        for name, value in filled.items():
            object.__setattr__(self, name, value)
        return self


_WAYS_OUT = {
    "curation_batch": "set a whole number from 1 to 10000, or unset it for 50",
    "site_url": "set the root of the site, or unset it for http://127.0.0.1:8080",
    "indexnow_key": "set 8 to 128 of a-z, A-Z, 0-9 and -, or unset it for the one of this project",
    "rewards_pool": "set whole minor units from 0 to 1000000000000000, or unset it for 100000",
    "rewards_currency": "set three capital letters of ISO 4217, or unset it for EUR",
    "cron_secret": 'set one of `python -c "import secrets; print(secrets.token_urlsafe(24))"`',
    "tasks_data": "name another folder, or unset it for .dev",
}

_SECRET = frozenset({"curation_model_key", "alert_urls", "cron_secret", "cron_secret_previous"})


@cache
def settings() -> Settings:
    """Return the settings of this process, read from the environment on the first call.

    Raises:
        SettingsError: one line for each variable that cannot be used.
    """
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError("\n".join(_said(each) for each in error.errors())) from None


def _said(error: Any) -> str:
    if not error["loc"]:  # about several variables together
        return str(error["msg"]).removeprefix("Value error, ")
    name = str(error["loc"][0])
    way_out = _WAYS_OUT.get(name, "correct it, or unset it for the default")
    problem = error["msg"].removeprefix("Value error, ")
    shown = "***" if name in _SECRET else _shown(str(error["input"]))
    return f"{name.upper()}={shown!r}: {problem}; {way_out}"


def _shown(value: str) -> str:
    """Return a value without what may be secret in it: user, password and query of a URL."""
    return re.sub(r"//.*@", "//***@", value).partition("?")[0]
