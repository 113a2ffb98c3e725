"""Errors as RFC 9457 says: `application/problem+json`, with a word for programs in `error`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse
from starlette.routing import Match

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import Request
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

MEDIA_TYPE = "application/problem+json"

_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")

#: Seconds after which a caller may well try again what is down now.
RETRY_AFTER = 30

#: error → (status, title). The title is the same wherever the error occurs.
ERRORS: dict[str, tuple[int, str]] = {
    "invalid_request": (422, "The request cannot be understood"),
    "unauthorized": (401, "The secret is missing or wrong"),
    "secret_unset": (503, "No usable secret is configured"),
    "rate_limited": (429, "Too many requests"),
    "not_found": (404, "There is nothing here"),
    "method_not_allowed": (405, "The method is not allowed here"),
    "unknown_job": (404, "There is no such job"),
    "unknown_run": (404, "There is no such run, or no longer"),
    "locked": (409, "A live run holds the lease"),
    "already_done": (409, "This slot of the schedule has been done"),
    "lock_unavailable": (503, "The lease store does not answer"),
    "broker_unavailable": (503, "The broker does not answer"),
    "result_backend_unavailable": (503, "The result backend does not answer"),
    "failed": (500, "The run failed"),
    "lost": (500, "The run lost its lease"),
    "abandoned": (500, "The run died with its process"),
    "expired": (410, "The run expired before it started"),
    "overdue": (503, "A job is overdue"),
    "internal_error": (500, "Something went wrong here"),
}


class Problem(Exception):  # noqa: N818 - the RFC's word
    """An error that is answered as it is.

    Args:
        error: a key of `ERRORS`.
        detail: one sentence about this very case.
        headers: more headers.
        challenges: how to log in, each in a header of its own: browsers read only the first of a header.
        **members: more members, such as `job` or `holder`.
    """

    def __init__(
        self,
        error: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        challenges: Sequence[str] = (),
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.error = error
        self.detail = detail
        self.headers = dict(headers or {})
        self.challenges = challenges
        self.members = members

    @property
    def response(self) -> JSONResponse:
        """As an answer."""
        status, title = ERRORS[self.error]
        about = {
            "type": f"urn:celery-lease:problem:{self.error.replace('_', '-')}",
            "title": title,
            "status": status,
            "detail": self.detail,
            "error": self.error,
        }
        response = JSONResponse(
            jsonable_encoder({**about, **self.members}),
            status,
            {"Cache-Control": "no-store", **self.headers},
            media_type=MEDIA_TYPE,
        )
        for challenge in self.challenges:
            response.headers.append("WWW-Authenticate", challenge)
        return response


def unavailable(error: str, detail: str, **members: Any) -> Problem:
    """Something is down that may be back soon."""
    return Problem(error, detail, headers={"Retry-After": str(RETRY_AFTER)}, **members)


async def answer_problem(_request: Request, problem: Problem) -> JSONResponse:
    """Handle a `Problem`."""
    return problem.response


async def answer_http_error(request: Request, error: HTTPException) -> JSONResponse:
    """Handle what the router raises."""
    detail = f"{request.method} {request.url.path}"
    if error.status_code != ERRORS["method_not_allowed"][0]:
        return Problem("not_found", detail).response
    return Problem("method_not_allowed", detail, headers={"Allow": _allowed(request)}).response


def _allowed(request: Request) -> str:
    """All methods of the path: the router names those of its first route only."""

    def is_allowed(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return ", ".join(method for method in _METHODS if is_allowed(method))


async def answer_invalid_request(_request: Request, error: RequestValidationError) -> JSONResponse:
    """Handle parameters that are not what they should be. What was given is not repeated."""
    said = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()]
    return Problem("invalid_request", "; ".join(said)).response


async def answer_unexpected(_request: Request, _error: Exception) -> JSONResponse:
    """Handle a fault of our own; the server logs it with its traceback."""
    return Problem("internal_error", "the log of the web process has the traceback").response


def responses(*errors: str) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: the answers that these errors give."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for error in errors:
        status, title = ERRORS[error]
        known = by_status.get(status)
        by_status[status] = {
            "description": f"{known['description']}; or {error}: {title}" if known else f"{error}: {title}",
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    return by_status


SCHEMA = {
    "type": "object",
    "description": "RFC 9457, and what is known of the run where there is one",
    "required": ["type", "title", "status", "detail", "error"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "error": {"type": "string", "enum": list(ERRORS)},
        "job": {"type": ["string", "null"]},
        "id": {"type": ["string", "null"]},
        "outcome": {"type": ["string", "null"]},
        "reason": {"type": ["string", "null"]},
        "holder": {"type": ["object", "null"]},
        "result": {},
        "period": {"type": "string"},
        "overdue": {"type": "array", "items": {"type": "string"}},
    },
}
