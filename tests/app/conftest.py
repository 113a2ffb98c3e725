"""Stores: each test that asks for one runs on SQLite and on PostgreSQL. And the commands, as processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from tasks.store import Store
from tests.nodes.sessions import Reaper
from tests.support.postgres import Postgres
from tests.support.workers import ROOT

Rows = Callable[[str], list[tuple[Any, ...]]]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def postgres(reaper: Reaper) -> Iterator[Postgres]:
    server = Postgres(reaper)
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database that does not exist yet, or is empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'tasks.sqlite3'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """For what has nothing to do with the database."""
    return f"sqlite:///{tmp_path / 'tasks.sqlite3'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def rows(url: str) -> Iterator[Rows]:
    """Look into the database with another program's eyes."""
    address = make_url(url)
    driver = "postgresql+psycopg" if address.get_backend_name() == "postgresql" else "sqlite"
    engine = create_engine(address.set(drivername=driver))

    def look(query: str) -> list[tuple[Any, ...]]:
        with engine.begin() as connection:
            found = connection.execute(text(query))
            return [tuple(row) for row in found] if found.returns_rows else []

    yield look
    engine.dispose()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`python -m tasks …`; settings are keywords, and the store is `data/tasks.sqlite3`."""

    def tasks(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tasks", *arguments],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "TASKS_DATA": "data",
                "COLUMNS": "100",
                **environment,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return tasks
