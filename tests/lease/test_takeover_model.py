"""Taking over from a dead holder against a model of it: connections come and go, looks come at any pace.

The connections are real; only the time between two looks is made up, by making what the store remembers of
the last ones older.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from celery_lease._store import Grant, Refusal
from tests.nodes.waiting import wait_until
from tests.support.leases import Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from celery_lease._store import Claim, Store

LEASE_SECONDS = 300
GRACE_SECONDS = 10.0
GAP_SECONDS = 3.0
EDGE_SECONDS = 0.6
PROCESSES = ("one", "two")

_numbers = itertools.count()


@dataclass
class Holder:
    """A run with the lease, and what the store knows of its connection."""

    claim: Claim
    grant: Grant
    process: str
    alive: bool
    gone_since: float | None = None
    gone_seen: float = 0.0

    def renewed(self, *, alive: bool) -> None:
        self.alive = alive
        self.gone_since = None


class Takeover(RuleBasedStateMachine):
    """One job, and two processes that run it in turn."""

    job: Job
    takeovers: ClassVar[list[int]]

    def __init__(self) -> None:
        super().__init__()
        self.stock = Job(self.job.store, self.job.client, f"takeover{next(_numbers)}")
        self.now = 0.0  # made-up seconds
        self.holder: Holder | None = None
        self.abandoned = 0
        self.fences = [0]
        self.subscriptions: dict[str, Any] = {}
        for process in PROCESSES:
            self.come_back(process)

    def channel(self, process: str) -> str:
        return self.stock.keys.alive(process)

    @rule(process=st.sampled_from(PROCESSES))
    def come_back(self, process: str) -> None:
        if process not in self.subscriptions:
            self.subscriptions[process] = self.stock.client.pubsub()
            self.subscriptions[process].ssubscribe(self.channel(process))
            wait_until(lambda: self.sees(process))

    @precondition(lambda self: self.holder is not None)
    @rule(looks=st.integers(8, 12))
    def die_and_be_waited_for(self, looks: int) -> None:
        """What random steps alone hardly ever come to."""
        assert self.holder is not None
        before = self.holder
        self.cut_off(before.process)
        for _ in range(looks):
            if self.holder is before:
                self.acquire("two", patient=True, repeat=False)
                self.let_time_pass(1.1)

    @precondition(lambda self: self.holder is not None)
    @rule()
    def die(self) -> None:
        assert self.holder is not None
        self.cut_off(self.holder.process)

    @rule(process=st.sampled_from(PROCESSES))
    def cut_off(self, process: str) -> None:
        if process in self.subscriptions:
            self.subscriptions.pop(process).close()
            wait_until(lambda: not self.sees(process))

    def sees(self, process: str) -> bool:
        channel = self.channel(process)
        return self.stock.store.connected(self.stock.client, [channel])[channel]

    @rule(seconds=st.sampled_from([0.5, 0.9, 1.7, 2.5, 3.7, 9.0, 20.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        for field in ("gone_since", "gone_seen"):
            if self.stock.client.hexists(self.stock.keys.lease, field):
                self.stock.client.hincrby(self.stock.keys.lease, field, -round(seconds * 1000))

    def step_off_the_edges(self) -> None:
        """Real time goes on beside the made-up one: look when a moment more makes no difference."""
        while self.holder is not None and self.holder.gone_since is not None:
            since_seen, since_gone = self.now - self.holder.gone_seen, self.now - self.holder.gone_since
            if (
                abs(since_seen - GAP_SECONDS) > EDGE_SECONDS
                and abs(since_gone - GRACE_SECONDS) > EDGE_SECONDS
            ):
                return
            self.let_time_pass(EDGE_SECONDS)

    @rule(
        process=st.sampled_from(PROCESSES),
        looks=st.integers(1, 14),
        pause=st.sampled_from([0.5, 1.0, 2.5]),
    )
    def wait_for_the_lease(self, process: str, looks: int, pause: float) -> None:
        """As a run does, until it has the lease, or gives up."""
        for _ in range(looks):
            self.acquire(process, patient=True, repeat=False)
            self.let_time_pass(pause)

    @rule(process=st.sampled_from(PROCESSES), patient=st.booleans(), repeat=st.booleans())
    def acquire(self, process: str, *, patient: bool, repeat: bool) -> None:
        self.step_off_the_edges()
        claim = self.stock.claim(channel=self.channel(process))
        expected = self.answer_to_an_acquire(patient=patient)
        answer = self.stock.store.acquire(claim, patient=patient)
        if isinstance(answer, Refusal):
            assert answer.answer == expected
            return
        assert expected == "granted"
        if repeat:  # the answer was lost
            assert self.stock.store.acquire(claim, patient=patient) == answer
        self.abandoned += self.holder is not None
        self.fences.append(answer.fence)
        assert answer.alive == (process in self.subscriptions)
        self.holder = Holder(claim, answer, process, alive=answer.alive)

    def answer_to_an_acquire(self, *, patient: bool) -> str:
        """What the model says, and remembers of the look."""
        holder = self.holder
        if holder is None:
            return "granted"
        if not holder.alive:
            return "locked"
        if holder.process in self.subscriptions:
            holder.gone_since = None
            return "locked"
        if holder.gone_since is None or self.now - holder.gone_seen > GAP_SECONDS:
            holder.gone_since = self.now
        holder.gone_seen = self.now
        if self.now - holder.gone_since >= GRACE_SECONDS:
            return "granted"
        return "waiting" if patient else "locked"

    @precondition(lambda self: self.holder is not None)
    @rule()
    def renew(self) -> None:
        assert self.holder is not None
        [answer] = self.stock.store.renew([(self.holder.claim, self.holder.grant)])
        is_connected = self.holder.process in self.subscriptions
        assert answer == ("renewed", is_connected)
        self.holder.renewed(alive=is_connected)

    @precondition(lambda self: self.holder is not None)
    @rule()
    def release(self) -> None:
        assert self.holder is not None
        assert self.stock.release(self.holder.claim, self.holder.grant) == "ran"
        self.holder = None

    @invariant()
    def the_lease_is_the_holders(self) -> None:
        held = self.stock.held
        if self.holder is None:
            assert held == {}
        else:
            assert held["token"] == self.holder.claim.token
            assert ("alive" in held) == self.holder.alive
            assert ("gone_since" in held) == (self.holder.gone_since is not None)

    @invariant()
    def every_takeover_is_an_abandoned_run_and_a_higher_fence(self) -> None:
        assert self.stock.total("abandoned") == self.abandoned
        assert self.fences == sorted(set(self.fences))

    def teardown(self) -> None:
        self.takeovers.append(self.abandoned)
        for subscription in self.subscriptions.values():
            subscription.close()
        self.stock.client.delete(*self.stock.keys.all)


def test_taking_over_does_what_a_model_of_it_does(start_store: Callable[..., Store], client: Any) -> None:
    job = Job(start_store(lease_seconds=LEASE_SECONDS), client)
    takeovers: list[int] = []
    machine = type("TakeoverOnAServer", (Takeover,), {"job": job, "takeovers": takeovers})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert sum(takeovers) > 10, "else this says nothing"
