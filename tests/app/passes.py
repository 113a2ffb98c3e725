"""Passes of the curation over a store and a model, for tests."""

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from celery_lease import LeaseLost
from tasks.asking import Terms
from tasks.curation import ask_pass
from tasks.desk import Counts
from tasks.knowledge import shipped
from tasks.labels import Label
from tasks.model import Endpoint, Model
from tasks.money import Budgets, Prices
from tasks.store import Store
from tests.support.model_server import ModelServer

PRICES = Prices(150_000, 600_000)
TERMS = Terms(
    delivery="message",
    prices=PRICES,
    budgets=Budgets(10_000_000, 10_000_000, 10_000_000),
    seconds=60,
    pause_seconds=0.01,
)


@dataclass
class FakeLease:
    """A lease that ends when it is told to."""

    fence: int = 1
    name: str = "curation"
    checks_left: int = 1_000_000

    @property
    def token(self) -> str:
        return f"token {self.fence}"

    def check(self) -> None:
        self.checks_left -= 1
        if self.checks_left < 0:
            raise LeaseLost("lost")


def add(store: Store, text: str, ref: str = "1") -> None:
    label = Label(ref, text)
    store.add_label(label, label.parts())


class Passes:
    """Passes over one store with one model server; each has a new fence and comes with a new message."""

    def __init__(self, store: Store, server: ModelServer) -> None:
        self.store = store
        self.server = server
        self.fence = 0

    def run(
        self,
        *,
        limit: int = 100,
        timeout: float = 5,
        lease: FakeLease | None = None,
        endpoint: dict[str, Any] | None = None,
        **terms: Any,
    ) -> Counts:
        """Run one."""
        self.fence += 1
        given: dict[str, Any] = {"url": self.server.url, "name": "m", "timeout_seconds": timeout} | (
            endpoint or {}
        )
        on_terms = replace(TERMS, **{"delivery": f"message {self.fence}"} | terms)
        with closing(Model(Endpoint(**given), shipped())) as model:
            holder = lease or FakeLease(self.fence)
            return ask_pass(self.store, model, shipped(), holder, limit, on_terms)
