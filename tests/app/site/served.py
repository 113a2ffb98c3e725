"""The public site as its visitors have it: a process on a port, over a database that a test fills."""

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx
from sqlalchemy import insert

from tasks.curation import run_pass
from tasks.knowledge import shipped
from tasks.labels import shipped as shipped_labels
from tasks.proposer import LexiconProposer
from tasks.store import Store
from tasks.tables import AnswerRow, IngredientRow, LabelRow
from tests.app.passes import FakeLease
from tests.nodes.ports import free_port
from tests.nodes.sessions import Reaper
from tests.nodes.waiting import wait_until
from tests.support.workers import Process

KEY = "0123456789abcdef-KEY"
#: Not where the site really is: what it shows to the world is one thing, how a test gets there another.
PUBLIC = "https://food.example"
_SITEMAPS = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
#: Long ago, so that nothing of that moment can still be under way.
LONG_AGO = "2026-09-14T12:15:03+00:00"


class Served:
    """One web app, `tasks.web:web`, with a Redis that is not there and without a secret."""

    def __init__(self, database_url: str, folder: Path, reaper: Reaper) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        environment = {
            "DATABASE_URL": database_url,
            "TASKS_DATA": str(folder / "data"),
            "REDIS_URL": f"redis://127.0.0.1:{free_port()}/0",
            "CRON_SECRET": "",
            "SITE_URL": PUBLIC,
            "INDEXNOW_KEY": KEY,
        }
        argv = [sys.executable, "-m", "uvicorn", "tasks.web:web", "--port", str(port)]
        self.process = Process(argv, environment, folder / "web.log", reaper)
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.url, timeout=30, trust_env=False)
        self.process.wait_for("Application startup complete", 30)
        wait_until(self._is_open)

    def _is_open(self) -> bool:
        try:
            self.client.get("/robots.txt")
        except httpx.TransportError:
            return False
        return True

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def text(self, path: str) -> str:
        """Of something that is there."""
        response = self.get(path)
        assert response.status_code == 200, response.text
        return response.text

    def entries(self, path: str = "/sitemap.xml") -> dict[str, str | None]:
        """Path → date, of a file of the sitemap or of an index."""
        # No protection from hostile XML: it is our own.
        root = ET.fromstring(self.text(path))  # noqa: S314
        entries = {}
        for entry in root:
            location = entry.findtext(f"{_SITEMAPS}loc") or ""
            assert location.startswith(f"{PUBLIC}/"), location
            entries[location.removeprefix(PUBLIC)] = entry.findtext(f"{_SITEMAPS}lastmod")
        assert len(entries) == len(root), "an address is there twice"
        return entries

    def raw(self, path: str, accepting: str) -> tuple[httpx.Headers, bytes]:
        """The headers and the bytes as they came, not unpacked."""
        with self.client.stream("GET", path, headers={"Accept-Encoding": accepting}) as response:
            return response.headers, b"".join(response.iter_raw())

    def close(self) -> None:
        self.client.close()
        self.process.kill_tree()


def unpacked(content: bytes) -> bytes:
    return gzip.decompress(content)


def curate_what_is_shipped(store: Store) -> None:
    """Have all ingredients of the shipped labels judged."""
    for label in shipped_labels():
        store.add_label(label, label.parts())  # type: ignore[arg-type, union-attr]
    run_pass(store, LexiconProposer(shipped()), shipped(), FakeLease(), 100_000)


def put(store: Store, names: Iterable[str], **answer: Any) -> None:
    """Put answers for these names there as they are, past every rule; the first gets the number 1."""
    ingredients = []
    answers = []
    for number, name in enumerate(names, 1):
        part = json.dumps({"text": name, "name": name})
        ingredients.append(
            {"id": number, "name": name, "part": part, "label_id": 1, "contributor": "x"}
            | {"state": "answered", "attempts": 1, "added_at": LONG_AGO}
        )
        answers.append({"ingredient_id": number, **_ANSWER, **answer})
    with store.writing(None) as session:
        label = {"id": 1, "ref": "1", "language": "en", "product": "p", "contributor": "x"}
        session.execute(insert(LabelRow), [{**label, "ingredients": "x", "loaded_at": LONG_AGO}])
        session.execute(insert(IngredientRow), ingredients)
        session.execute(insert(AnswerRow), answers)


_ANSWER = {
    "state": "avoid",
    "fodmap": "fructan",
    "gluten": "contains",
    "lactose": "none",
    "e_number": None,
    "reason": "contains gluten; FODMAP: fructan",
    "proposal": "{}",
    "decision": json.dumps(
        {"verdict": "accepted", "versions": {"engine": "1", "kb": "of old", "schema": "1", "prompt": "p"}}
    ),
    "fence": 1,
    "answered_at": LONG_AGO,
    "decided_at": LONG_AGO,
}
