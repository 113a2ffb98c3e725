"""The test kit that the library ships for its users."""

import pytest
from celery import Celery

from celery_lease import SKIPPED, LeasedTask, LeaseError, Skipped
from celery_lease.testing import held_elsewhere, outcomes, short_leases, store_down


@pytest.fixture
def app(redis_url: str) -> Celery:
    app = Celery("kit", broker=redis_url, backend=redis_url, set_as_current=False)

    @app.task(name="export", base=LeasedTask, shared=False)
    def export() -> str:
        return "done"

    return app


def test_a_lease_held_elsewhere_makes_a_trigger_skip_and_the_next_one_run(app: Celery) -> None:
    with held_elsewhere("export", app=app):
        assert str(app.tasks["export"].apply().state) == SKIPPED
    assert app.tasks["export"].apply().get() == "done"
    assert outcomes("export", app=app) == ["ran", "ran", "skipped_locked"]


def test_without_a_store_a_trigger_skips_and_the_setting_comes_back(app: Celery) -> None:
    with store_down(app), pytest.raises(Skipped) as caught:
        app.tasks["export"].apply().get()
    assert caught.value.reason == "lock_unavailable"
    assert app.tasks["export"].apply().get() == "done"


def test_short_leases_are_short_only_in_the_block(app: Celery) -> None:
    with short_leases(2, app=app), held_elsewhere("export", app=app), pytest.raises(Skipped) as caught:
        app.tasks["export"].apply().get()
    assert caught.value.holder["expires_in"] <= 2
    with held_elsewhere("export", app=app), pytest.raises(Skipped) as caught:
        app.tasks["export"].apply().get()
    assert caught.value.holder["expires_in"] > 200


def test_a_lease_too_short_is_refused_by_name(app: Celery) -> None:
    with short_leases(0.5, app=app), pytest.raises(LeaseError, match="lease_seconds"):
        app.tasks["export"].apply(throw=True)
