"""The sitemap as bytes, as sitemaps.org describes it: a file, an index of files, and either as gzip."""

import zlib
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape

from tasks.published import Entry

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
_GZIP = 31  # zlib's number for the gzip format with the largest window


def url_set(site: str, pages: Iterable[str], some_at_a_time: Iterable[list[Entry]]) -> Iterator[bytes]:
    """Yield a file of addresses, piece by piece.

    Args:
        site: the root of the site, without a slash at its end.
        pages: paths without a date: `lastmod` is only worth something where it is true.
        some_at_a_time: the answers.
    """
    yield f"{_DECLARATION}<urlset {_NAMESPACE}>\n".encode()
    yield "".join(f"<url><loc>{escape(site + path)}</loc></url>\n" for path in pages).encode()
    for some in some_at_a_time:
        yield "".join(
            f"<url><loc>{escape(site + path)}</loc><lastmod>{decided_at}</lastmod></url>\n"
            for path, decided_at in some
        ).encode()
    yield b"</urlset>\n"


def index(site: str, files: Iterable[Entry]) -> Iterator[bytes]:
    """Yield an index of files, each given by its path and its newest date."""
    yield f"{_DECLARATION}<sitemapindex {_NAMESPACE}>\n".encode()
    for path, decided_at in files:
        lastmod = f"<lastmod>{decided_at}</lastmod>" if decided_at else ""
        yield f"<sitemap><loc>{escape(site + path)}</loc>{lastmod}</sitemap>\n".encode()
    yield b"</sitemapindex>\n"


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield `pieces` as gzip. What breaks off in the middle has no valid end, and cannot pass for a whole."""
    compressor = zlib.compressobj(wbits=_GZIP)
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()
