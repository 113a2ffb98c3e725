"""A receiver of IndexNow on this machine: `uvicorn tasks.receiver:receiver --host=127.0.0.1 --port=8090`.

It stands where a search engine would, so that announcing can be watched from end to end without telling the
world: `POST /indexnow` is as strict as the published protocol, `GET /` shows what was announced, newest
first. What it knows is in memory, and gone when it ends.

It receives for the site `SITE_URL` alone, and fetches the key file from there and from nowhere else, whatever
a request names.
"""

import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from tasks.clock import now
from tasks.settings import settings

#: What the protocol allows in one request.
MOST_URLS = 10_000
#: Requests a minute; one more is answered with 429.
MOST_REQUESTS = 60

_MINUTE_SECONDS = 60
# 10,000 URLs of the greatest length that sitemaps allow, and some air.
_MOST_BYTES = 25_000_000
# What is kept for `GET /`.
_MOST_KEPT = 50_000
_KEY = re.compile(r"[A-Za-z0-9-]{8,128}")
# What RFC 3986 allows in a URL without a fragment.
_URL = re.compile(r"https?://(?:[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+", re.IGNORECASE)
_MOST_PORT = 65_535
_KEY_FILE_SECONDS = 5.0
# The longest key, a byte order mark, and line ends.
_MOST_KEY_BYTES = 140


class Refused(Exception):  # noqa: N818  # what the receiver says, not what went wrong in it
    """A request is answered with a status that the protocol has for it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Announcement:
    """What a request holds, in the form that the protocol wants; whether it is true is another question."""

    host: str
    key: str
    key_location: httpx.URL | None
    urls: tuple[str, ...]


class Receiver:
    """What has been announced for one site.

    Args:
        site_url: the root of the site, such as `http://127.0.0.1:8080`.
        most_requests: how many a minute are taken.
    """

    def __init__(self, site_url: str, most_requests: int = MOST_REQUESTS) -> None:
        self._site = httpx.URL(site_url)
        self._recent: deque[float] = deque(maxlen=most_requests)
        self._announced: deque[dict[str, str]] = deque(maxlen=_MOST_KEPT)
        self._requests = 0

    def count_request(self) -> None:
        """Take one more request.

        Raises:
            Refused: there were too many in the last minute.
        """
        self._requests += 1
        moment = monotonic()
        if len(self._recent) == self._recent.maxlen and moment - self._recent[0] < _MINUTE_SECONDS:
            raise Refused(429, "TooManyRequests", f"more than {self._recent.maxlen} requests in a minute")
        self._recent.append(moment)

    async def receive(self, announcement: Announcement) -> None:
        """Check what is announced against the site, and keep it.

        Raises:
            Refused: host, key or a URL does not fit.
        """
        self._check_host(announcement.host)
        folder = self._folder(announcement.key_location)
        for url in announcement.urls:
            self._check_url(url, folder)
        await self._check_key(announcement)
        moment = now()
        self._announced.extend({"at": moment, "url": url} for url in announcement.urls)

    def shown(self) -> dict[str, Any]:
        """Return what was announced, newest first, without the keys."""
        return {
            "site": str(self._site),
            "requests": self._requests,
            "announced": list(reversed(self._announced)),
        }

    def _check_host(self, host: str) -> None:
        if host.lower() != self._site.raw_host.decode():
            raise Refused(422, "HostMismatch", f"this receiver is for {self._site} and its host only")

    def _folder(self, location: httpx.URL | None) -> str:
        """The path below which a key covers URLs."""
        if location is None:
            return "/"
        if (location.scheme, location.netloc) != (self._site.scheme, self._site.netloc):
            raise Refused(422, "KeyLocationMismatch", "keyLocation is not on the site of this receiver")
        return location.path.rpartition("/")[0] + "/"

    def _check_url(self, text: str, folder: str) -> None:
        url = _absolute(text, "urlList")
        if url.raw_host != self._site.raw_host:
            raise Refused(422, "UrlNotOfHost", f"{text} is not of the host")
        if not url.path.startswith(folder):
            raise Refused(422, "UrlNotCovered", f"{text} is not below the folder of the key file, {folder}")

    async def _check_key(self, announcement: Announcement) -> None:
        file = announcement.key_location or self._site.join(f"/{announcement.key}.txt")
        try:
            content = await _fetched(file)
        except httpx.HTTPError as error:
            raise Refused(403, "SiteVerificationNotCompleted", f"no key file yet: {error}") from None
        if content is None:
            raise Refused(403, "KeyNotFound", "the site has no key file")
        if content.decode("utf-8-sig", errors="replace").strip() != announcement.key:
            raise Refused(403, "KeyNotFound", "the key file does not hold the key")


async def _fetched(file: httpx.URL) -> bytes | None:
    """The first bytes of a key file; None where there is none."""
    async with (
        httpx.AsyncClient(timeout=_KEY_FILE_SECONDS, follow_redirects=False, trust_env=False) as client,
        client.stream("GET", file, headers={"Accept-Encoding": "identity"}) as response,
    ):
        if response.status_code != httpx.codes.OK:
            return None
        content = b""
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > _MOST_KEY_BYTES:
                break
        return content


def read(content_type: str, body: bytes) -> Announcement:
    """Read a request.

    Raises:
        Refused: it is not what the protocol describes.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Refused(400, "InvalidRequest", "Content-Type must be application/json; charset=utf-8")
    try:
        fields = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise Refused(400, "InvalidRequest", f"the body is no JSON in UTF-8: {error}") from None
    if not isinstance(fields, dict):
        raise Refused(400, "InvalidRequest", "the body must be a JSON object")
    location = fields.get("keyLocation")
    return Announcement(
        host=_text(fields, "host"),
        key=_key(_text(fields, "key")),
        key_location=None if location is None else _absolute(_text(fields, "keyLocation"), "keyLocation"),
        urls=_urls(fields.get("urlList")),
    )


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise Refused(400, "InvalidRequest", f"{name} must be a text")
    return value


def _key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise Refused(422, "InvalidKey", "a key has 8 to 128 of a-z, A-Z, 0-9 and -")
    return key


def _urls(urls: Any) -> tuple[str, ...]:
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise Refused(400, "InvalidRequest", "urlList must be a list of at least one URL")
    if len(urls) > MOST_URLS:
        raise Refused(422, "TooManyUrls", f"{len(urls)} URLs in one request, {MOST_URLS} are allowed")
    if len(set(urls)) < len(urls):
        raise Refused(400, "InvalidRequest", "urlList names a URL twice")
    return tuple(urls)


def _absolute(text: str, field: str) -> httpx.URL:
    said = f"{field}: {text!a}"
    if not _URL.fullmatch(text):
        raise Refused(400, "InvalidRequest", f"{said} is no absolute, percent-encoded URL")
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise Refused(400, "InvalidRequest", f"{said}: {error}") from None
    if not url.host or url.userinfo or (url.port or 0) > _MOST_PORT or ".." in url.path.split("/"):
        raise Refused(400, "InvalidRequest", f"{said}: it needs a host, and no user, odd port or way up (..)")
    return url


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise Refused(400, "InvalidRequest", f"more than {_MOST_BYTES} bytes")
    return bytes(body)


def create_receiver(site_url: str, most_requests: int = MOST_REQUESTS) -> FastAPI:
    """Return the app that receives what is announced of one site."""
    app = FastAPI(title="IndexNow receiver", openapi_url=None)
    state = Receiver(site_url, most_requests)

    @app.post("/indexnow")
    async def indexnow(request: Request) -> Response:
        try:
            state.count_request()
            content_type = request.headers.get("content-type", "")
            await state.receive(read(content_type, await _body(request)))
        except Refused as refused:
            headers = {"Retry-After": str(_MINUTE_SECONDS)} if refused.status == 429 else None  # noqa: PLR2004
            content = {"errorCode": refused.code, "message": str(refused)}
            return JSONResponse(content, refused.status, headers)
        return Response(status_code=200)

    @app.get("/")
    async def announced() -> dict[str, Any]:
        return state.shown()

    return app


receiver = create_receiver(settings().site_url)
