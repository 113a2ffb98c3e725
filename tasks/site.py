"""The public site: a page an answer, a list of them, and what search engines ask for. For everybody.

| path | what |
|---|---|
| `GET /answers` | all answers by name; `?q=` words in the name, `?state=`, `?after=` |
| `GET /answers/412-wheat-flour` | one answer; `/answers/412` leads there |
| `GET /sitemap.xml` | the addresses of all answers, each with when it was last decided |
| `GET /sitemap-2.xml` | its parts, once there are too many for one file: then `/sitemap.xml` is their index |
| `GET /robots.txt` | where the sitemap is |
| `GET /<key>.txt` | the key of IndexNow, by which a search engine sees that an announcement comes from here |

It reads the database alone: it goes on whatever happens to Redis, and needs no secret. While there is no
database, or none that answers within seconds, it answers 503.
"""

import hashlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute
from sqlalchemy.exc import DBAPIError

from tasks import published, sitemap_file
from tasks.database import DatabaseError, must_be_up_to_date, reader
from tasks.facts import State
from tasks.pages import STATIC, answer_page, html, list_page
from tasks.published import Entry, Part
from tasks.settings import Settings
from tasks.store import Store
from tasks.text import normalise
from tasks.words import singular

logger = logging.getLogger(__name__)

_METHODS = ["GET", "HEAD"]
_ON_A_PAGE = 50
_MOST_CHARACTERS = 100
_PATIENCE_SECONDS = 3.0
# Whoever comes so soon after somebody who waited in vain does not wait as well: threads are few.
_PAUSE_SECONDS = 1.0
_RETRY_AFTER_SECONDS = 30
# A page may be a minute old; a sitemap is asked for again each time, because a job compares what it says.
_A_MINUTE = {"Cache-Control": "public, max-age=60"}
_ASK_AGAIN = "public, no-cache"
# A decision is visible some time after the moment it names, when its transaction is through; a newer one may
# be visible before it. Until then the newest moment and the number of answers do not tell one state of the
# sitemap from another.
_SETTLED_SECONDS = 120
# Changes with the form of the sitemap or of the addresses in it.
_FORM = "1"


class _Route(APIRoute):
    """Answers 503 while the database does not answer."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except (DatabaseError, DBAPIError) as error:
                logger.warning("%r: 503: %s", request.url.path, getattr(error, "orig", None) or error)
                again = {"Retry-After": str(_RETRY_AFTER_SECONDS), "Cache-Control": "no-store"}
                return html("unavailable.html", again, status=503)

        return answer


def router(given: Settings) -> APIRouter:
    """Return the site as a router; its paths are those above, from the root."""
    site = _Site(given)
    routes = APIRouter(route_class=_Route, include_in_schema=False)
    endpoints: dict[str, Callable[..., Response | Awaitable[Response]]] = {
        "/answers": site.answers,
        "/answers/{address}": site.answer,
        "/sitemap.xml": site.sitemap,
        "/sitemap-{number}.xml": site.part,
        "/robots.txt": site.robots,
        f"/{given.indexnow_key}.txt": site.key,
        **dict.fromkeys(STATIC, site.static),
    }
    for path, endpoint in endpoints.items():
        routes.add_api_route(path, endpoint, methods=_METHODS)
    return routes


class _Site:
    """The endpoints. FastAPI gives each of those a thread that ask the database: it may take its time."""

    def __init__(self, given: Settings) -> None:
        self._engine = reader(given.database_url, patience_seconds=_PATIENCE_SECONDS)
        self._is_checked = False
        self._ask_again_at = 0.0
        self._url = given.site_url
        self._key = given.indexnow_key

    @contextmanager
    def _store(self) -> Iterator[Store]:
        began = time.monotonic()
        if began < self._ask_again_at:
            raise DatabaseError("the database did not answer a moment ago")
        try:
            if not self._is_checked:
                must_be_up_to_date(self._engine)
                self._is_checked = True
            yield Store(self._engine)
        except DBAPIError:
            self._is_checked = False  # perhaps it is another database now
            if time.monotonic() - began > _PAUSE_SECONDS:
                self._ask_again_at = time.monotonic() + _PAUSE_SECONDS
            raise

    def answers(
        self,
        q: Annotated[str, Query(max_length=_MOST_CHARACTERS)] = "",
        state: State | Literal[""] = "",
        after: Annotated[int | None, Query(ge=1, le=published.GREATEST_ID)] = None,
    ) -> Response:
        """Answers by name, some at a time."""
        words = [singular(word) for word in normalise(q).split()]
        wanted = State(state) if state else None
        with self._store() as store, store.reading() as session:
            total = published.count(session)
            found = published.listed(session, words, wanted, after, _ON_A_PAGE + 1)
        return list_page(
            found[:_ON_A_PAGE],
            more=len(found) > _ON_A_PAGE,
            total=total,
            asked={"q": q, "state": state, "after": after},
            site=self._url,
            headers=_A_MINUTE,
        )

    def answer(self, address: str) -> Response:
        """One answer."""
        number = published.id_in(address)
        with self._store() as store, store.reading() as session:
            found = published.one(session, number) if number else None
            if found is None:
                return html("missing.html", _A_MINUTE, status=404)
            ingredient, given = found
            path = published.path_of(ingredient.id, ingredient.name)
            if address == str(number) and path != f"/answers/{number}":
                return RedirectResponse(path, 301, _A_MINUTE)
            if path != f"/answers/{address}":
                return html("missing.html", _A_MINUTE, status=404)
            return answer_page(ingredient, given, self._url + path, _A_MINUTE)

    def sitemap(self, request: Request) -> Response:
        """The sitemap, or the index of its parts."""
        with self._store() as store, store.reading() as session:
            parts = published.parts(session)
        first = parts[0] if parts else Part(1, 0, "")
        if len(parts) <= 1 and first.number == 1:
            return self._file(request, first)
        if first.number != 1:
            parts.insert(0, Part(1, 0, ""))  # where the list of answers has its entry
        files = [Entry(f"/sitemap-{part.number}.xml", part.decided_at) for part in parts]
        return self._xml(request, parts, sitemap_file.index(self._url, files))

    def part(self, request: Request, number: str) -> Response:
        """A part of the sitemap."""
        with self._store() as store, store.reading() as session:
            parts = {str(part.number): part for part in published.parts(session)}
        part = parts.get(number) or (Part(1, 0, "") if number == "1" else None)
        return self._file(request, part) if part else html("missing.html", _A_MINUTE, status=404)

    def _file(self, request: Request, part: Part) -> Response:
        def some_at_a_time() -> Iterator[list[Entry]]:
            with self._store() as store:
                yield from published.entries(store, part.number)

        # The list of all answers changes with each of them, and is no news: it goes without a date.
        pages = ["/answers"] if part.number == 1 else []
        return self._xml(request, [part], sitemap_file.url_set(self._url, pages, some_at_a_time()))

    def _xml(self, request: Request, parts: list[Part], pieces: Iterable[bytes]) -> Response:
        headers = {"Cache-Control": _ASK_AGAIN, "Vary": "Accept-Encoding", **self._validators(parts)}
        if _knows(request, headers):
            return Response(status_code=304, headers=headers)
        if _takes_gzip(request):
            pieces = sitemap_file.gzipped(pieces)
            headers["Content-Encoding"] = "gzip"
        # Nobody reads what would follow the headers; reading the answers for it would be for nothing.
        shown = () if request.method == "HEAD" else pieces
        return StreamingResponse(shown, headers=headers, media_type="application/xml")

    def _validators(self, parts: list[Part]) -> dict[str, str]:
        newest = max((part.decided_at for part in parts), default="")
        if not newest:
            return {}
        moment = datetime.fromisoformat(newest).astimezone(UTC)
        if datetime.now(UTC) - moment < timedelta(seconds=_SETTLED_SECONDS):
            return {}
        content = hashlib.sha256(json.dumps([_FORM, self._url, parts]).encode()).hexdigest()[:32]
        # Weak: the same for the file and for its gzip.
        return {"ETag": f'W/"{content}"', "Last-Modified": format_datetime(moment, usegmt=True)}

    async def robots(self) -> Response:
        """Where the sitemap is, and what is for operators."""
        closed = "".join(f"Disallow: {path}\n" for path in ("/api/", "/jobs/", "/metrics"))
        text = f"User-agent: *\n{closed}\nSitemap: {self._url}/sitemap.xml\n"
        return PlainTextResponse(text, headers=_A_MINUTE)

    async def key(self) -> Response:
        """The key of IndexNow, and nothing else."""
        return PlainTextResponse(self._key, headers=_A_MINUTE)

    async def static(self, request: Request) -> Response:
        """Style and icon of the pages, whose addresses change with their content."""
        media_type, content = STATIC[request.url.path]
        return Response(content, media_type=media_type, headers={"Cache-Control": "public, max-age=86400"})


def _knows(request: Request, headers: dict[str, str]) -> bool:
    """Whether the client has what it asks for."""
    if "ETag" not in headers:
        return False
    tags = request.headers.get("If-None-Match")
    if tags is not None:
        return headers["ETag"].removeprefix("W/") in re.findall(r'"[^"]*"', tags) or tags.strip() == "*"
    return request.headers.get("If-Modified-Since") == headers["Last-Modified"]


def _takes_gzip(request: Request) -> bool:
    accepted = request.headers.get("Accept-Encoding", "").replace(" ", "").lower().split(",")
    return any(re.fullmatch(r"gzip(;q=(1|1\.0*|0\.0*[1-9][0-9]*))?", each) for each in accepted)
