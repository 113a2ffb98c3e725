"""From the label to the search engine: worker, site and receiver as processes of their own."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from celery import Celery
from sqlalchemy import delete, select

from tasks import review
from tasks.clock import now
from tasks.facts import Facts, Fodmap, Gluten, Lactose
from tasks.store import Store
from tasks.tables import AnswerRow, IngredientRow, IngredientState
from tests.app.passes import add
from tests.nodes.ports import free_port
from tests.nodes.waiting import wait_until
from tests.support.site import ALONE
from tests.support.workers import Process, Worker


class Loop:
    """The jobs, and what became known of their work outside."""

    def __init__(self, client: Celery, site: str, receiver: str) -> None:
        self.site = site
        self._client = client
        self._receiver = receiver
        self._seen = 0

    def run(self, job: str) -> dict[str, Any]:
        result: dict[str, Any] = self._client.send_task(job).get(timeout=60)
        return result

    def announced(self) -> list[str]:
        """The paths that were announced since the last time."""
        every = httpx.get(self._receiver, trust_env=False).json()["announced"]  # the newest first
        new = every[: len(every) - self._seen]
        self._seen = len(every)
        return sorted(each["url"].removeprefix(self.site) for each in new)

    def status(self, path: str) -> int:
        return httpx.get(f"{self.site}{path}", trust_env=False).status_code


@pytest.fixture
def loop(
    own_url: str,
    tmp_path: Path,
    redis_url: str,
    start_process: Callable[..., Process],
    start_worker: Callable[..., Worker],
) -> Iterator[Loop]:
    site, receiver = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    environment = {
        "REDIS_URL": redis_url,
        "DATABASE_URL": own_url,
        "TASKS_DATA": str(tmp_path / "data"),
        "SITE_URL": site,
        "INDEXNOW_ENDPOINT": f"{receiver}/indexnow",
        "CURATION_MODEL_URL": "",
    }
    for app, address in (("tasks.web:web", site), ("tasks.receiver:receiver", receiver)):
        port = address.rpartition(":")[2]
        process = start_process(sys.executable, "-m", "uvicorn", app, "--port", port, **environment)
        process.wait_for("Uvicorn running on", 30)
    start_worker(*ALONE, app="tasks", **environment)
    with Celery("client", broker=redis_url, backend=redis_url, set_as_current=False) as client:
        yield Loop(client, site, receiver)


def test_what_is_new_changed_or_gone_is_announced_once_and_its_page_tells(loop: Loop, filled: Store) -> None:
    assert loop.run("sitemap")["worked"] == 0
    assert loop.announced() == []

    add(filled, "garlic, wheat flour, skimmed milk")
    assert loop.run("curation")["accepted"] == 3
    assert loop.run("sitemap")["worked"] == 3
    pages = ["/answers/1-garlic", "/answers/2-wheat-flour", "/answers/3-skimmed-milk"]
    assert loop.announced() == pages
    assert [loop.status(page) for page in pages] == [200, 200, 200]

    assert loop.run("sitemap")["worked"] == 0
    assert loop.announced() == []

    garlic_is_said_to_be_harmful_by_a_person(filled)
    loop.run("sitemap")
    assert loop.announced() == ["/answers/1-garlic"]

    with filled.writing(None) as session:
        session.execute(delete(AnswerRow).where(AnswerRow.ingredient_id == 2))
    loop.run("sitemap")
    loop.run("sitemap")  # it was missing twice, so it was no slip
    assert loop.announced() == ["/answers/2-wheat-flour"]
    assert loop.status("/answers/2-wheat-flour") == 404
    assert loop.run("sitemap")["worked"] == 0


def garlic_is_said_to_be_harmful_by_a_person(store: Store) -> None:
    with store.writing(None) as session:
        row = session.scalars(select(IngredientRow).where(IngredientRow.id == 1)).one()
        row.state = IngredientState.NEEDS_HUMAN
        decided = session.get_one(AnswerRow, 1).decided_at
    wait_until(lambda: now() != decided)  # the store counts in seconds
    facts = Facts(frozenset({Fodmap.FRUCTAN, Fodmap.GOS}), Gluten.NONE, Lactose.NONE)
    review.answer(store, 1, facts, None, "somebody")
