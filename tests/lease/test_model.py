"""The scripts against a model of them: any order of calls, lost replies, expiries and losses of data."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from celery_lease._store import Grant
from tests.support.leases import Job

if TYPE_CHECKING:
    from celery_lease._store import Claim

OUTCOMES = ("ran", "failed", "retried")
_numbers = itertools.count()


@dataclass(eq=False)
class Run:
    """One claim, and what the model expects of it."""

    claim: Claim
    grant: Grant | None = None
    withdrawn_in: Model | None = None
    closed: str | None = None
    closed_in: Model | None = None

    @property
    def fence(self) -> int:
        assert self.grant is not None
        return self.grant.fence


@dataclass(eq=False)
class Model:
    """What the store is expected to hold for one name."""

    owner: Run | None = None
    last_fence: int = 0
    open: Run | None = None
    records: list[tuple[str, int]] = field(default_factory=list)

    def close(self, run: Run, outcome: str) -> None:
        run.closed, run.closed_in = outcome, self
        self.records.append((outcome, run.fence))
        if self.owner is run:
            self.owner = None
        if self.open is run:
            self.open = None


class Scripts(RuleBasedStateMachine):
    """Every call may be made twice: a client whose reply was lost repeats it."""

    job: Job
    runs = Bundle("runs")
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.fences: list[int] = []
        self.stock = Job(self.job.store, self.job.client, f"model{next(_numbers)}")

    @rule(target=runs)
    def arrive(self) -> Run:
        return Run(self.stock.claim())

    @rule(run=consumes(runs), repeat=st.booleans(), target=held)
    def acquire(self, run: Run, *, repeat: bool) -> object:
        answers = [self.stock.store.acquire(run.claim) for _ in range(1 + repeat)]
        if run.withdrawn_in is self.model:
            assert {answer.answer for answer in answers} == {"finished"}  # type: ignore[union-attr]
            return multiple()
        if self.model.owner is not None:
            assert {answer.answer for answer in answers} == {"locked"}  # type: ignore[union-attr]
            self.model.records.append(("skipped_locked", 0))
            return multiple()
        grant = answers[0]
        assert isinstance(grant, Grant)
        assert grant == answers[-1]
        run.grant = grant
        if self.model.open is not None:
            self.model.records.append(("abandoned", self.model.open.fence))
        self.model.owner = self.model.open = run
        self.fences.append(grant.fence)
        self.model.last_fence = grant.fence
        return run

    @rule(run=runs, repeat=st.booleans())
    def withdraw_before_the_acquire_arrives(self, run: Run, *, repeat: bool) -> None:
        for _ in range(1 + repeat):
            self.stock.store.withdraw(run.claim, "2026-09-14T12:15:03.123Z")
        if run.withdrawn_in is not self.model:
            run.withdrawn_in = self.model
            self.model.records.append(("skipped_lock_unavailable", 0))

    @rule(run=consumes(held))
    def withdraw_after_the_acquire_arrived(self, run: Run) -> None:
        if run.closed is not None:
            return  # a run that reported its end had its answer
        self.stock.store.withdraw(run.claim, "2026-09-14T12:15:03.123Z")
        self.model.records.append(("skipped_lock_unavailable", 0))
        if self.model.owner is run:
            self.model.owner = None
            if self.model.open is run:
                self.model.open = None

    @rule(run=held, repeat=st.booleans())
    def renew(self, run: Run, *, repeat: bool) -> None:
        assert run.grant is not None
        if self.is_forgotten(run):
            return
        answers = [self.stock.renew(run.claim, run.grant) for _ in range(1 + repeat)]
        if self.model.owner is run:
            assert set(answers) == {"renewed"}
        elif run.closed is not None:
            assert set(answers) <= {"released", "lost"}
        elif self.model.owner is not None or self.model.last_fence > run.fence:
            assert set(answers) == {"lost"}
        else:
            assert answers == ["retaken", "renewed"][: len(answers)]
            self.model.owner = run
            self.model.last_fence = run.fence

    @rule(run=held, outcome=st.sampled_from(OUTCOMES), late=st.booleans(), repeat=st.booleans())
    def release(self, run: Run, outcome: str, *, late: bool, repeat: bool) -> None:
        assert run.grant is not None
        if self.is_forgotten(run):
            return
        answers = {self.stock.release(run.claim, run.grant, outcome, late=late) for _ in range(1 + repeat)}
        if run.closed is not None:
            assert answers == {run.closed}, "asked again, long after a lost reply"
            return
        taken = self.model.owner is not run and (
            self.model.owner is not None or self.model.last_fence > run.fence
        )
        expected = "lost" if taken and not late else outcome
        assert answers == {expected}
        self.model.close(run, expected)

    @rule()
    def expire(self) -> None:
        """The lease runs out, or somebody deletes it."""
        self.stock.client.delete(self.stock.keys.lease)
        self.model.owner = None

    @rule()
    def lose_everything(self) -> None:
        """The store restarts empty."""
        self.stock.client.delete(*self.stock.keys.all)
        self.model = Model()

    def is_forgotten(self, run: Run) -> bool:
        """Whether its end was written down by a store that has lost everything since."""
        return run.closed is not None and run.closed_in is not self.model

    @invariant()
    def at_most_one_run_has_the_lease(self) -> None:
        owner = self.model.owner
        assert self.stock.held.get("token") == (owner.claim.token if owner else None)

    @invariant()
    def fences_only_grow(self) -> None:
        assert self.fences == sorted(set(self.fences))

    @invariant()
    def every_end_is_written_down_once(self) -> None:
        written = [(record["outcome"], int(record.get("fence", 0))) for record in self.stock.records]
        assert written == self.model.records
        for outcome in {outcome for outcome, _ in written}:
            assert self.stock.total(outcome) == [each for each, _ in written].count(outcome)

    def teardown(self) -> None:
        self.stock.client.delete(*self.stock.keys.all)


def test_the_scripts_do_what_a_model_of_them_does(job: Job) -> None:
    machine = type("ScriptsOnAServer", (Scripts,), {"job": job})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=150,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
