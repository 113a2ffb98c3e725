"""The job `sitemap`: reads the site's sitemap as a stranger would, and announces by IndexNow what changed.

A reading counts as a whole or not at all: whatever is wrong with the sitemap ends the run with an error that
names it, and changes nothing. Otherwise a file that was cut would look like many removed pages.
"""

import logging

from celery.utils.log import get_task_logger

from celery_lease import current_lease, leased_task
from tasks.announcing.failures import NotConfigured
from tasks.announcing.fetching import Fetcher
from tasks.announcing.indexnow import Endpoint, IndexNow
from tasks.announcing.inventory import Inventory
from tasks.announcing.keyfile import check_key_file
from tasks.announcing.origin import Origin, shown
from tasks.announcing.reading import Reading, read_sitemap
from tasks.announcing.sending import Sending
from tasks.desk import Lease
from tasks.rehearsal import Result
from tasks.settings import Settings, settings
from tasks.store import Store
from tasks.tables import UrlState

logger = get_task_logger(__name__)

# Together with the last answer that is waited for, these end before the limits, which only end what hangs.
_READING_SECONDS = 4 * 60
_KEY_FILE_SECONDS = 20
_SENDING_SECONDS = 6 * 60
_SOFT_LIMIT_SECONDS = 12 * 60
_HARD_LIMIT_SECONDS = 13 * 60

# It logs the address of every request, and that of the key file is the key.
logging.getLogger("httpx").setLevel(logging.WARNING)


# A run that lost its lease stops: what it sent may be sent once more by the next one, and nothing else.
@leased_task(
    name="sitemap", on_lost="abort", soft_time_limit=_SOFT_LIMIT_SECONDS, time_limit=_HARD_LIMIT_SECONDS
)
def announce(*, dry_run: bool = False, accept_drop: bool = False) -> Result:
    """Announce what changed; return how many URLs were (`worked`), how many are left, and what was read.

    Args:
        dry_run: only read and show what would be announced; send and write nothing.
        accept_drop: believe the sitemap also if most of the known URLs are missing in it.

    Raises:
        SitemapError: the sitemap could not be read as a whole; nothing was changed.
        NotConfigured: `INDEXNOW_ENDPOINT` is not set; the inventory was kept up.
        KeyFileError: the site does not show the key; nothing was sent.
        EndpointRefused: the endpoint does not take something until a person changes it.
    """
    lease = current_lease()
    with Store.open(settings().database_url, read_only=dry_run) as store:
        if dry_run:
            return rehearse_announcing(store, settings(), lease, accept_drop=accept_drop)
        return run_announcing(store, settings(), lease, accept_drop=accept_drop)


def run_announcing(store: Store, given: Settings, lease: Lease, *, accept_drop: bool = False) -> Result:
    """Read, take the reading in, send what is due.

    Raises:
        StaleFence: a newer run has claimed; what this one wrote before stays, and is sound.
        LeaseLost: the lease can no longer be trusted.
        Exception: as the job.
    """
    origin = Origin(given.site_url)
    inventory = Inventory(store, origin.name, lease)
    inventory.claim()
    reading = _read(origin, lease)
    changes = inventory.take(reading.pages, accept_drop=accept_drop)
    if not given.indexnow_endpoint:
        waiting = inventory.count(UrlState.DUE)
        raise NotConfigured(
            f"INDEXNOW_ENDPOINT is not set, so nothing can be announced, and {waiting} URLs are waiting; set "
            "it to https://api.indexnow.org/indexnow, or to the address of a receiver of yours"
        )
    announced, stopped = _send(inventory, given, origin, lease)
    counts = {
        "worked": announced,
        "backlog": inventory.count(UrlState.DUE),
        **_read_counts(reading),
        **changes._asdict(),
        "provisional": inventory.count(UrlState.PROVISIONAL),
    }
    return counts | ({"stopped": stopped} if stopped else {})


def rehearse_announcing(store: Store, given: Settings, lease: Lease, *, accept_drop: bool = False) -> Result:
    """Return what a run would announce; each URL is logged. Nothing is sent or written.

    Raises:
        SitemapError: as the job.
    """
    origin = Origin(given.site_url)
    reading = _read(origin, lease)
    first, afterwards = Inventory(store, origin.name).compare(reading.pages, accept_drop=accept_drop)
    found = {"would_announce": 0, "would_be_removed": 0, "would_be_baseline": 0}
    for known in afterwards:
        if first:
            found["would_be_baseline"] += 1
        elif known.state is UrlState.DUE:
            found["would_announce"] += 1
            found["would_be_removed"] += known.is_gone
            logger.info("would announce %s%s", shown(known.url), ", which is gone" if known.is_gone else "")
    return {"dry_run": True, "worked": 0, **_read_counts(reading), **found}


def _read(origin: Origin, lease: Lease) -> Reading:
    with Fetcher(origin, _READING_SECONDS, lease.check) as fetcher:
        return read_sitemap(origin, fetcher)


def _read_counts(reading: Reading) -> dict[str, int]:
    return {"urls": len(reading.pages), "files": reading.files, "dropped": reading.dropped}


def _send(inventory: Inventory, given: Settings, origin: Origin, lease: Lease) -> tuple[int, str]:
    """How many URLs were announced, and why it stopped before the last one."""
    until = inventory.paused_until()
    if until:
        return 0, f"the endpoint wants a pause until {until}"
    if not inventory.count(UrlState.DUE) and not inventory.count(UrlState.PROVISIONAL):
        return 0, ""
    with Fetcher(origin, _KEY_FILE_SECONDS, lease.check) as fetcher:
        check_key_file(origin, given.indexnow_key, fetcher)
    with IndexNow(Endpoint(given.indexnow_endpoint, origin, given.indexnow_key)) as indexnow:
        sending = Sending(inventory, indexnow, lease, _SENDING_SECONDS)
        sending.run()
        return sending.announced, sending.stopped
