"""Puts the web app together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from celery_lease._settings import refuse_unknown_settings
from celery_lease._store import store_of
from celery_lease.web import _api, _exposition, _health, _pages
from celery_lease.web._access import Access
from celery_lease.web._desk import Desk
from celery_lease.web._guard import bearer_or_basic
from celery_lease.web._headers import Headers
from celery_lease.web._health import Health
from celery_lease.web._limiter import Limiter
from celery_lease.web._problems import (
    SCHEMA,
    Problem,
    answer_http_error,
    answer_invalid_request,
    answer_problem,
    answer_unexpected,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery import Celery

_REQUESTS_A_MINUTE = 60


def create_app(
    app: Celery,
    *,
    secret: str | None = None,
    previous_secret: str | None = None,
    flower_url: str | None = None,
    links: Mapping[str, str] | None = None,
    requests_a_minute: int = _REQUESTS_A_MINUTE,
) -> FastAPI:
    """Make the web app of a Celery app.

    Args:
        app: the Celery app; its tasks are imported here.
        secret: for everything but `/healthz`; None = the environment's `CRON_SECRET`.
        previous_secret: valid beside it during a rotation; None = `CRON_SECRET_PREVIOUS`.
        flower_url: where to find Flower, for links; None = `FLOWER_URL`; "" = nowhere.
        links: more places to go to from the status page, text → address.
        requests_a_minute: triggers, and refused logins, that one client may make.

    Raises:
        LeaseError: the app's settings are wrong.
    """
    app.loader.import_default_modules()
    refuse_unknown_settings(app)
    settings = store_of(app).settings
    access = Access(_given(secret, "CRON_SECRET"), _given(previous_secret, "CRON_SECRET_PREVIOUS"))
    flower = _given(flower_url, "FLOWER_URL").rstrip("/")
    desk = Desk(app, access, Limiter(settings, requests_a_minute), flower, dict(links or {}))
    # A redirect to the path without its slash would name the host that the request said.
    web = FastAPI(
        title="celery-lease", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    web.state.desk, web.state.health = desk, Health(desk)
    web.include_router(_api.router)
    web.include_router(_health.router)
    for router in (_exposition.router, _pages.router):
        web.include_router(router, dependencies=[Depends(bearer_or_basic)])
    _describe(web)
    _handle_errors(web)
    web.add_middleware(Headers)
    return web


def _given(value: str | None, variable: str) -> str:
    return os.environ.get(variable, "") if value is None else value


def _handle_errors(web: FastAPI) -> None:
    handlers: dict[Any, Any] = {
        Problem: answer_problem,
        HTTPException: answer_http_error,
        RequestValidationError: answer_invalid_request,
        Exception: answer_unexpected,
    }
    for kind, handler in handlers.items():
        web.add_exception_handler(kind, handler)


def _describe(web: FastAPI) -> None:
    """Serve the description of the API, behind the secret like the rest, with its errors and both doors."""

    def openapi() -> dict[str, Any]:
        if web.openapi_schema is None:
            schema = get_openapi(title=web.title, version=web.version, routes=web.routes)
            _add_components(schema)
            web.openapi_schema = schema
        return web.openapi_schema

    async def answer(_request: Request) -> JSONResponse:
        return JSONResponse(web.openapi())

    web.openapi = openapi  # type: ignore[method-assign]
    web.add_api_route(
        "/openapi.json", answer, include_in_schema=False, dependencies=[Depends(bearer_or_basic)]
    )


def _add_components(schema: dict[str, Any]) -> None:
    components = schema.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = SCHEMA
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "basic": {"type": "http", "scheme": "basic"},
    }
    both: list[dict[str, list[str]]] = [{"bearer": []}, {"basic": []}]
    for path, operations in schema["paths"].items():
        doors = both[:1] if path.startswith("/api/cron/") else both
        for operation in operations.values():
            operation["security"] = [] if path == "/healthz" else doors
