"""Sitemaps, and runs of the job over a site and an endpoint, for tests."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tasks.announcing.fetching import Fetcher
from tasks.announcing.origin import Origin
from tasks.announcing.reading import Reading, read_sitemap
from tasks.rehearsal import Result
from tasks.settings import Settings
from tasks.sitemap import rehearse_announcing, run_announcing
from tasks.store import Store
from tests.app.passes import FakeLease
from tests.support.web_server import Request, Response, WebServer

KEY = "0123456789abcdef"
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


def urlset(urls: Mapping[str, str | None] | list[str]) -> bytes:
    """A sitemap of URLs and their `<lastmod>`."""
    each = dict.fromkeys(urls) if isinstance(urls, list) else urls
    entries = "".join(
        f"<url><loc>{loc}</loc>{'' if lastmod is None else f'<lastmod>{lastmod}</lastmod>'}</url>\n"
        for loc, lastmod in each.items()
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{NAMESPACE}">{entries}</urlset>'.encode()


def index(*locs: str) -> bytes:
    """A sitemap index."""
    entries = "".join(f"<sitemap><loc>{loc}</loc></sitemap>" for loc in locs)
    return f'<sitemapindex xmlns="{NAMESPACE}">{entries}</sitemapindex>'.encode()


def read(server: WebServer, seconds: float = 30, go_on: Callable[[], object] = lambda: None) -> Reading:
    """Read the site's sitemap."""
    origin = Origin(server.url)
    with Fetcher(origin, seconds, go_on) as fetcher:
        return read_sitemap(origin, fetcher)


class Runs:
    """Runs of the job over one store; each has a new fence.

    The site has its key file; the endpoint is a server of its own, and accepts everything at first.
    """

    def __init__(self, store: Store, site: WebServer, endpoint: WebServer) -> None:
        self.store = store
        self.site = site
        self.endpoint = endpoint
        self.fence = 0
        site.pages[f"/{KEY}.txt"] = KEY.encode()
        self.answer()

    def answer(self, *statuses: int, **response: Any) -> None:
        """Let the endpoint answer so, one after the other, the last one for ever; 200 without any."""
        answers = [Response(status=status, **response) for status in statuses] or [Response()]

        def behave(_: Request) -> Response:
            return answers.pop(0) if len(answers) > 1 else answers[0]

        self.endpoint.behave = behave

    def serve(self, *names: str, **lastmods: str | None) -> None:
        """Let the sitemap have these pages: `/name`."""
        each = {**dict.fromkeys(names), **lastmods}
        self.site.pages["/sitemap.xml"] = urlset({f"{self.site.url}/{name}": each[name] for name in each})

    def settings(self, **changes: Any) -> Settings:
        """What the job is given."""
        given = {"site_url": self.site.url, "indexnow_endpoint": self.endpoint.url, "indexnow_key": KEY}
        return Settings().model_copy(update={**given, **changes})

    def run(self, *, accept_drop: bool = False, lease: FakeLease | None = None, **settings: Any) -> Result:
        """Run once."""
        self.fence += 1
        holder = lease or FakeLease(self.fence, name="sitemap")
        return run_announcing(self.store, self.settings(**settings), holder, accept_drop=accept_drop)

    def rehearse(self, store: Store) -> Result:
        """Run dry, with a store that may only be read."""
        return rehearse_announcing(store, self.settings(), FakeLease(name="sitemap"))

    def sent(self) -> list[list[str]]:
        """The paths in each announcement so far, without the slash; and forget them."""
        posts = [[url.rpartition("/")[2] for url in post.urls] for post in self.endpoint.posts]
        self.endpoint.requests.clear()
        return posts


@contextmanager
def site_with_key() -> Iterator[WebServer]:
    """A site that shows its key and nothing else."""
    server = WebServer()
    server.pages[f"/{KEY}.txt"] = KEY.encode()
    yield server
    server.close()
