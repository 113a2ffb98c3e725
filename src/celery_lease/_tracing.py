"""Lease name, fence and outcome on the current OpenTelemetry span, where OpenTelemetry is installed.

The span is whoever's it is: that of Celery's instrumentation around a task, or the caller's around `hold`.
Without an SDK the current span records nothing, and this costs a function call.
"""

from __future__ import annotations

try:
    from opentelemetry import trace
except ImportError:
    trace = None  # type: ignore[assignment]


def describe(name: str, *, fence: int | None = None, outcome: str = "") -> None:
    """Say on the current span which lease its work is about, and how that went.

    Args:
        name: of the lease.
        fence: as granted.
        outcome: a word of the table of outcomes.
    """
    if trace is None:
        return
    span = trace.get_current_span()
    span.set_attribute("celery_lease.name", name)
    if fence is not None:
        span.set_attribute("celery_lease.fence", fence)
    if outcome:
        span.set_attribute("celery_lease.outcome", outcome)
