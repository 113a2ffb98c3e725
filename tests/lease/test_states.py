"""SKIPPED is an end that Celery itself knows, wherever it looks, and a skip comes back as what it was."""

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, states
from celery.result import AsyncResult

from celery_lease import SKIPPED, Skipped
from tests.support.scripts import answer_of

# Celery's own Redis backend; with warnings as errors it could store nothing.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

SKIP = Skipped("locked", "curation", {"task_id": "one", "worker": "w@here", "expires_in": 12.5}, "why")

#: Walks over everything that Celery has, and says where a set of states from before is left.
WALK = """
    import contextlib, importlib, inspect, json, pkgutil, sys, warnings
    from celery import states
    names = ("READY_STATES", "EXCEPTION_STATES", "PROPAGATE_STATES", "ALL_STATES")
    old = {name: getattr(states, name) for name in names}
    assert not any("SKIPPED" in each for each in old.values())

    def import_the_rest_of_celery(but="nothing"):
        import celery
        for module in pkgutil.walk_packages(celery.__path__, "celery.", onerror=lambda name: None):
            if module.name.endswith("__main__") or module.name.startswith(but):
                continue
            with contextlib.suppress(Exception, SystemExit), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(module.name)

    def is_old(value):
        return isinstance(value, (set, frozenset)) and value in old.values()

    def looks_into(where, thing, seen, found):
        if is_old(thing):
            found.append(where)
        if id(thing) in seen:
            return
        seen.add(id(thing))
        if inspect.isclass(thing):
            if thing.__module__.startswith("celery."):
                for name, value in vars(thing).items():
                    looks_into(f"{where}.{name}", value, seen, found)
        elif isinstance(thing, (classmethod, staticmethod)):
            looks_into(where, thing.__func__, seen, found)
        elif isinstance(thing, property):
            looks_into(where, thing.fget, seen, found)
        elif inspect.isfunction(thing):
            defaults = [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            for value in [*defaults, *cells, *vars(thing).values()]:
                looks_into(f"{where}()", value, seen, found)
        elif isinstance(thing, dict):
            for key, value in thing.items():
                looks_into(f"{where}[{key!r}]", value, seen, found)
        elif isinstance(thing, (list, tuple)):
            for value in thing:
                looks_into(where, value, seen, found)

    def places_left():
        found, seen = [], set()
        for name, module in sorted(sys.modules.items()):
            if name.split(".")[0] == "celery" and module is not None:
                for attribute, value in list(vars(module).items()):
                    looks_into(f"{name}.{attribute}", value, seen, found)
        return found
"""


def test_no_old_set_of_states_is_left_when_celery_was_imported_first() -> None:
    found, modules = answer_of(
        """
        import_the_rest_of_celery(but="celery.bin")  # which loads the library: it adds a command
        assert places_left(), "the walk sees nothing"
        import celery_lease
        import_the_rest_of_celery()
        print(json.dumps([places_left(), sorted(name for name in sys.modules if name.startswith("celery."))]))
        """,
        setup=WALK,
    )
    assert found == []
    assert {f"celery.backends.{name}" for name in ("base", "redis", "database", "rpc", "cache")} <= {*modules}
    assert {"celery.app.trace", "celery.worker.request", "celery.events.state", "celery.canvas"} <= {*modules}


def test_no_old_set_of_states_is_left_when_celery_is_imported_afterwards() -> None:
    found, modules = answer_of(
        """
        import celery_lease
        import_the_rest_of_celery()
        print(json.dumps([places_left(), sorted(name for name in sys.modules if name.startswith("celery."))]))
        """,
        setup=WALK,
    )
    assert found == []
    assert "celery.backends.redis" in modules


def test_importing_the_library_again_changes_nothing_more() -> None:
    same = answer_of(
        """
        import importlib, json
        from celery import states
        from celery_lease import _states
        before = states.READY_STATES
        importlib.reload(_states)
        print(json.dumps(states.READY_STATES is before))
        """
    )
    assert same


def test_a_set_that_somebody_else_put_into_a_default_stays() -> None:
    stays = answer_of(
        """
        import json
        from celery.backends.base import KeyValueStoreBackend
        own = frozenset({"MINE"})
        KeyValueStoreBackend.get_many.__defaults__ = tuple(
            own if isinstance(value, frozenset) else value
            for value in KeyValueStoreBackend.get_many.__defaults__
        )
        import celery_lease
        print(json.dumps(own in KeyValueStoreBackend.get_many.__defaults__))
        """
    )
    assert stays


def test_a_skip_ends_a_task_and_propagates_and_every_other_state_is_as_it_was() -> None:
    assert SKIPPED in states.READY_STATES & states.EXCEPTION_STATES & states.PROPAGATE_STATES
    assert SKIPPED not in states.UNREADY_STATES
    old = {
        "READY_STATES": {"SUCCESS", "FAILURE", "REVOKED"},
        "EXCEPTION_STATES": {"RETRY", "FAILURE", "REVOKED"},
        "PROPAGATE_STATES": {"FAILURE", "REVOKED"},
    }
    for name, members in old.items():
        assert getattr(states, name) - {SKIPPED} == members


def test_a_skip_survives_pickle() -> None:
    again = pickle.loads(pickle.dumps(SKIP))  # noqa: S301 - our own
    assert (again.reason, again.name, again.holder, again.detail) == SKIP.args
    assert str(again) == str(SKIP)


@pytest.fixture
def backends(redis_url: str, tmp_path: Path) -> Iterator[Callable[[str], Celery]]:
    """An app with a result backend of that kind."""
    urls = {
        "redis": redis_url,
        "database": f"db+sqlite:///{tmp_path / 'results.sqlite'}",
        "memory": "cache+memory://",
        "files": f"file://{tmp_path}",
    }
    apps: list[Celery] = []

    def make(kind: str) -> Celery:
        apps.append(Celery("results", broker=redis_url, backend=urls[kind], set_as_current=False))
        return apps[-1]

    yield make
    for app in apps:
        backend: Any = app.backend
        if hasattr(backend, "ResultSession"):
            backend.ResultSession().get_bind().dispose()
        app.close()


def stored(app: Celery, result: Any, state: str = SKIPPED) -> AsyncResult[Any]:
    """Store a result as a worker does; what another caller gets."""
    task_id = str(uuid4())
    backend: Any = app.backend
    if isinstance(result, BaseException):
        backend.mark_as_failure(task_id, result, state=state)
    else:
        backend.store_result(task_id, result, state)
    return AsyncResult(task_id, app=app)


@pytest.mark.parametrize("kind", ["redis", "database", "memory", "files"])
def test_a_skip_comes_back_from_every_kind_of_backend_as_itself(
    backends: Callable[[str], Celery], kind: str
) -> None:
    result = stored(backends(kind), SKIP)
    assert result.state == SKIPPED
    assert result.ready()
    with pytest.raises(Skipped) as caught:
        result.get(timeout=1)
    assert caught.value.args == SKIP.args
    assert isinstance(result.result, Skipped)
    assert result.result.reason == "locked"
    assert result.get(timeout=1, propagate=False).args == SKIP.args


@pytest.mark.parametrize("kind", ["redis", "database", "memory", "files"])
@pytest.mark.parametrize("value", [{"why": "paused"}, "paused", None, ["a"], {"exc_message": "x"}])
def test_somebody_elses_state_of_that_name_stays_the_data_it_is(
    backends: Callable[[str], Celery], kind: str, value: Any
) -> None:
    result = stored(backends(kind), value)
    assert result.state == SKIPPED
    assert result.result == result.info == value
    assert result.get(timeout=1, propagate=False) == value


def test_a_failure_and_a_retry_come_back_as_before(backends: Callable[[str], Celery]) -> None:
    app = backends("redis")
    failed = stored(app, ValueError("on purpose"), states.FAILURE)
    with pytest.raises(ValueError, match="on purpose"):
        failed.get(timeout=1)
    assert stored(app, {"half": True}, "PROGRESS").result == {"half": True}
    assert stored(app, 7, states.SUCCESS).get(timeout=1) == 7


def test_a_process_with_the_library_gets_the_skip_with_its_reason_and_holder(
    backends: Callable[[str], Celery], redis_url: str
) -> None:
    result = stored(backends("redis"), SKIP)
    answer = answer_of(
        """
        import json, sys
        from celery import Celery
        import celery_lease
        app = Celery(backend=sys.argv[1], broker=sys.argv[1])
        try:
            app.AsyncResult(sys.argv[2]).get(timeout=5)
        except celery_lease.Skipped as skipped:
            print(json.dumps([skipped.reason, skipped.name, skipped.holder, skipped.detail]))
        """,
        redis_url,
        result.id,
    )
    assert tuple(answer) == SKIP.args


def test_a_process_without_the_library_sees_the_state_and_the_reason_as_data(
    backends: Callable[[str], Celery], redis_url: str
) -> None:
    result = stored(backends("redis"), SKIP)
    state, data, has_library = answer_of(
        """
        import json, sys
        from celery import Celery
        app = Celery(backend=sys.argv[1], broker=sys.argv[1])
        result = app.AsyncResult(sys.argv[2])
        print(json.dumps([result.state, result.result, "celery_lease" in sys.modules]))
        """,
        redis_url,
        result.id,
    )
    assert not has_library
    assert state == SKIPPED
    assert data["exc_type"] == "Skipped"
    assert data["exc_module"] == "celery_lease"
    assert data["exc_message"] == json.loads(json.dumps(SKIP.args))


def test_what_is_stored_of_a_skip_holds_no_token(backends: Callable[[str], Celery], client: Any) -> None:
    result = stored(backends("redis"), SKIP)
    assert "token" not in client.get(f"celery-task-meta-{result.id}")
