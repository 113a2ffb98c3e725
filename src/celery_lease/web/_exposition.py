"""`/metrics`: what `celery_lease.metrics` collects, in time whatever happens."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from celery_lease.metrics import LeaseCollector, up
from celery_lease.web._desk import desk_of
from celery_lease.web._problems import responses
from celery_lease.web._threads import Unanswered

router = APIRouter()


class _Down(Collector):
    def collect(self) -> list[object]:  # type: ignore[override]
        return [up(0)]


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="For Prometheus",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **responses("unauthorized", "secret_unset", "rate_limited"),
    },
)
async def metrics(request: Request) -> Response:
    """The format that the scraper asks for; `celery_lease_up` is 0 when the store does not answer in time."""
    desk = desk_of(request)
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    try:
        text = await desk.read(lambda _: encode(_registry(LeaseCollector(desk.app))))
    except Unanswered:
        text = encode(_registry(_Down()))
    return Response(text, media_type=content_type)


def _registry(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry
