"""For the tests of projects that use leases: real leases in a real Redis, as a test needs them.

    from celery_lease.testing import held_elsewhere, outcomes, store_down

    def test_a_second_export_is_skipped(app):
        with held_elsewhere("export:acme", app=app):
            assert export.apply(["acme"]).state == "SKIPPED"
        assert outcomes("export:acme", app=app) == ["ran", "skipped_locked"]

They work with `apply()`, with `task_always_eager` and with a worker, because nothing is replaced: the lease
is taken by somebody else, or the store is somewhere where nobody answers. To test a body without any lease,
call `task.run(...)`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from celery import current_app

from celery_lease._ledger import Ledger
from celery_lease._run import hold
from celery_lease._store import store_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery import Celery

__all__ = ["held_elsewhere", "outcomes", "short_leases", "store_down"]

#: A port that cannot be listened on without being root, and that no service has: connections are refused.
_NOBODY = "redis://127.0.0.1:1/0"


@contextmanager
def held_elsewhere(name: str, *, app: Celery | None = None) -> Iterator[None]:
    """While the block runs, the lease `name` is held: every trigger of its job skips with `locked`.

    The hold is a run like any other and is recorded as `ran` at its end.
    """
    with hold(name, app=app):
        yield


@contextmanager
def store_down(app: Celery | None = None) -> Iterator[None]:
    """While the block runs, this process reaches no store: every trigger skips, `lock_unavailable`.

    Worker processes that run already are not affected.
    """
    with _configured(app or current_app, lease_url=_NOBODY):
        yield


@contextmanager
def short_leases(seconds: float = 3.0, *, app: Celery | None = None) -> Iterator[None]:
    """While the block runs, leases taken here last `seconds`, and the grace is no longer than that.

    Raises:
        LeaseError: at the first lease, when `seconds` is below 1.
    """
    with _configured(app or current_app, lease_seconds=seconds):
        yield


def outcomes(name: str, *, app: Celery | None = None) -> list[str]:
    """How the runs and skips of `name` ended, newest first, as the ledger has them.

    Raises:
        LeaseError: no store is configured, or it does not answer.
    """
    return [record.outcome for record in Ledger(store_of(app or current_app)).history(name)]


@contextmanager
def _configured(app: Celery, **settings: object) -> Iterator[None]:
    missing = object()
    before = {name: app.conf.get(name, missing) for name in settings}
    app.conf.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                del app.conf[name]
            else:
                app.conf[name] = value
