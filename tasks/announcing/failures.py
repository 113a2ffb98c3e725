"""Why a run of the job failed. Each message names what is wrong and the way out."""

from enum import StrEnum


class Reason(StrEnum):
    """What is wrong with a sitemap."""

    UNREACHABLE = "unreachable"  # no connection, or none that lasted
    TIMEOUT = "timeout"  # a server too slow, or a site too large for one run
    STATUS = "status"  # another one than 200
    HTML = "html"  # a web page where a sitemap should be
    CUT = "cut"  # it ended before its end
    GZIP = "gzip"  # it begins like gzip and is none
    XML = "xml"  # it is not well-formed
    DOCTYPE = "doctype"  # it has a DTD, which a sitemap never needs, and attacks do
    NOT_A_SITEMAP = "not_a_sitemap"  # XML of another kind
    TOO_BIG = "too_big"  # more bytes than a sitemap may have
    TOO_MANY = "too_many"  # more entries, or more files
    TOO_DEEP = "too_deep"  # indexes of indexes of indexes
    LOOP = "loop"  # an index that leads to itself
    FOREIGN = "foreign"  # another host than the site's
    DROP = "drop"  # far fewer URLs than the last time


class SitemapError(Exception):
    """The sitemap could not be read as a whole: nothing was changed and nothing announced."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = Reason(reason)

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


class NotConfigured(Exception):  # noqa: N818  # a state of the installation, which a person ends
    """Nobody said where to announce. The inventory was kept up; nothing in it is lost."""


class KeyFileError(Exception):
    """The site does not show the key as IndexNow wants it: nothing was sent."""


class EndpointRefused(Exception):  # noqa: N818  # named like what the endpoint did
    """The endpoint takes nothing from us until a person changes something."""
