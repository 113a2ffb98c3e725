"""HTTP as the job needs it: only to the site, a few redirects there, bounded in time, streamed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import httpx

from tasks.announcing.failures import Reason, SitemapError
from tasks.announcing.origin import Origin
from tasks.announcing.unpacking import unpacked

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 15.0
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Fetched:
    """A response under way.

    Attributes:
        url: where it came from in the end, after redirects.
        status: of HTTP.
    """

    def __init__(self, response: httpx.Response, check: Callable[[], None]) -> None:
        self.url = response.url
        self.status = response.status_code
        self._response = response
        self._check = check

    def content(self) -> Iterator[bytes]:
        """Yield the body piece by piece, unpacked where it is packed.

        Raises:
            SitemapError: it is too big, cut or broken; or time is up.
        """
        return unpacked(self._sent(), str(self.url))

    def first(self, size: int) -> bytes:
        """Return the first `size` bytes of the content, or all of it."""
        content = b""
        for piece in self.content():
            content += piece
            if len(content) >= size:
                break
        return content[:size]

    def _sent(self) -> Iterator[bytes]:
        # Raw: the client's own unpacking has no bounds, and believes the headers.
        for chunk in self._response.iter_raw():
            self._check()
            yield chunk


class Fetcher:
    """Fetches from one site, and from nowhere else, for a number of seconds in all.

    Args:
        origin: the site.
        seconds: for everything together.
        go_on: called between pieces; raises what is to end the run.
    """

    def __init__(self, origin: Origin, seconds: float, go_on: Callable[[], object]) -> None:
        self._origin = origin
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._go_on = go_on
        self._client = httpx.Client(
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
            headers={"Accept-Encoding": "gzip", "User-Agent": "celery-lease-sitemap/1"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @contextmanager
    def get(self, url: httpx.URL) -> Iterator[Fetched]:
        """Fetch a URL; redirects are followed as long as they stay on the site.

        Raises:
            SitemapError: it is, or leads to, another host; the server does not answer; time is up.
        """
        named = url
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                self._check(url)
                with self._client.stream("GET", url) as response:
                    if response.status_code not in _REDIRECTS:
                        yield Fetched(response, lambda: self._check(named))
                        return
                    url = _location(response)
            raise SitemapError(Reason.LOOP, f"{named}: more than {_MOST_REDIRECTS} redirects")
        except httpx.TimeoutException as error:
            raise SitemapError(Reason.TIMEOUT, f"{named}: no answer in time ({error})") from None
        except httpx.RemoteProtocolError as error:
            raise SitemapError(Reason.CUT, f"{named}: {error}") from None
        except httpx.TransportError as error:
            raise SitemapError(Reason.UNREACHABLE, f"{named}: {error}; is SITE_URL right?") from None

    def _check(self, url: httpx.URL) -> None:
        self._go_on()
        if time.monotonic() > self._deadline:
            raise SitemapError(Reason.TIMEOUT, f"{url}: reading took more than {self._seconds:g} s")
        if not self._origin.owns(url):
            raise SitemapError(
                Reason.FOREIGN, f"{url} is not of {self._origin.name}, and only that site is read"
            )


def _location(response: httpx.Response) -> httpx.URL:
    try:
        return response.url.join(response.headers.get("location", ""))
    except (httpx.InvalidURL, UnicodeError) as error:
        raise SitemapError(Reason.FOREIGN, f"{response.url}: redirects to no URL: {error}") from None
