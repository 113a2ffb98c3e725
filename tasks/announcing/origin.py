"""The site: what belongs to it, and the one spelling that its URLs are compared in."""

import re

import httpx

#: A `<loc>` must be shorter.
TOO_LONG = 2048

_DEFAULT_PORTS = {"http": 80, "https": 443}
_MOST_SHOWN = 200


class NotOurs(Exception):  # noqa: N818  # an answer about a URL
    """A URL that cannot be announced for this site; the message says why."""


class Origin:
    """Host and port of the site; http and https are the same site, as in IndexNow.

    Attributes:
        root: its address.
        name: `example.com`, or `127.0.0.1:8080` where the port is not the usual one.
        host: the bare host name, in ASCII.
    """

    def __init__(self, site_url: str) -> None:
        self.root = httpx.URL(site_url).join("/")
        self.host = self.root.raw_host.decode()
        self._port = _port(self.root)
        in_url = f"[{self.host}]" if ":" in self.host else self.host
        self.name = in_url if self._port is None else f"{in_url}:{self._port}"

    def owns(self, url: httpx.URL) -> bool:
        """Whether a URL is on this site."""
        return (
            url.scheme in _DEFAULT_PORTS and url.raw_host.decode() == self.host and _port(url) == self._port
        )

    def normalised(self, loc: str) -> str:
        """Return the URL in the spelling in which it is compared and sent.

        Scheme and host in lower case, no default port, no fragment, and percent-encoded where it has to be.

        Raises:
            NotOurs: it is relative, of another host, too long, or no URL at all.
        """
        try:
            url = httpx.URL(loc)
            if not url.is_absolute_url:
                raise NotOurs("it is relative")
            if not self.owns(url):
                raise NotOurs(f"it is not of {self.name}")
        except (httpx.InvalidURL, UnicodeError) as error:
            raise NotOurs(f"it is no URL: {error}") from None
        if url.userinfo:
            raise NotOurs("it names a user")
        text = f"{url.scheme}://{self.name}{url.raw_path.decode()}"
        if len(text) >= TOO_LONG:
            raise NotOurs(f"it has {len(text)} characters, and must have fewer than {TOO_LONG}")
        return text


def _port(url: httpx.URL) -> int | None:
    """The port; None for the usual one of the scheme."""
    return None if url.port == _DEFAULT_PORTS.get(url.scheme) else url.port


def shown(text: str) -> str:
    """Return a text of unknown origin as it can be logged: one line, not too long, without a password."""
    short = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
    return ascii(re.sub(r"//[^@/]*@", "//***@", short))
