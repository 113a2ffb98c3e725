"""The fence: what makes the writes of a run that lost its lease harmless.

Every grant of a lease has a fence that is higher than all before. A run claims its fence in SQL when it
starts, and every writing transaction passes it first: with a lower fence than the one stored nothing is
written and `StaleFence` is raised. Two overlapping runs may do work twice; they cannot corrupt anything.
"""

from typing import Protocol

from sqlalchemy import and_, or_, update
from sqlalchemy.orm import Session

from celery_lease import LeaseLost
from tasks.database import insert_once
from tasks.tables import FenceRow


class StaleFence(LeaseLost):
    """A newer run has written: this run's lease was lost, and nothing of this transaction is kept."""


class Holder(Protocol):
    """What the fence needs to know of a lease: its name, its fence, its token."""

    @property
    def name(self) -> str:
        """The job, which is the resource that the fence guards."""

    @property
    def fence(self) -> int:
        """Grows with every grant of that name."""

    @property
    def token(self) -> str:
        """Tells two grants with the same fence apart, as a failed-over lease store may hand out."""


def claim(session: Session, holder: Holder) -> None:
    """Make `holder` the only run that may write; the runs before it are refused from here on.

    Raises:
        StaleFence: a newer run has claimed already.
    """
    # Of two first runs at once, the second waits here for the first to commit and then has a row to compare.
    insert_once(session, FenceRow, {"resource": holder.name, "fence": holder.fence, "token": holder.token})
    pass_fence(session, holder)


def pass_fence(session: Session, holder: Holder) -> None:
    """Go on only as the newest run of this job; first in every writing transaction.

    The UPDATE takes the row's lock and keeps it until the commit, so that no newer run can slip in between.
    One that waits for the lock looks at the row again afterwards, as PostgreSQL does under READ COMMITTED;
    SQLite lets only one transaction write at all. `fence <= own` without the token would let two runs pass
    that a failed-over lease store gave the same fence.

    Raises:
        StaleFence: a newer run has claimed.
    """
    newest = or_(
        FenceRow.fence < holder.fence, and_(FenceRow.fence == holder.fence, FenceRow.token == holder.token)
    )
    passed = session.connection().execute(
        update(FenceRow)
        .where(FenceRow.resource == holder.name, newest)
        .values(fence=holder.fence, token=holder.token)
    )
    if passed.rowcount != 1:
        raise StaleFence(
            f"{holder.name}: fence {holder.fence} is stale, a newer run writes; nothing was written"
        )
