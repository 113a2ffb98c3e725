"""A span of OpenTelemetry that is current during a run says which lease it is about, and how it went."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from celery_lease import Skipped, hold
from tests.support.leases import leased

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))


@pytest.fixture
def attributes() -> Iterator[Callable[[], dict[str, Any]]]:
    """A span is current; what it says when it has ended."""
    EXPORTER.clear()
    with PROVIDER.get_tracer("test").start_as_current_span("run") as span:

        def ended() -> dict[str, Any]:
            span.end()
            [finished] = EXPORTER.get_finished_spans()
            return dict(finished.attributes or {})

        yield ended


def test_a_run_says_its_lease_its_fence_and_its_outcome(
    app: Celery, attributes: Callable[[], dict[str, Any]]
) -> None:
    with hold("curation", app=app) as lease:
        fence = lease.fence
    assert attributes() == {
        "celery_lease.name": "curation",
        "celery_lease.fence": fence,
        "celery_lease.outcome": "ran",
    }


def test_a_skip_says_so(app: Celery, attributes: Callable[[], dict[str, Any]], client: Any) -> None:
    client.set("cron:{curation}", "a lock of an older kind")
    with pytest.raises(Skipped), hold("curation", app=app):
        pass
    assert attributes() == {"celery_lease.name": "curation", "celery_lease.outcome": "skipped_locked"}


def test_a_task_that_fails_says_so(app: Celery, attributes: Callable[[], dict[str, Any]]) -> None:
    def curate() -> None:
        raise ValueError

    leased(app, "curation")(curate).apply()
    assert attributes()["celery_lease.outcome"] == "failed"


def test_without_opentelemetry_nothing_is_missing(redis_url: str) -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from celery import Celery
from celery_lease import hold
with hold("curation", app=Celery(broker=sys.argv[1], set_as_current=False)) as lease:
    print(lease.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, redis_url], capture_output=True, text=True, check=True
    )
    assert done.stdout == "curation\n"
