"""One announcement by IndexNow: a POST, and what its answer means."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

import httpx

from tasks.announcing.origin import Origin
from tasks.retrying import retry_after

#: URLs in one request.
MOST_URLS = 10_000

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_WHOLE_SECONDS = 60.0
_MOST_ANSWER_BYTES = 10_000
_MOST_SAID = 200
_SERVER_ERROR = 500


class Verdict(StrEnum):
    """What becomes of the URLs."""

    ACCEPTED = "accepted"
    PROVISIONAL = "provisional"  # they were received, and the key is yet to be checked
    NOT_THESE = "not_these"  # some of them, or the key, do not fit the host
    TOO_OFTEN = "too_often"
    LATER = "later"  # the same request may fare better in the next run
    REFUSED = "refused"  # it will not, until a person changes something


class Answer(NamedTuple):
    """What the endpoint said."""

    verdict: Verdict
    detail: str
    retry_after_seconds: float | None = None


_VERDICTS = {
    200: Verdict.ACCEPTED,
    202: Verdict.PROVISIONAL,
    204: Verdict.ACCEPTED,  # no part of the protocol, and can mean nothing else
    408: Verdict.LATER,
    422: Verdict.NOT_THESE,
    429: Verdict.TOO_OFTEN,
}
# What to do about a 403, by the `errorCode` in it. The first is no refusal: the endpoint has not looked yet.
_PENDING = "SiteVerificationNotCompleted"
_WAYS_OUT = {
    "KeyNotFound": "it found no key, or another one, in the key file, which was right when this run looked; "
    "see that nothing (a login, a shield against bots, a redirect) keeps the endpoint from it",
    "UserForbiddedToAccessSite": "set INDEXNOW_KEY to a new key, and show that in the key file",
}


@dataclass(frozen=True)
class Endpoint:
    """Where to announce, for which site, with which key."""

    url: str
    origin: Origin
    key: str


class IndexNow:
    """The endpoint. Nothing is tried twice here, and no redirect is followed."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client = httpx.Client(
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
            headers={"Accept-Encoding": "identity", "Content-Type": "application/json; charset=utf-8"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(self, urls: Sequence[str]) -> Answer:
        """Announce up to `MOST_URLS` URLs of the site; whatever comes of it is an answer."""
        origin, key = self._endpoint.origin, self._endpoint.key
        # All URLs are of one host: what is not of the site never gets here.
        body = {
            "host": origin.host,
            "key": key,
            "keyLocation": str(origin.root.join(f"/{key}.txt")),
            "urlList": list(urls),
        }
        try:
            return self._send(json.dumps(body).encode())
        except httpx.TransportError as error:
            return Answer(Verdict.LATER, f"no answer: {type(error).__name__}: {error}")

    def _send(self, body: bytes) -> Answer:
        deadline = time.monotonic() + _WHOLE_SECONDS
        with self._client.stream("POST", self._endpoint.url, content=body) as response:
            said = b""
            for chunk in response.iter_raw():
                said += chunk
                if len(said) > _MOST_ANSWER_BYTES or time.monotonic() > deadline:
                    break
            return self._read(response.status_code, response.headers, said)

    def _read(self, status: int, headers: httpx.Headers, said: bytes) -> Answer:
        detail = f"status {status}{self._quoted(said)}"
        verdict = _VERDICTS.get(status)
        if verdict is None and status >= _SERVER_ERROR:
            verdict = Verdict.LATER
        if verdict:
            return Answer(verdict, detail, retry_after(headers))
        if status == httpx.codes.FORBIDDEN:
            return _forbidden(detail, _error_code(said))
        if "location" in headers:
            to = self._without_key(headers["location"])[:_MOST_SAID]
            detail += f", to {to!r}; set INDEXNOW_ENDPOINT to the right address"
        else:
            detail += "; see that INDEXNOW_ENDPOINT is an endpoint of IndexNow"
        return Answer(Verdict.REFUSED, detail)

    def _without_key(self, text: str) -> str:
        return text.replace(self._endpoint.key, "***")

    def _quoted(self, said: bytes) -> str:
        """What the endpoint said, in one line; without the key, which it may repeat."""
        text = " ".join(self._without_key(said.decode(errors="replace")).split())
        return f" ({text[:_MOST_SAID]})" if text else ""


def _forbidden(detail: str, code: str) -> Answer:
    if code == _PENDING:
        return Answer(Verdict.LATER, detail)
    way_out = _WAYS_OUT.get(code, "see that the endpoint knows INDEXNOW_KEY and can read the key file")
    return Answer(Verdict.REFUSED, f"{detail}; {way_out}")


def _error_code(said: bytes) -> str:
    """Of a body as engines send it: `{"errorCode": "KeyNotFound"}`; some have it one level deeper."""
    try:
        data: Any = json.loads(said)
    except (ValueError, RecursionError):
        return ""
    for place in (data, data.get("error") if isinstance(data, dict) else None):
        if isinstance(place, dict):
            code = place.get("errorCode") or place.get("code")
            if isinstance(code, str):
                return code
    return ""
