"""Asking a model about many ingredients: several calls at once, each paid for, none beyond a budget.

One thread, the one that runs the job, does all the bookkeeping; each call has a thread of its own that does
nothing but wait for it. The first call of a pass goes out alone: where the key, the address or the server is
wrong, one call is enough to find out. After it there are up to `concurrency`.

A reply decides about its ingredient (`tasks.reply`). What waiting may cure is tried once more, when the
server says so or after a short pause, unless the pass would end before: then it is left to a later one. So is
everything else once a budget is reached, the time is up, or several ingredients in a row came to nothing.
"""

import heapq
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from celery.utils.log import get_task_logger

from tasks.attempts import MOST_RUNS, Answered, Call, Refused, Settlement, request_hash
from tasks.desk import Desk, question_about
from tasks.model import Model, Request
from tasks.money import Budgets, Prices
from tasks.reply import Reason, Reply, Then
from tasks.store import Due
from tasks.tables import AttemptState

logger = get_task_logger("tasks.curation")

# The server has answered before: so many ingredients in a row that come to nothing, beside as many as can be
# under way at once, are no accident.
_MOST_IN_A_ROW = 4
# How often the lease is looked at while nothing happens.
_LOOK_SECONDS = 1.0
# A call has its own timeout. One that has not even noticed that is given up on this much later.
_GIVE_UP_SECONDS = 10.0


@dataclass(frozen=True)
class Terms:
    """What a pass may do.

    Attributes:
        delivery: the message that the run came with.
        prices: of the model.
        budgets: what it may spend.
        concurrency: how many calls may be under way at once.
        seconds: how long the pass may take.
        pause_seconds: before one more try, where the server names no time.
    """

    delivery: str
    prices: Prices
    budgets: Budgets
    concurrency: int = 4
    seconds: float = 600.0
    pause_seconds: float = 1.0


class Turn(NamedTuple):
    """An ingredient that waits for a call; turns sort by when, then by their place in the queue."""

    ready_at: float
    place: int
    number: int
    item: Due


class Flight(NamedTuple):
    """A call under way."""

    turn: Turn
    reserved: int
    give_up_at: float


class Asking:
    """One pass with a model. Used once, by the thread that runs the job."""

    def __init__(self, desk: Desk, model: Model, terms: Terms) -> None:
        self._desk = desk
        self._model = model
        self._terms = terms
        self._deadline = time.monotonic() + terms.seconds
        self._turns: list[Turn] = []
        self._flights: dict[int, Flight] = {}
        self._landed: SimpleQueue[tuple[int, Reply | Exception]] = SimpleQueue()
        self._not_before = 0.0
        self._answered = False
        self._in_vain = 0
        # The next one did not fit into a budget beside those under way; it may once they are settled.
        self._full = False

    def run(self, items: list[Due]) -> None:
        """Ask about every item, or defer it.

        Raises:
            LeaseLost: the lease can no longer be trusted, or a newer run has claimed (`StaleFence`). What is
                under way then is lost, and its reserve stays spent.
        """
        self._turns = [Turn(0.0, place, 1, item) for place, item in enumerate(items)]
        while self._turns or self._flights:
            self._desk.lease.check()
            if self._may_start():
                self._start(heapq.heappop(self._turns))
            else:
                self._wait()

    # --- starting -------------------------------------------------------------------------------------------

    def _may_start(self) -> bool:
        width = self._terms.concurrency if self._answered else 1
        return (
            bool(self._turns)
            and not self._full
            and len(self._flights) < width
            and max(self._turns[0].ready_at, self._not_before) <= time.monotonic()
        )

    def _start(self, turn: Turn) -> None:
        item = turn.item
        if time.monotonic() + self._model.timeout_seconds > self._deadline:
            self._stop("time_is_up", turn)
        elif turn.number > 1 or not self._desk.screened(item):
            self._call(turn, self._model.request(question_about(item)))

    def _call(self, turn: Turn, request: Request) -> None:
        most = self._terms.prices.cost(request.most_tokens_in, request.most_tokens_out)
        match self._reserve(turn, most):
            case int(attempt_id):
                give_up_at = time.monotonic() + self._model.timeout_seconds + _GIVE_UP_SECONDS
                self._flights[attempt_id] = Flight(turn, most, give_up_at)
                Thread(target=self._fly, args=(attempt_id, request), daemon=True).start()
            case Answered(reason, answer):
                # Paid for before; it is judged again, for nothing.
                said = Reply(Reason(reason.split()[0]), "as it was answered before", answer)
                self._take(turn.item, said)
            case Refused.ASKED:
                self._desk.defer(turn.item, "asked", "by an earlier delivery of this very message")
            case Refused.EXHAUSTED:
                detail = f"{MOST_RUNS} runs asked about it, and none got an answer"
                self._desk.leave_to_human(turn.item, "attempts", detail)
            case over:
                self._over_budget(str(over), turn)

    def _reserve(self, turn: Turn, most: int) -> int | Answered | str:
        under_way = sum(flight.reserved for flight in self._flights.values())
        if self._desk.counts.spent + under_way + most > self._terms.budgets.of_pass:
            return "budget_pass"
        request = request_hash(turn.item.part.key, self._desk.versions)
        call = Call(turn.item.id, request, self._terms.delivery, turn.number, most)
        return self._desk.store.reserve(call, self._terms.budgets, self._desk.lease)

    def _over_budget(self, budget: str, turn: Turn) -> None:
        if self._flights:
            self._full = True
            heapq.heappush(self._turns, turn)
        else:
            self._stop(budget, turn)

    def _fly(self, attempt_id: int, request: Request) -> None:
        """Make the call; in a thread of its own."""
        try:
            self._landed.put((attempt_id, self._model.ask(request)))
        except Exception as error:  # noqa: BLE001 - raised again where the job runs
            self._landed.put((attempt_id, error))

    # --- landing --------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait for a reply, but not past the next turn, nor the next look at the lease."""
        at = time.monotonic()
        until = at + _LOOK_SECONDS
        if self._turns and not self._full:
            ready_at = max(self._turns[0].ready_at, self._not_before)
            until = min(until, ready_at) if ready_at > at else until
        try:
            attempt_id, reply = self._landed.get(timeout=until - at)
        except Empty:
            self._give_up_on_the_silent()
            return
        if isinstance(reply, Exception):
            raise reply
        self._land(attempt_id, reply)

    def _give_up_on_the_silent(self) -> None:
        now = time.monotonic()
        for attempt_id in [key for key, flight in self._flights.items() if flight.give_up_at < now]:
            self._land(attempt_id, Reply(Reason.STALLED, "not even its timeout ended it"))

    def _land(self, attempt_id: int, reply: Reply) -> None:
        flight = self._flights.pop(attempt_id, None)
        if flight is None:
            return  # it was given up on, and its reserve is spent
        self._full = False
        settlement = self._settlement(attempt_id, reply)
        cost = flight.reserved if settlement.actual is None else settlement.actual
        self._desk.counts.spent += cost
        if reply.then in {Then.JUDGE, Then.REJECT}:
            self._answered, self._in_vain = True, 0
            self._take(flight.turn.item, reply, settlement)
            return
        self._desk.store.settle(settlement, self._desk.lease)
        match reply.then:
            case Then.AGAIN if flight.turn.number == 1 and not self._desk.counts.stopped:
                self._again(flight.turn, reply)
            case Then.STOP:
                self._desk.counts.blocked = f"{reply.reason}: {reply.detail}"
                self._desk.defer(flight.turn.item, reply.reason, reply.detail)
                self._stop(reply.reason)
            case _:
                self._in_vain_for(flight.turn, reply)

    def _settlement(self, attempt_id: int, reply: Reply) -> Settlement:
        usage, prices = reply.usage, self._terms.prices
        known = reply.then in {Then.JUDGE, Then.REJECT} or usage is not None
        state = AttemptState.DONE if known else AttemptState.UNKNOWN
        if reply.free:
            state = AttemptState.DONE if reply.about_the_request else AttemptState.REFUSED
        actual = prices.cost(usage.tokens_in, usage.tokens_out) if usage else 0 if reply.free else None
        return Settlement(
            attempt_id,
            state,
            reply.words,
            actual,
            usage.tokens_in if usage else None,
            usage.tokens_out if usage else None,
            reply.text if reply.then in {Then.JUDGE, Then.REJECT} else None,
        )

    def _take(self, item: Due, reply: Reply, settlement: Settlement | None = None) -> None:
        if reply.then is Then.JUDGE:
            self._desk.judge(item, reply.text, settlement)
        else:
            self._desk.reject(item, reply.reason, reply.detail, reply.text, settlement)

    def _again(self, turn: Turn, reply: Reply) -> None:
        seconds = self._terms.pause_seconds if reply.retry_after is None else reply.retry_after
        ready_at = time.monotonic() + seconds
        if ready_at + self._model.timeout_seconds > self._deadline:
            logger.warning("%s: %s; the next try would be in %g s", reply.reason, reply.detail, seconds)
            self._stop(reply.reason, turn)
            return
        if reply.reason is Reason.RATE_LIMITED or not self._answered:
            # That concerns every call, not only this one; and this one is the next.
            self._hold_back(ready_at)
            ready_at = 0.0
        heapq.heappush(self._turns, turn._replace(ready_at=ready_at, number=2))

    def _hold_back(self, until: float) -> None:
        self._not_before = max(self._not_before, until)

    def _in_vain_for(self, turn: Turn, reply: Reply) -> None:
        self._in_vain += 1
        if reply.reason is Reason.RATE_LIMITED and reply.retry_after is not None:
            self._hold_back(time.monotonic() + reply.retry_after)
        self._desk.defer(turn.item, reply.reason, reply.detail)
        if self._in_vain >= (_MOST_IN_A_ROW + self._terms.concurrency if self._answered else 1):
            self._stop(reply.reason)

    def _stop(self, reason: str, *turns: Turn) -> None:
        """Begin no call any more; those under way are still taken in."""
        left, self._turns = [*turns, *self._turns], []
        self._desk.counts.stopped = self._desk.counts.stopped or str(reason)
        self._desk.counts.deferred[str(reason)] += len(left)
        if left:
            logger.warning("stopped: %s; %s ingredients are left for a later pass", reason, len(left))
