"""Read a site's sitemap as a stranger would: robots.txt, indexes, files; as a whole or not at all."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
from celery.utils.log import get_task_logger

from tasks.announcing.entries import Entry, entries
from tasks.announcing.failures import Reason, SitemapError
from tasks.announcing.fetching import Fetched, Fetcher
from tasks.announcing.origin import NotOurs, Origin, shown

logger = get_task_logger("tasks.sitemap")

#: Files below each other: an index, an index in it, a sitemap in that.
MOST_DEPTH = 3
#: Files in one run.
MOST_FILES = 500
#: URLs in one run. All of them are in memory, 300 bytes each and their own length, and are written in one
#: transaction: under SQLite, up to 6 seconds in which nobody else can write, of the 10 that others wait.
MOST_PAGES = 250_000

_MOST_ROBOTS_BYTES = 524_288
_CLIENT_ERROR = 4
_PERHAPS_LATER = frozenset({408, 425, 429})
# Lines in the log of one run. What there is beyond is only counted.
_MOST_DROPPED_LINES = 1_000


@dataclass
class Reading:
    """A whole sitemap.

    Attributes:
        pages: each URL in its normal spelling, and the fingerprint of its entry.
        dropped: how many entries cannot be announced; each is one line in the log.
        files: how many files it was in.
    """

    pages: dict[str, str] = field(default_factory=dict)
    dropped: int = 0
    files: int = 0


def read_sitemap(origin: Origin, fetcher: Fetcher) -> Reading:
    """Read what the site's robots.txt names as its sitemaps, or else its /sitemap.xml.

    Raises:
        SitemapError: something of it could not be read; a part is never returned as the whole.
    """
    walk = _Walk(origin, fetcher)
    for url in _roots(origin, fetcher):
        walk.file(url, ())
    reading = walk.reading
    if reading.dropped and not reading.pages:
        raise SitemapError(
            Reason.FOREIGN,
            f"none of its {reading.dropped} URLs can be announced for {origin.name}; is SITE_URL right?",
        )
    return reading


class _Walk:
    def __init__(self, origin: Origin, fetcher: Fetcher) -> None:
        self.reading = Reading()
        self._origin = origin
        self._fetcher = fetcher
        self._visited: set[str] = set()

    def file(self, url: httpx.URL, above: tuple[str, ...]) -> None:
        """Read one file, and what is below it.

        Args:
            url: where it is said to be.
            above: the files that lead to it, by where they were in the end.
        """
        if len(above) >= MOST_DEPTH:
            raise SitemapError(Reason.TOO_DEEP, f"{url}: more than {MOST_DEPTH} files below each other")
        _refuse_loop(url, above)
        if str(url) in self._visited:
            return
        self._count_file(url)
        with self._fetcher.get(url) as fetched:
            final = str(fetched.url)
            _refuse_loop(fetched.url, above)
            if final in self._visited:  # named twice, which is no harm: by robots.txt and in an index
                return
            self._visited |= {str(url), final}
            children = self._take(fetched)
        for child in children:
            self.file(child, (*above, final))

    def _count_file(self, url: httpx.URL) -> None:
        self.reading.files += 1
        if self.reading.files > MOST_FILES:
            raise SitemapError(Reason.TOO_MANY, f"{url}: more than {MOST_FILES} files")

    def _take(self, fetched: Fetched) -> list[httpx.URL]:
        """Take the pages of a file, and return the files that it names."""
        url = str(fetched.url)
        if fetched.status != httpx.codes.OK:
            raise SitemapError(Reason.STATUS, f"{url}: status {fetched.status}")
        children = []
        for entry in entries(fetched.content(), url):
            if entry.kind == "sitemap":
                children.append(_joined(fetched.url, entry.loc))
            else:
                self._take_page(entry, url)
        return children

    def _take_page(self, entry: Entry, file: str) -> None:
        try:
            url = self._origin.normalised(entry.loc)
        except NotOurs as why:
            self.reading.dropped += 1
            if self.reading.dropped <= _MOST_DROPPED_LINES:
                logger.warning("dropped: %s, in %s: %s", shown(entry.loc), file, why)
            return
        self.reading.pages.setdefault(url, entry.fingerprint)
        if len(self.reading.pages) > MOST_PAGES:
            raise SitemapError(Reason.TOO_MANY, f"{file}: more than {MOST_PAGES} URLs in the whole sitemap")


def _refuse_loop(url: httpx.URL, above: tuple[str, ...]) -> None:
    if str(url) in above:
        raise SitemapError(Reason.LOOP, f"{above[-1]} leads back to {url}; an index must not name itself")


def _roots(origin: Origin, fetcher: Fetcher) -> list[httpx.URL]:
    robots = origin.root.join("/robots.txt")
    with fetcher.get(robots) as fetched:
        if fetched.status == httpx.codes.OK:
            named = list(_named(fetched.first(_MOST_ROBOTS_BYTES), fetched.url))
        elif fetched.status // 100 == _CLIENT_ERROR and fetched.status not in _PERHAPS_LATER:
            named = []
        else:
            # Whether it names another sitemap than the usual one is not known.
            raise SitemapError(Reason.STATUS, f"{robots}: status {fetched.status}")
    return named or [origin.root.join("/sitemap.xml")]


def _named(robots: bytes, url: httpx.URL) -> Iterator[httpx.URL]:
    """The sitemaps that a robots.txt names; for whichever crawler it does."""
    for line in robots.decode("utf-8-sig", errors="replace").splitlines():
        name, _, value = line.partition("#")[0].partition(":")
        if name.strip().lower() == "sitemap" and value.strip():
            yield _joined(url, value.strip())


def _joined(base: httpx.URL, loc: str) -> httpx.URL:
    """The URL of a file; without its fragment, which no server sees."""
    try:
        if loc:
            return base.join(loc).copy_with(fragment=None)
    except (httpx.InvalidURL, UnicodeError):
        pass
    raise SitemapError(Reason.NOT_A_SITEMAP, f"{base}: it names a file by {shown(loc)}, which is no URL")
