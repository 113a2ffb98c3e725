"""Sitemap XML, in one pass and in little memory, as tolerant as crawlers are and as strict as attacks need.

Tags count by their local name, in the namespaces that sitemaps have used or in the one of the root element;
those of extensions (images, news, translations) do not. A DTD is refused where it begins, before anything in
it can be declared, expanded or fetched.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple
from xml.parsers import expat

from tasks.announcing.failures import Reason, SitemapError

#: Entries that one file may have.
MOST_ENTRIES = 50_000

_NAMESPACES = frozenset(
    {
        "",
        "http://www.sitemaps.org/schemas/sitemap/0.9",
        "https://www.sitemaps.org/schemas/sitemap/0.9",
        "http://www.google.com/schemas/sitemap/0.84",
        "https://www.google.com/schemas/sitemap/0.84",
    }
)
_ROOTS = frozenset({"urlset", "sitemapindex"})
_ENTRIES = frozenset({"url", "sitemap"})
# Of one tag, comment or text. Expat keeps an unfinished one in memory, and before version 2.6 it also reads
# that again from its beginning with every piece that it is fed.
_MOST_OF_ONE = 1_000_000
# A file of 50,000 entries with 20 tags each, twice over. Each tag costs about a microsecond.
_MOST_TAGS = 2_000_000
_MOST_DEPTH = 100
# Of tags and attributes. Expat keeps each name that it has seen.
_MOST_NAMES = 1_000
# What a date may have. Whatever is longer is a fingerprint by its hash.
_MOST_DATE = 64


# The last two are about the encoding that the file says it has.
_NOT_XML = (expat.ExpatError, ValueError, LookupError)


class Entry(NamedTuple):
    """One `<url>` or `<sitemap>`."""

    kind: str  # "url" or "sitemap"
    loc: str
    # What tells that the page changed: its `<lastmod>` as it is written, or a hash of the rest of the entry.
    fingerprint: str


def entries(data: Iterable[bytes], url: str) -> Iterator[Entry]:
    """Yield the entries of a file in their order.

    What was yielded before an error is of a file that is not whole.

    Raises:
        SitemapError: it is no sitemap, not well-formed, cut, has a DTD or too many entries.
    """
    handlers = _Handlers(url)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = handlers.doctype
    parser.StartElementHandler = handlers.start
    parser.EndElementHandler = handlers.end
    parser.CharacterDataHandler = handlers.text
    fed = 0
    try:
        for piece in _without_blanks(data):
            parser.Parse(piece, False)  # noqa: FBT003  # expat knows no names for its arguments
            fed += len(piece)
            if fed - parser.CurrentByteIndex > _MOST_OF_ONE:
                raise SitemapError(Reason.TOO_BIG, f"{url}: one tag of more than {_MOST_OF_ONE} bytes")
            if len(parser.intern) > _MOST_NAMES:
                raise SitemapError(Reason.NOT_A_SITEMAP, f"{url}: more than {_MOST_NAMES} different names")
            yield from handlers.taken()
    except _NOT_XML as error:
        raise SitemapError(Reason.XML, f"{url}: not well-formed: {error}") from None
    try:
        parser.Parse(b"", True)  # noqa: FBT003
    except _NOT_XML as error:
        raise SitemapError(Reason.CUT, f"{url}: it ends before its end: {error}") from None
    # Since version 2.6, expat may take its time with what it has been fed.
    yield from handlers.taken()


class _Handlers:
    def __init__(self, url: str) -> None:
        self._url = url
        self._open: list[str] = []  # the local names of the open tags; "" for those of extensions
        self._root = ""
        self._count = self._tags = 0
        self._ready: list[Entry] = []
        self._text: list[str] = []
        self._length = 0
        self._loc = self._lastmod = ""
        self._rest = sha256()

    def taken(self) -> list[Entry]:
        """The entries that have ended since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def doctype(self, name: str, *_: Any) -> None:
        if name.lower() == "html":
            raise SitemapError(Reason.HTML, f"{self._url}: a web page, where a sitemap should be")
        raise SitemapError(Reason.DOCTYPE, f"{self._url}: it has a DTD, which no sitemap needs; leave it out")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        namespace, _, name = tag.rpartition(" ")
        if not self._open:
            self._check_root(name)
            self._root = namespace
        self._open.append(name if namespace in _NAMESPACES or namespace == self._root else "")
        self._bound()
        self._new_text()
        if self._open[-1] in _ENTRIES:
            self._begin()
        self._note(name, *attributes.values())

    def text(self, data: str) -> None:
        self._text.append(data)
        self._length += len(data)
        if self._length > _MOST_OF_ONE:
            raise SitemapError(Reason.TOO_BIG, f"{self._url}: a text of more than {_MOST_OF_ONE} characters")

    def end(self, _tag: str) -> None:
        name = self._open.pop()
        text = "".join(self._text).strip()
        self._new_text()
        in_entry = bool(self._open) and self._open[-1] in _ENTRIES
        if name == "loc" and in_entry:
            self._loc = self._loc or text
        elif name == "lastmod" and in_entry:
            self._lastmod = self._lastmod or text
        else:
            self._note(text)
        if name in _ENTRIES:
            self._ready.append(Entry(name, self._loc, self._fingerprint()))

    def _new_text(self) -> None:
        self._text.clear()
        self._length = 0

    def _bound(self) -> None:
        self._tags += 1
        if self._tags > _MOST_TAGS:
            raise SitemapError(Reason.TOO_MANY, f"{self._url}: more than {_MOST_TAGS} tags")
        if len(self._open) > _MOST_DEPTH:
            raise SitemapError(
                Reason.NOT_A_SITEMAP, f"{self._url}: more than {_MOST_DEPTH} tags inside each other"
            )

    def _check_root(self, name: str) -> None:
        if name.lower() == "html":
            raise SitemapError(Reason.HTML, f"{self._url}: a web page, where a sitemap should be")
        if name not in _ROOTS:
            raise SitemapError(Reason.NOT_A_SITEMAP, f"{self._url}: its root is <{name}>, not <urlset>")

    def _begin(self) -> None:
        self._count += 1
        if self._count > MOST_ENTRIES:
            raise SitemapError(
                Reason.TOO_MANY,
                f"{self._url}: more than {MOST_ENTRIES} entries; split it into several, in an index",
            )
        self._loc = self._lastmod = ""
        self._rest = sha256()

    def _note(self, *parts: str) -> None:
        for part in parts:
            self._rest.update(part.encode(errors="replace") + b"\0")

    def _fingerprint(self) -> str:
        if not self._lastmod:
            return f"sha256:{self._rest.hexdigest()}"
        if len(self._lastmod) > _MOST_DATE:
            return f"sha256:{sha256(self._lastmod.encode(errors='replace')).hexdigest()}"
        return self._lastmod


def _without_blanks(data: Iterable[bytes]) -> Iterator[bytes]:
    """Drop what comes before the first `<`: many sites print an empty line there, and XML allows none."""
    begun = False
    for chunk in data:
        rest = chunk if begun else chunk.lstrip(b"\xef\xbb\xbf \t\r\n")
        begun = begun or bool(rest)
        if rest:
            yield rest
