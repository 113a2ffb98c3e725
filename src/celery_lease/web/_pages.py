"""The status page and the page of a job, rendered here, live without a reload, whole without scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from celery_lease._errors import StoreUnavailable
from celery_lease.web import _plot, _strip
from celery_lease.web._board import read_board, read_job_page
from celery_lease.web._desk import desk_of
from celery_lease.web._problems import Problem, unavailable
from celery_lease.web._threads import Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_lease.web._desk import Desk
    from celery_lease.web._health import Health

_MANY = 1000

_STATIC = {
    name: ((files("celery_lease.web") / "static" / name).read_bytes(), media_type)
    for name, media_type in (
        ("status.css", "text/css; charset=utf-8"),
        ("live.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    )
}
_VERSION = sha256(b"".join(content for content, _ in _STATIC.values())).hexdigest()[:12]

router = APIRouter(include_in_schema=False)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("celery_lease.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"ago": _ago, "until": _until, "took": _plot.in_words, "path": _path}
    environment.globals |= {"kinds": _strip.KINDS, "kind_of": _strip.kind_of, "version": _VERSION}
    return environment


def _path(name: str) -> str:
    return quote(name, safe="")


def _ago(time: datetime, now: datetime) -> str:
    """How long ago, in its two largest units."""
    return f"{_span((now - time).total_seconds())} ago"


def _until(time: datetime, now: datetime) -> str:
    return f"in {_span((time - now).total_seconds())}"


def _span(seconds: float) -> str:
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if seconds >= size:
            rest = int(seconds % size // part)
            return f"{seconds // size:.0f} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{max(0, seconds):.0f} s"  # noqa: PLR2004 - as said


_jinja = _environment()

Fragment = Annotated[bool, Query(description="only the part that changes")]


@router.get("/")
async def status(request: Request, *, fragment: Fragment = False) -> HTMLResponse:
    """All jobs, a row each."""
    desk = desk_of(request)
    findings = await _findings(request)
    board = await _read(desk, lambda ledger: read_board(desk.app, ledger, findings))
    template = "board.html" if fragment else "status.html"
    return _html(template, desk, board=board, now=board.now)


@router.get("/jobs/{name:path}")
async def job(
    request: Request,
    name: str,
    limit: Annotated[int, Query(ge=1, le=_MANY)] = 50,
    *,
    fragment: Fragment = False,
) -> HTMLResponse:
    """One job: its history, its durations, its holder."""
    desk = desk_of(request)
    findings = await _findings(request)
    page = await _read(desk, lambda ledger: read_job_page(desk.app, ledger, name, findings, limit))
    if page is None:
        raise Problem("unknown_job", f"no job {name!r} is scheduled or ever left a trace", job=name)
    template = "history.html" if fragment else "job.html"
    return _html(template, desk, page=page, row=page.row, now=page.now, limit=limit, most=_MANY)


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """Style, script and icon: three files that the wheel carries."""
    if name not in _STATIC:
        raise Problem("not_found", f"GET /static/{name}")
    content, media_type = _STATIC[name]
    # Their addresses change with their content.
    return Response(content, media_type=media_type, headers={"Cache-Control": "private, max-age=86400"})


async def _findings(request: Request) -> Any:
    health: Health = request.app.state.health
    return await health.findings()


async def _read(desk: Desk, view: Callable[[Any], Any]) -> Any:
    try:
        return await desk.read(view)
    except (StoreUnavailable, Unanswered) as error:
        raise unavailable("lock_unavailable", str(error)) from error


def _html(template: str, desk: Desk, **context: Any) -> HTMLResponse:
    places = {"flower": desk.flower, "links": desk.links}
    return HTMLResponse(_jinja.get_template(template).render(**context, **places, made=datetime.now(UTC)))
