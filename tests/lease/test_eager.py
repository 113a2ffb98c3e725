"""Without a worker: called as a function, applied, and always eager. Every way takes the lease or says so."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from celery import Celery, states
from celery.exceptions import Ignore, Reject, Retry

from celery_lease import SKIPPED, LeasedTask, Skipped, current_lease, hold
from tests.nodes.ports import free_port
from tests.support.leases import leased

# Celery's own Redis backend; with warnings as errors it could store nothing.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

#: How a job can be run without a worker, and what its caller then has.
WAYS: dict[str, Callable[[Any], Any]] = {
    "called": lambda task: task(),
    "applied": lambda task: task.apply(),
    "applied, throwing": lambda task: task.apply(throw=True),
    "always eager": lambda task: task.delay(),
}
EAGER = [way for way in WAYS if way != "called"]


class Journal:
    """A leased job that writes down each time its body is entered, and under which fence."""

    def __init__(self, app: Celery, **options: Any) -> None:
        self.app = app
        self.fences: list[int] = []

        @leased(app, **options)
        def body() -> str:
            self.fences.append(current_lease().fence)
            return "done"

        self.task = body


@pytest.fixture
def eager_app(start_app: Callable[..., Celery]) -> Celery:
    return start_app(task_always_eager=True)


@pytest.fixture
def journal(eager_app: Celery) -> Journal:
    return Journal(eager_app)


def is_held(client: Any, name: str = "job") -> bool:
    return bool(client.exists(f"cron:{{{name}}}"))


def ledger(client: Any, name: str = "job") -> dict[str, str]:
    return dict(client.hgetall(f"cron:{{{name}}}:ledger"))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_runs_the_body_under_the_lease_it_frees(journal: Journal, client: Any, way: str) -> None:
    answer = WAYS[way](journal.task)
    assert (answer if way == "called" else answer.get()) == "done"
    assert len(journal.fences) == 1
    assert not is_held(client)
    assert ledger(client)["total:ran"] == "1"


@pytest.mark.parametrize("way", WAYS)
def test_no_way_enters_the_body_while_another_has_the_lease(
    journal: Journal, client: Any, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with hold("job", app=journal.app) as lease:
        began = time.monotonic()
        if way == "called":
            with pytest.raises(Skipped) as caught:
                WAYS[way](journal.task)
            skipped = caught.value
        else:
            answer = WAYS[way](journal.task)
            assert answer.state == SKIPPED
            assert answer.ready()
            skipped = answer.result
        assert time.monotonic() - began < 1
        assert not journal.fences
        assert is_held(client)
        assert (skipped.reason, skipped.name) == ("locked", "job")
        assert skipped.holder["worker"] == "hold"
        assert skipped.holder["since"] == lease.grant.since
    assert ledger(client)["total:skipped_locked"] == "1"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("way", EAGER)
def test_who_waits_for_an_eager_skip_gets_it(journal: Journal, way: str) -> None:
    with hold("job", app=journal.app):
        answer = WAYS[way](journal.task)
        with pytest.raises(Skipped):
            answer.get()
        assert isinstance(answer.get(propagate=False), Skipped)


@pytest.mark.parametrize("propagates", [False, True])
def test_whether_errors_propagate_makes_no_difference_to_a_skip(
    start_app: Callable[..., Celery], *, propagates: bool
) -> None:
    journal = Journal(start_app(task_always_eager=True, task_eager_propagates=propagates))
    with hold("job", app=journal.app):
        assert journal.task.delay().state == SKIPPED
    assert not journal.fences


@pytest.mark.parametrize("is_stored", [False, True])
def test_an_eager_skip_is_stored_where_eager_results_are(
    start_app: Callable[..., Celery], client: Any, *, is_stored: bool
) -> None:
    app = start_app(task_always_eager=True, task_store_eager_result=is_stored)
    journal = Journal(app)
    with hold("job", app=app):
        answer = journal.task.delay()
    assert bool(client.exists(f"celery-task-meta-{answer.id}")) is is_stored
    if is_stored:
        later = app.AsyncResult(answer.id)
        assert later.state == SKIPPED
        with pytest.raises(Skipped):
            later.get(timeout=1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("propagates", [False, True])
def test_a_failure_frees_the_lease(
    start_app: Callable[..., Celery], client: Any, way: str, *, propagates: bool
) -> None:
    app = start_app(task_always_eager=True, task_eager_propagates=propagates)

    @leased(app)
    def fails() -> None:
        raise ValueError("on purpose")

    raises = way in ("called", "applied, throwing") or propagates
    if raises:
        with pytest.raises(ValueError, match="on purpose"):
            WAYS[way](fails)
    else:
        assert WAYS[way](fails).state == states.FAILURE
    assert not is_held(client)
    assert ledger(client)["total:failed"] == "1"


def test_eager_retries_are_runs_of_their_own_and_never_skipped(eager_app: Celery, client: Any) -> None:
    fences: list[int] = []

    @leased(eager_app, bind=True, max_retries=5)
    def again(self: Any) -> int:
        fences.append(current_lease().fence)
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return len(fences)

    assert again.apply().get() == 3
    assert len(set(fences)) == 3
    totals = ledger(client)
    assert (totals["total:retried"], totals["total:ran"]) == ("2", "1")
    assert "total:skipped_locked" not in totals
    assert not is_held(client)


def test_a_retry_in_a_called_job_frees_the_lease(eager_app: Celery, client: Any) -> None:
    @leased(eager_app, bind=True)
    def again(self: Any) -> None:
        raise self.retry(countdown=0)

    with pytest.raises(Retry):
        again()
    assert not is_held(client)


@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_calls_itself_runs_under_the_lease_it_has_and_keeps_it_to_the_end(
    eager_app: Celery, client: Any, way: str
) -> None:
    fences: list[int] = []
    depths: list[int] = []

    @leased(eager_app)
    def countdown(depth: int = 3) -> int:
        fences.append(current_lease().fence)
        depths.append(depth)
        if depth:
            countdown(depth - 1)
        assert is_held(client), "given back by an inner call"
        return depth

    answer = WAYS[way](countdown)
    assert (answer if way == "called" else answer.get()) == 3
    assert depths == [3, 2, 1, 0]
    assert len(set(fences)) == 1
    assert not is_held(client)
    assert ledger(client)["total:ran"] == "1"


@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_calls_itself_for_another_lease_needs_that_one_too(
    eager_app: Celery, client: Any, way: str
) -> None:
    names: list[str] = []

    @leased(eager_app, lease="export:{tenant}")
    def export(tenant: str = "acme") -> None:
        names.append(current_lease().name)
        if tenant == "acme":
            export("free")
            assert current_lease().name == "export:acme"
            assert is_held(client, "export%3Aacme")
            export("held")

    with hold("export:held", app=eager_app):
        if way == "called":
            with pytest.raises(Skipped, match="export:held"):
                export()
        else:
            assert WAYS[way](export).state == SKIPPED
        assert not is_held(client, "export%3Aacme")
        assert is_held(client, "export%3Aheld")
    assert names == ["export:acme", "export:free"]
    assert ledger(client, "export%3Afree")["total:ran"] == "1"


@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_applies_itself_is_skipped_inside_and_keeps_its_lease(
    eager_app: Celery, client: Any, way: str
) -> None:
    inner_states: list[str] = []

    @leased(eager_app)
    def nested(*, inner: bool = False) -> None:
        assert not inner, "a message of its own is another run"
        inner_states.append(nested.apply(kwargs={"inner": True}).state)
        assert is_held(client)

    WAYS[way](nested)
    assert inner_states == [SKIPPED]
    assert ledger(client)["total:ran"] == "1"
    assert not is_held(client)


@pytest.mark.parametrize("way", WAYS)
def test_a_body_may_hold_another_lease_and_has_its_own_again_afterwards(
    eager_app: Celery, client: Any, way: str
) -> None:
    seen: list[str] = []

    @leased(eager_app)
    def outer() -> None:
        seen.append(current_lease().name)
        with hold("other", app=eager_app):
            seen.append(current_lease().name)
            assert is_held(client, "job")
            assert is_held(client, "other")
        seen.append(current_lease().name)
        assert not is_held(client, "other")
        assert is_held(client, "job")

    WAYS[way](outer)
    assert seen == ["job", "other", "job"]


@pytest.mark.parametrize("way", WAYS)
def test_a_body_that_cannot_have_a_second_lease_is_a_skip_and_frees_its_own(
    eager_app: Celery, client: Any, way: str
) -> None:
    @leased(eager_app)
    def outer() -> None:
        with hold("other", app=eager_app):
            pytest.fail("entered")

    with hold("other", app=eager_app):
        if way == "called":
            with pytest.raises(Skipped) as caught:
                outer()
            assert caught.value.name == "other"
        else:
            assert WAYS[way](outer).state == SKIPPED
        assert not is_held(client, "job")
    assert ledger(client)["total:skipped_locked"] == "1"
    assert "last_ran" not in ledger(client)


@pytest.mark.parametrize("way", WAYS)
def test_per_argument_leases_are_told_apart_without_a_worker_too(
    eager_app: Celery, client: Any, way: str
) -> None:
    names: list[str] = []

    @leased(eager_app, lease="export:{tenant}")
    def export(tenant: str = "acme") -> None:
        names.append(current_lease().name)

    with hold("export:other", app=eager_app):
        WAYS[way](export)
    assert names == ["export:acme"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stores", [False, True])
def test_without_a_store_no_way_enters_the_body_and_each_says_so_in_time(
    start_app: Callable[..., Celery], way: str, caplog: pytest.LogCaptureFixture, *, stores: bool
) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    journal = Journal(start_app(nowhere, task_always_eager=True, task_store_eager_result=stores))
    began = time.monotonic()
    if way == "called":
        with pytest.raises(Skipped) as caught:
            WAYS[way](journal.task)
        skipped = caught.value
    else:
        answer = WAYS[way](journal.task)
        assert answer.state == SKIPPED
        skipped = answer.result
    assert time.monotonic() - began < 5
    assert not journal.fences
    assert skipped.reason == "lock_unavailable"
    assert "ConnectionError" in skipped.detail
    said = [record for record in caplog.records if "lock_unavailable" in record.getMessage()]
    assert [record.levelname for record in said] == ["ERROR"]


def test_the_body_alone_is_there_for_unit_tests(start_app: Callable[..., Celery]) -> None:
    app = start_app(f"redis://127.0.0.1:{free_port()}/0")

    @leased(app)
    def double(number: int) -> int:
        return 2 * number

    assert double.run(21) == 42


def test_arguments_that_do_not_fit_fail_before_the_lease_is_taken(eager_app: Celery, client: Any) -> None:
    @leased(eager_app, lease="export:{tenant}")
    def export(tenant: str) -> str:
        return tenant

    assert isinstance(export.apply().result, TypeError)
    with pytest.raises(TypeError):
        export(unknown=1)
    assert client.keys("cron:*") == []


@pytest.mark.parametrize("raised", [Ignore("not today"), Reject("no", requeue=False), ValueError("no")])
def test_a_subclass_that_stops_after_the_lease_was_taken_leaves_none(
    app: Celery, client: Any, raised: Exception
) -> None:
    class Picky(LeasedTask):
        abstract = True

        def before_start(self, *args: Any) -> None:
            super().before_start(*args)
            raise raised

    def body() -> None:
        raise AssertionError("the body was entered")

    make: Any = app.task
    task = make(name="job", base=Picky, shared=False, lazy=False)(body)
    with suppress(Reject):
        task.apply()
    assert not client.exists("cron:{job}")


def test_a_call_of_the_task_by_itself_after_its_end_takes_a_lease_of_its_own(
    app: Celery, client: Any
) -> None:
    held: list[int] = []

    class Encore(LeasedTask):
        abstract = True

        def on_success(self, *_: Any) -> None:
            if len(held) == 1:
                self()

    def body(self: Any) -> None:
        held.append(client.exists("cron:{job}"))

    make: Any = app.task
    make(name="job", base=Encore, bind=True, shared=False, lazy=False)(body).apply()
    assert held == [1, 1]
