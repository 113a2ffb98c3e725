"""The inventory: every URL of the site, what it was like in the last whole reading, what was announced of it.

A first reading is the baseline: it is written down, and nothing of it is announced. From then on a URL is due
when its fingerprint is not the one that was announced, and when it was missing in two readings in a row. It
stays due until an endpoint has taken it, in whichever run that is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple, TypeVar

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from tasks.announcing.failures import Reason, SitemapError
from tasks.announcing.moments import moment
from tasks.clock import now
from tasks.fence import Holder, claim
from tasks.store import Store
from tasks.tables import SitemapSiteRow, SitemapUrlRow, UrlState

#: Not more of the URLs of one reading than this may be missing in the next one. Sites seldom lose half of
#: their pages within an hour; broken generators and half-finished deployments lose them all the time.
MOST_DROP_PERCENT = 50

T = TypeVar("T")

_GONE = ""
_MISSING_IS_GONE = 2
# Rows in one statement; both databases take many more values than that.
_ROWS = 1_000
_HOUR_SECONDS = 3_600
# A little less than an hour, so that the run after an hour is not a minute too early.
_SHORTEST_PAUSE_SECONDS = 55 * 60
_LONGEST_PAUSE_SECONDS = 24 * _HOUR_SECONDS
# Of what a server asks for: a mistake there must not silence the site for good.
_LONGEST_RETRY_AFTER_SECONDS = 7 * 24 * _HOUR_SECONDS


class Known(NamedTuple):
    """What is known of a URL."""

    url: str
    fingerprint: str
    announced: str | None
    state: UrlState
    missing: int

    @property
    def is_gone(self) -> bool:
        """Whether the page is taken for removed."""
        return self.fingerprint == _GONE


class Changes(NamedTuple):
    """What a reading changed."""

    baseline: int  # URLs of a first reading
    new: int
    changed: int
    removed: int


def after(known: Known, fingerprint: str | None) -> Known:
    """Return what is known of a URL after a reading.

    Args:
        known: what was known before.
        fingerprint: what the reading says; None if the URL was not in it.
    """
    missing = 0
    if fingerprint is None:
        missing = min(known.missing + 1, _MISSING_IS_GONE)
        if missing < _MISSING_IS_GONE:
            return known._replace(missing=missing)
        fingerprint = _GONE
    if fingerprint == known.announced and (
        known.state is not UrlState.PROVISIONAL or fingerprint == known.fingerprint
    ):
        state = UrlState.ANNOUNCED
    elif fingerprint == known.fingerprint:
        state = known.state
    else:
        state = UrlState.DUE
    return known._replace(fingerprint=fingerprint, state=state, missing=missing)


def _few(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, _ROWS)):
        yield some


def _new(url: str, fingerprint: str) -> Known:
    return Known(url, fingerprint, None, UrlState.DUE, 0)


class Inventory:
    """The inventory of one site, for one run. `Store` says where, `Holder` who writes.

    Every method that writes raises `StaleFence` when a newer run has claimed, and then writes nothing.
    """

    def __init__(self, store: Store, site: str, holder: Holder | None = None) -> None:
        self._store = store
        self._site = site
        self._holder = holder

    def claim(self) -> None:
        """Make this run the only one that may write."""
        if self._holder is not None:
            with self._store.writing(None) as session:
                claim(session, self._holder)

    # --- readings -------------------------------------------------------------------------------------------

    def take(self, pages: Mapping[str, str], *, accept_drop: bool = False) -> Changes:
        """Take a whole reading in, in one transaction.

        Args:
            pages: each URL and its fingerprint.
            accept_drop: take it also if more than `MOST_DROP_PERCENT` of the URLs are missing in it.

        Raises:
            SitemapError: they are, and nothing was changed.
        """
        with self._store.writing(self._holder) as session:
            site = session.get(SitemapSiteRow, self._site)
            if site is None:
                return self._take_baseline(session, pages)
            if not accept_drop:
                self._refuse_drop(session, site.urls, pages)
            site.urls, site.read_at = len(pages), now()
            return self._take_differences(session, pages)

    def compare(self, pages: Mapping[str, str], *, accept_drop: bool = False) -> tuple[bool, Iterator[Known]]:
        """Return whether this would be the first reading, and what would be known of each URL after it.

        Raises:
            SitemapError: as `take`.
        """
        with self._store.reading() as session:
            site = session.get(SitemapSiteRow, self._site)
            if site and not accept_drop:
                self._refuse_drop(session, site.urls, pages)
        return site is None, self._afterwards(pages)

    def _refuse_drop(self, session: Session, before: int, pages: Mapping[str, str]) -> None:
        gone = sum(not known.missing and known.url not in pages for known in self._known(session))
        if gone * 100 > before * MOST_DROP_PERCENT:
            raise SitemapError(
                Reason.DROP,
                f"{gone} of {before} URLs, more than {MOST_DROP_PERCENT} %, are gone at once, which is taken "
                "for a fault of the site; if it is meant, run "
                "`celery -A tasks lease run sitemap --arg accept_drop=true` once",
            )

    def _afterwards(self, pages: Mapping[str, str]) -> Iterator[Known]:
        with self._store.reading() as session:
            for _, then in self._differences(session, pages):
                yield then

    def _take_baseline(self, session: Session, pages: Mapping[str, str]) -> Changes:
        session.add(SitemapSiteRow(site=self._site, urls=len(pages), read_at=now(), rate_limits=0))
        known = (
            Known(url, fingerprint, fingerprint, UrlState.ANNOUNCED, 0) for url, fingerprint in pages.items()
        )
        self._add(session, known)
        return Changes(len(pages), 0, 0, 0)

    def _take_differences(self, session: Session, pages: Mapping[str, str]) -> Changes:
        new = changed = removed = 0
        for pairs in _few(self._differences(session, pages)):
            added = [then for known, then in pairs if known is None]
            other = [then for known, then in pairs if known is not None and then != known]
            self._add(session, added)
            if other:
                session.execute(update(SitemapUrlRow), [self._values(then) for then in other])
            new += len(added)
            for known, then in pairs:
                if known is not None and then.fingerprint != known.fingerprint:
                    removed += then.is_gone
                    changed += not then.is_gone
        return Changes(0, new, changed, removed)

    def _differences(
        self, session: Session, pages: Mapping[str, str]
    ) -> Iterator[tuple[Known | None, Known]]:
        """What was known of each URL, and what is after the reading; the new ones last."""
        left = dict(pages)
        for known in self._known(session):
            yield known, after(known, left.pop(known.url, None))
        for url, fingerprint in left.items():
            yield None, _new(url, fingerprint)

    def _known(self, session: Session) -> Iterator[Known]:
        """All rows, without having all of them in memory."""
        last = ""
        row = SitemapUrlRow
        query = select(row.url, row.fingerprint, row.announced, row.state, row.missing).order_by(row.url)
        while found := session.execute(
            query.where(row.site == self._site, row.url > last).limit(_ROWS)
        ).all():
            for each in found:
                yield Known(each[0], each[1], each[2], UrlState(each[3]), each[4])
            last = found[-1][0]

    def _add(self, session: Session, known: Iterable[Known]) -> None:
        moment_seen = now()
        for rows in _few(known):
            values = [{**self._values(each), "first_seen": moment_seen} for each in rows]
            session.execute(insert(SitemapUrlRow), values)

    def _values(self, known: Known) -> dict[str, object]:
        return {
            **known._asdict(),
            "site": self._site,
            "state": known.state.value,
            "modified_at": moment(known.fingerprint),
        }

    # --- announcements --------------------------------------------------------------------------------------

    def batch(self, state: UrlState, last: str, size: int) -> list[str]:
        """Return up to `size` URLs in that state, those that sort after `last`, in that order."""
        row = SitemapUrlRow
        query = select(row.url).where(row.site == self._site, row.state == state.value, row.url > last)
        with self._store.reading() as session:
            return list(session.scalars(query.order_by(row.url).limit(size)))

    def count(self, state: UrlState) -> int:
        """Return how many URLs are in that state."""
        row = SitemapUrlRow
        query = select(func.count()).where(row.site == self._site, row.state == state.value)
        with self._store.reading() as session:
            return session.scalars(query.select_from(row)).one()

    def announced(self, urls: Sequence[str]) -> None:
        """Write down that an endpoint took these URLs; those of removed pages are forgotten."""
        row = SitemapUrlRow
        with self._store.writing(self._holder) as session:
            for some in _few(urls):
                these = (row.site == self._site, row.url.in_(some))
                session.execute(delete(row).where(*these, row.fingerprint == _GONE))
                taken = {
                    "state": UrlState.ANNOUNCED.value,
                    "announced": row.fingerprint,
                    "announced_at": now(),
                }
                session.execute(update(row).where(*these).values(taken))
            self._pause(session, 0, None)

    def provisional(self, urls: Sequence[str]) -> None:
        """Write down that an endpoint took these URLs, and has yet to check the key."""
        row = SitemapUrlRow
        with self._store.writing(self._holder) as session:
            for some in _few(urls):
                these = (row.site == self._site, row.url.in_(some))
                session.execute(update(row).where(*these).values(state=UrlState.PROVISIONAL.value))
            self._pause(session, 0, None)

    # --- pauses ---------------------------------------------------------------------------------------------

    def paused_until(self) -> str | None:
        """Return the moment before which nothing may be sent; None if something may be."""
        with self._store.reading() as session:
            site = session.get(SitemapSiteRow, self._site)
            until = site.not_before if site else None
        return until if until and until > now() else None

    def pause(self, retry_after_seconds: float | None) -> str:
        """Send nothing for a while, in later runs either, and return until when.

        Args:
            retry_after_seconds: what the endpoint asks for; if it does not say, the pause is an hour, and
                twice as long with every further time in a row, up to a day.
        """
        with self._store.writing(self._holder) as session:
            times = session.get_one(SitemapSiteRow, self._site).rate_limits
            seconds = min(_SHORTEST_PAUSE_SECONDS * 2**times, _LONGEST_PAUSE_SECONDS)
            if retry_after_seconds is not None:
                seconds = int(min(retry_after_seconds, _LONGEST_RETRY_AFTER_SECONDS)) + 1
            until = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")
            self._pause(session, times + 1, until)
            return until

    def _pause(self, session: Session, times: int, until: str | None) -> None:
        site = session.get_one(SitemapSiteRow, self._site)
        site.rate_limits, site.not_before = times, until
