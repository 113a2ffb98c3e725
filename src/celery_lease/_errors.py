"""What can go wrong, as one tree.

    Exception
    ├── LeaseError              something about leases is wrong: a setting, a name, a call
    │   ├── LeaseLost           another owner was seen, or the lease can no longer be trusted
    │   └── StoreUnavailable    private: the lease store did not answer; users see Skipped instead
    └── celery.exceptions.Ignore
        └── Skipped             a deliberate non-run; not an error, and not a success

"Held by somebody else" and "cannot tell" are both a `Skipped`, with different reasons, because in
both cases the body did not run. redis-py's own exceptions leave the library only as `__cause__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from celery.exceptions import Ignore

if TYPE_CHECKING:
    from collections.abc import Mapping

Reason = Literal["locked", "lock_unavailable", "already_done"]


class LeaseError(Exception):
    """Something about leases is wrong; the message names the field, the value and the way out."""


class LeaseLost(LeaseError):  # noqa: N818 - what happened, in the vocabulary's own word
    """The lease is no longer this run's to trust.

    Raised by `Lease.check` under `on_lost="abort"`. Raise it, or a subclass, from a body that found
    out for itself (a fenced write was refused): the run is then recorded as `lost`.
    """


class StoreUnavailable(LeaseError):  # noqa: N818 - as above
    """The lease store did not answer within its bound, or answered with an error."""


class Skipped(Ignore):
    """A deliberate non-run: the body was never entered.

    Celery state `SKIPPED`. It crosses the result backend as itself, so `AsyncResult.get()` in another
    process raises it with the same attributes.

    Attributes:
        reason: `locked` (a live run holds the lease), `lock_unavailable` (the lease store cannot
            answer) or `already_done` (this slot of the schedule has been done).
        name: the lease's name.
        holder: who holds it, for people: `task_id`, `worker`, `host`, `pid`, `since` and `renewed`
            (ISO 8601, UTC), `expires_in` (seconds, absent when the key has no expiry). Empty when
            unknown. Never holds the token.
        detail: one sentence more, such as why the store could not answer. Free of secrets.
    """

    def __init__(
        self,
        reason: Reason,
        name: str = "",
        holder: Mapping[str, Any] | None = None,
        detail: str = "",
    ) -> None:
        self.reason = reason
        self.name = name
        self.holder = dict(holder or {})
        self.detail = detail
        # The very arguments of the constructor: result backends rebuild an exception from them.
        super().__init__(reason, name, self.holder, detail)

    def __str__(self) -> str:
        said = f"{self.name}: {self.reason}" if self.name else self.reason
        if self.reason == "locked":
            said += f", held by {describe_holder(self.holder)}"
        return f"{said} ({self.detail})" if self.detail else said

    def __repr__(self) -> str:
        return f"Skipped({self})"


def describe_holder(holder: Mapping[str, Any]) -> str:
    """The holder in one clause, with since when, and when the lease ends unless it is renewed."""
    if not holder:
        return "an unknown holder (no lease of this library at that key)"
    who = f"task {holder['task_id']}" if holder.get("task_id") else "a run outside Celery"
    said = f"{who} on {holder.get('worker') or holder.get('host', '?')} (pid {holder.get('pid', '?')})"
    if holder.get("since"):
        said += f" since {holder['since']}"
    if "expires_in" in holder:
        said += f"; the lease ends in {holder['expires_in']:.0f} s unless renewed"
    return said


# The public path, so that a stored `exc_module` still resolves after the private module moves.
for _public in (LeaseError, LeaseLost, Skipped):
    _public.__module__ = "celery_lease"
