"""The job `rewards`: settles every month that is over, once each, oldest first.

A month's pool is split among the contributors whose labels were first to need the answers that were accepted
in it (`tasks.settlement`). One transaction settles one month: the settlement, the answers it counts, payouts,
ledger lines, and the outbox of what is to be paid. The unique key on the month is what makes it once; lease
and fence only save the work. Nothing here sends money.

Whether a month is over is judged by the slot of the schedule that the run was sent for, and not by the clock
on the wall: a retry after midnight settles what was meant. A run by hand has no slot, and is judged by now.
"""

from datetime import UTC, datetime

from celery.utils.log import get_task_logger
from sqlalchemy.exc import OperationalError

from celery_lease import current_lease, leased_task
from tasks import accounts
from tasks.currency import shown
from tasks.desk import Lease
from tasks.fence import claim
from tasks.periods import latest_closed
from tasks.rehearsal import Result
from tasks.settings import settings
from tasks.settlement import Settlement, Terms
from tasks.store import Store

logger = get_task_logger(__name__)

# A month takes well below a second for every ten thousand answers; years of them fit.
_SOFT_LIMIT_SECONDS = 10 * 60
_HARD_LIMIT_SECONDS = 11 * 60
# A database that restarts should not cost a day.
_RETRY_SECONDS = 5 * 60


def _period() -> str:
    """The newest month that a run now can settle; for HTTP answers."""
    return str(latest_closed(datetime.now(UTC)))


@leased_task(
    name="rewards",
    on_lost="abort",
    period=_period,
    autoretry_for=(OperationalError,),
    default_retry_delay=_RETRY_SECONDS,
    soft_time_limit=_SOFT_LIMIT_SECONDS,
    time_limit=_HARD_LIMIT_SECONDS,
)
def reward(*, dry_run: bool = False) -> Result:
    """Settle the months that are over by more than a day; return how many, and how many payouts they have.

    Args:
        dry_run: only show what would be settled; write nothing.
    """
    at, terms = _judged_at(), Terms(settings().rewards_pool, settings().rewards_currency)
    # Opened here and closed here: no connection may cross the fork of the worker's processes.
    with Store.open(settings().database_url, read_only=dry_run) as store:
        return rehearse(store, at, terms) if dry_run else settle_due(store, current_lease(), at, terms)


def _judged_at() -> datetime:
    slot = (reward.request.headers or {}).get("lease_slot")
    now = datetime.now(UTC)
    # A slot that is still to come was sent by a wrong clock, and would settle a month before it is over.
    return now if slot is None else min(datetime.fromtimestamp(int(slot), UTC), now)


def settle_due(store: Store, lease: Lease, at: datetime, terms: Terms) -> Result:
    """Settle every month that is due at a moment, each in a transaction of its own.

    Raises:
        StaleFence: a newer run has claimed; the months that this one settled before are settled.
        LeaseLost: the lease can no longer be trusted, and the job was told to stop then.
        Unbalanced: a month does not add up; it is left unsettled.
    """
    with store.writing(None) as session:
        claim(session, lease)
    done: list[Settlement] = []
    while True:
        lease.check()
        with store.writing(lease) as session:
            months = accounts.due(session, at)
            drafts = accounts.drafted(session, months[:1], terms)
            kept = [draft for draft in drafts if accounts.keep(session, draft, lease.fence)]
        for settlement in kept:
            logger.info("settled %s", _said(settlement))
        done += kept
        if len(months) <= 1:
            return {"worked": len(done), **_counts(done), "backlog": 0}


def rehearse(store: Store, at: datetime, terms: Terms) -> Result:
    """Return what `settle_due` would do; each month is logged."""
    with store.reading() as session:
        drafts = accounts.drafted(session, accounts.due(session, at), terms)
    for settlement in drafts:
        logger.info("would settle %s", _said(settlement))
    counts = {f"would_be_{name}": number for name, number in _counts(drafts).items()}
    return {"dry_run": True, "worked": 0, "due": len(drafts), **counts}


def _counts(settlements: list[Settlement]) -> dict[str, int]:
    return {
        "answers": sum(len(each.answers) for each in settlements),
        "late": sum(adjustment.weight for each in settlements for adjustment in each.adjustments),
        "payouts": sum(share.amount > 0 for each in settlements for share in each.shares),
    }


def _said(settlement: Settlement) -> str:
    total = shown(settlement.pool + settlement.carried, settlement.currency)
    if not settlement.shares:
        return f"{settlement.period}: nobody to pay, {total} carried over"
    return f"{settlement.period}: {total} among {len(settlement.shares)} contributors"
