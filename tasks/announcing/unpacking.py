"""gzip, recognised by its first two bytes alone: names and headers are wrong about it either way."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from tasks.announcing.failures import Reason, SitemapError

#: What a sitemap may have, unpacked: 50 MiB.
MOST_BYTES = 52_428_800

_MAGIC = b"\x1f\x8b"
_WITH_GZIP_HEADER = 31  # what zlib calls "window bits"
_PIECE = 65_536
# A packed file that the server packs once more on its way.
_MOST_LAYERS = 2


def unpacked(chunks: Iterable[bytes], url: str) -> Iterator[bytes]:
    """Yield what is inside, in small pieces, and the bytes themselves where they are not packed.

    Raises:
        SitemapError: more than `MOST_BYTES`, packed or not; cut; or broken.
    """
    data = _bounded(chunks, url)
    for _ in range(_MOST_LAYERS):
        data = _bounded(_layer(data, url), url)
    return data


def _bounded(chunks: Iterable[bytes], url: str) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > MOST_BYTES:
            raise SitemapError(
                Reason.TOO_BIG, f"{url}: more than {MOST_BYTES} bytes; split it into several, in an index"
            )
        if chunk:
            yield chunk


def _layer(chunks: Iterable[bytes], url: str) -> Iterator[bytes]:
    rest = iter(chunks)
    head = b""
    while len(head) < len(_MAGIC) and (chunk := next(rest, b"")):
        head += chunk
    whole = chain([head], rest)
    try:
        yield from _gunzipped(whole, url) if head.startswith(_MAGIC) else whole
    except zlib.error as error:
        raise SitemapError(Reason.GZIP, f"{url}: broken gzip: {error}") from None


def _gunzipped(chunks: Iterable[bytes], url: str) -> Iterator[bytes]:
    """A gzip file is any number of members, one after the other, and maybe zeros after the last."""
    member = zlib.decompressobj(_WITH_GZIP_HEADER)
    begun = False
    for chunk in chunks:
        data = chunk
        while data:
            if not begun:
                data = data.lstrip(b"\0")
                if not data:
                    break
            piece = member.decompress(data, _PIECE)
            begun = True
            yield piece
            data = member.unconsumed_tail
            if member.eof:
                data = member.unused_data
                member, begun = zlib.decompressobj(_WITH_GZIP_HEADER), False
    # What zlib still holds back when it has eaten everything: at most a few hundred bytes.
    yield member.flush()
    if begun and not member.eof:
        raise SitemapError(Reason.CUT, f"{url}: the gzip file ends before its end; it is not whole yet")
