"""The key file on the site, looked at as an engine would: first ours has to be right."""

import httpx

from tasks.announcing.failures import KeyFileError, SitemapError
from tasks.announcing.fetching import Fetcher
from tasks.announcing.origin import Origin

# The longest key, a byte order mark and line ends; a web page is longer.
_MOST_BYTES = 200
_WAY_OUT = "the site must show a text file with the key in it and nothing else; INDEXNOW_KEY is the key"


def check_key_file(origin: Origin, key: str, fetcher: Fetcher) -> None:
    """Return if the site shows the key as IndexNow wants it.

    Raises:
        KeyFileError: what is wrong with it. The key is not in the message.
    """
    shown = f"{origin.root}<INDEXNOW_KEY>.txt"
    url = origin.root.join(f"/{key}.txt")
    try:
        with fetcher.get(url) as fetched:
            if fetched.url != url:
                raise KeyFileError(f"{shown}: it redirects, which engines need not follow; {_WAY_OUT}")
            if fetched.status != httpx.codes.OK:
                raise KeyFileError(f"{shown}: status {fetched.status}; {_WAY_OUT}")
            content = fetched.first(_MOST_BYTES)
    except SitemapError as error:
        raise KeyFileError(f"{shown}: {str(error).replace(key, '***')}; {_WAY_OUT}") from None
    if content.lstrip().startswith(b"<"):
        raise KeyFileError(f"{shown}: a web page; {_WAY_OUT}")
    if content.decode("utf-8-sig", errors="replace").strip() != key:
        raise KeyFileError(f"{shown}: it holds something else than the key; {_WAY_OUT}")
