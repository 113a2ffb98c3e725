"""Makes `SKIPPED` a state that Celery itself treats as an end.

Without this, a stored `SKIPPED` is just a word: `ready()` stays False, `get()` hangs for ever, and a
group, chain or chord with a skipped member never finishes. Celery keeps the states that end a task in
frozen sets, so the sets are replaced, here and nowhere else, once, when the library is imported. Five
functions captured an old set as a default argument; those defaults are replaced by identity, so that a
set that somebody else put there stays.

A skip is an end that propagates, as a failure is: a chain stops with it, a chord raises, `get()` raises
`Skipped`.
"""

from __future__ import annotations

import sys
from typing import Any

from celery import states
from celery.app import trace
from celery.backends.base import Backend, KeyValueStoreBackend
from celery.result import AsyncResult

SKIPPED = "SKIPPED"

_WIDENED = ("READY_STATES", "EXCEPTION_STATES", "PROPAGATE_STATES", "ALL_STATES")


def _install() -> None:
    if SKIPPED in states.ALL_STATES:
        return
    replaced = {}
    for name in _WIDENED:
        old = getattr(states, name)
        new = old | {SKIPPED}
        replaced[id(old)] = new
        for owner in (states, trace, Backend):
            if getattr(owner, name, None) is old:
                setattr(owner, name, new)
    for function in _functions_with_captured_sets():
        function.__defaults__ = tuple(replaced.get(id(value), value) for value in function.__defaults__ or ())
    Backend.meta_from_decoded = _keep_foreign_skips(Backend.meta_from_decoded)  # type: ignore[method-assign]


def _functions_with_captured_sets() -> list[Any]:
    kv: Any = KeyValueStoreBackend
    functions = [AsyncResult.get, kv._filter_ready, kv._mget_to_results, kv.get_many]  # noqa: SLF001 - theirs
    # Imported later, this module captures the widened sets by itself.
    redis = sys.modules.get("celery.backends.redis")
    if redis is not None:
        functions.append(redis.RedisBackend._unpack_chord_result)  # noqa: SLF001 - as above
    return functions


def _keep_foreign_skips(original: Any) -> Any:
    """Somebody's own state of that name has no exception in it and stays the data it is."""

    def meta_from_decoded(self: Any, meta: dict[str, Any]) -> Any:
        if meta["status"] == SKIPPED and not _holds_exception(meta["result"]):
            return meta
        return original(self, meta)

    return meta_from_decoded


def _holds_exception(result: Any) -> bool:
    return isinstance(result, BaseException) or (isinstance(result, dict) and "exc_type" in result)


_install()
