"""Names of leases and of Redis keys, spelt in one place.

Two encodings, each without collisions: arguments into a name (`render`), a name into keys (`Keys`).
"""

from __future__ import annotations

import inspect
import json
import re
import string
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from kombu.utils.json import dumps as kombu_dumps

from celery_lease._errors import LeaseError

if TYPE_CHECKING:
    from collections.abc import Callable

_KEY_SPECIAL = re.compile(r"[{}:%\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_formatter = string.Formatter()


def quote(text: str, also: str = "") -> str:
    """Percent-encode what has a meaning in a key (`{ } : %`), blanks and control characters, and `also`."""
    return "".join(_escape(c) if c == also or _KEY_SPECIAL.match(c) else c for c in text)


def _escape(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))


def trigger_key(prefix: str, run_id: str) -> str:
    """`cron:trigger:<id>`, a string that expires: what is known of a run triggered over HTTP."""
    return f"{prefix}trigger:{quote(run_id)}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The Redis keys of one lease, all under one hash tag, so that a cluster keeps them together."""

    prefix: str
    name: str

    @property
    def lease(self) -> str:
        """`cron:{name}`, a hash that expires: the lease itself."""
        return f"{self.prefix}{{{quote(self.name)}}}"

    @property
    def fence(self) -> str:
        """A string: the last fence granted."""
        return f"{self.lease}:fence"

    @property
    def slot(self) -> str:
        """A hash: the last slot done of each schedule entry."""
        return f"{self.lease}:slot"

    @property
    def done(self) -> str:
        """A sorted set, capped: finished deliveries and withdrawn tokens."""
        return f"{self.lease}:done"

    @property
    def ledger(self) -> str:
        """A hash: counters and the open run."""
        return f"{self.lease}:ledger"

    @property
    def runs(self) -> str:
        """A stream, capped: run records."""
        return f"{self.lease}:runs"

    @property
    def sent(self) -> str:
        """A hash, for the scheduler's own lease only: the last slot sent of each schedule entry."""
        return f"{self.lease}:sent"

    @property
    def alerts(self) -> str:
        """A hash, for the watchdog's own name only: what is wrong now, and what has been said about it."""
        return f"{self.lease}:alerts"

    @property
    def seen(self) -> str:
        """A hash, for the watchdog's own name only: since when each entry has been in the schedule."""
        return f"{self.lease}:seen"

    @property
    def registered(self) -> str:
        """A sorted set, for the watchdog's own name only: the tasks that workers have announced."""
        return f"{self.lease}:registered"

    def alive(self, nonce: str) -> str:
        """The channel that a living process subscribes to; no key, but hashed with them."""
        return f"{self.lease}:alive:{nonce}"

    @property
    def all(self) -> list[str]:
        """In the order of KEYS in acquire.lua and release.lua."""
        return [self.lease, self.fence, self.slot, self.done, self.ledger, self.runs]


def check_name(name: str) -> str:
    """Refuse what cannot be a lease's name; return it otherwise."""
    if not name.strip():
        raise LeaseError(f"the name of a lease must not be blank, as in {name!r}")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise LeaseError(f"the name of a lease must be Unicode without lone surrogates, unlike {name!r}")
    return name


def check_template(template: str, run: Callable[..., Any], task_name: str) -> None:
    """Refuse a `lease=` template that `run`'s arguments cannot fill."""
    parameters = inspect.signature(run).parameters
    for field, spec, conversion in _fields(template, task_name):
        if spec or conversion or field not in parameters:
            raise LeaseError(
                f"lease={template!r} of task {task_name!r}: {{{field}}} is not one of its arguments "
                f"({', '.join(parameters) or 'it has none'}); only plain argument names can be used"
            )
    for (_, before, _, _), (literal, *_) in pairwise(_formatter.parse(template)):
        if before is not None and literal[:1] in ("", "%"):
            raise LeaseError(
                f"lease={template!r} of task {task_name!r}: put something after {{{before}}} that is no "
                "percent sign, or different arguments could give the same name"
            )


def render(template: str, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Fill `template` from a call's bound arguments.

    Positional, keyword and default give the same name; different arguments give different names.

    Raises:
        TypeError: the arguments do not fit `run`.
        LeaseError: an argument has no stable text form.
    """
    if "{" not in template and "}" not in template:
        return template
    bound = inspect.signature(run).bind(*args, **kwargs)
    bound.apply_defaults()
    parts = list(_formatter.parse(template))
    named = []
    for (literal, field, _, _), following in zip_longest(parts, parts[1:]):
        named.append(literal)
        if field is not None:
            # What ends a value in the name cannot be in it, so that no two fields run into each other.
            ends_with = following[0][:1] if following else ""
            named.append(quote(_text(field, bound.arguments[field]), also=ends_with))
    return "".join(named)


def is_per_argument(template: str) -> bool:
    """Whether the template names an argument, so that one task has many leases."""
    return any(field is not None for _, field, _, _ in _formatter.parse(template))


def _fields(template: str, task_name: str) -> list[tuple[str, str, str]]:
    try:
        parsed = list(_formatter.parse(template))
    except ValueError as error:
        raise LeaseError(f"lease={template!r} of task {task_name!r}: {error}") from error
    return [
        (field, spec or "", conversion or "") for _, field, spec, conversion in parsed if field is not None
    ]


def _text(field: str, value: Any) -> str:
    """One argument as text: strings as they are, the rest as JSON, and never two values the same.

    A string that reads as JSON is quoted, so that the string "7" and the number 7 differ.
    """
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
        return json.dumps(value)
    try:
        return str(kombu_dumps(value, sort_keys=True))
    except TypeError as error:
        raise LeaseError(
            f"argument {field!r} of type {type(value).__name__} cannot name a lease: {error}; "
            "use a string or a number in the lease= template"
        ) from error
