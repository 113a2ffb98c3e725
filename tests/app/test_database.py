"""Opening a database: making its tables, bringing older ones up to date, refusing what cannot be used."""

import subprocess
import sys
from importlib.resources import files

import pytest
from alembic.autogenerate import compare_metadata
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from tasks.database import NEWEST, DatabaseError, opened
from tasks.labels import Label
from tasks.migrations.versions import v0001_curation
from tasks.store import Store
from tasks.tables import Base
from tests.app.conftest import Rows
from tests.support.postgres import Postgres
from tests.support.workers import ROOT

OPENERS = 12


def add(store: Store, label: Label) -> None:
    store.add_label(label, label.parts())


def test_the_history_leads_to_the_tables_as_they_are(url: str) -> None:
    with opened(url) as engine, engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_the_newest_version_is_the_last_of_the_history() -> None:
    scripts = ScriptDirectory(str(files("tasks").joinpath("migrations")))
    assert scripts.get_current_head() == NEWEST


def made_before_history(url: str) -> None:
    """A database of the first program: its tables, made at once, and no version."""
    with opened(url) as engine, engine.begin() as connection:
        Base.metadata.drop_all(connection)
        with Operations.context(MigrationContext.configure(connection)):
            v0001_curation.upgrade()
        for statement in (
            "DROP TABLE alembic_version",
            "INSERT INTO fence VALUES ('curation', 7, 't')",
            "INSERT INTO label VALUES (100, 'r', 'en', 'p', 'anna', 'garlic', '2026')",
        ):
            connection.execute(text(statement))


def test_a_database_from_before_the_history_is_taken_over_with_what_is_in_it(url: str, rows: Rows) -> None:
    made_before_history(url)
    with Store.open(url) as store:
        add(store, Label("s", "garlic"))
    assert rows("SELECT version_num FROM alembic_version") == [(NEWEST,)]
    assert rows("SELECT fence FROM fence") == [(7,)]
    assert sorted(rows("SELECT ref FROM label")) == [("r",), ("s",)]
    assert rows("SELECT count(*) FROM attempt") == [(0,)]


# One interpreter that forks: starting as many of them would take longer than everything else here.
OPEN_AT_ONCE = """
import os, sys
from tasks.labels import Label
from tasks.migrations import upgrade
from tasks.store import Store

read, write = os.pipe()
children = []
for number in range(int(sys.argv[2])):
    children.append(os.fork())
    if not children[-1]:
        os.close(write)
        os.read(read, 1)
        label = Label(str(number), "garlic, salt, honey")
        with Store.open(sys.argv[1]) as store:
            store.add_label(label, label.parts())
        os._exit(0)
os.close(write)
sys.exit(sum(os.waitpid(child, 0)[1] for child in children))
"""


def test_many_processes_that_open_a_new_database_at_once_all_find_its_tables(url: str, rows: Rows) -> None:
    command = [sys.executable, "-c", OPEN_AT_ONCE, url, str(OPENERS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert rows("SELECT count(*) FROM label") == [(OPENERS,)]
    assert rows("SELECT name FROM ingredient ORDER BY id") == [("garlic",), ("salt",), ("honey",)]


def test_a_migration_that_fails_changes_nothing(url: str, rows: Rows) -> None:
    made_before_history(url)
    rows("CREATE TABLE attempt (id INTEGER)")  # in the way of the next version
    with pytest.raises(DBAPIError), Store.open(url):
        pass
    with pytest.raises(DBAPIError):
        rows("SELECT version_num FROM alembic_version")
    with pytest.raises(DBAPIError):
        rows("SELECT tried_at FROM ingredient")


def test_a_database_of_a_newer_program_is_refused_and_stays_as_it_is(url: str, rows: Rows) -> None:
    with Store.open(url):
        pass
    rows("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseError, match=r"version 9999.*update the program"), Store.open(url):
        pass
    assert rows("SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_store_that_may_only_be_read_cannot_be_written(url: str) -> None:
    with Store.open(url):
        pass
    with Store.open(url, read_only=True) as store:
        assert store.answers() == []
        with pytest.raises(DBAPIError, match=r"readonly|read-only"):
            add(store, Label("1", "garlic"))


def test_opening_to_read_only_makes_nothing(url: str, rows: Rows) -> None:
    with pytest.raises(DatabaseError, match="tasks load"), Store.open(url, read_only=True):
        pass
    if make_url(url).get_backend_name() == "postgresql":
        assert rows("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
    else:
        with pytest.raises(OperationalError):  # not even its folder
            rows("SELECT 1")


def test_opening_to_read_only_changes_no_older_tables(url: str, rows: Rows) -> None:
    made_before_history(url)
    with pytest.raises(DatabaseError, match="up to date"), Store.open(url, read_only=True):
        pass
    with pytest.raises(DBAPIError):
        rows("SELECT tried_at FROM ingredient")


def test_sqlite_readers_do_not_wait_for_the_writer_and_keys_are_checked(sqlite_url: str) -> None:
    with opened(sqlite_url) as engine, engine.connect() as connection:
        read = {name: connection.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "foreign_keys")}
        assert read == {"journal_mode": "wal", "foreign_keys": 1}
        assert int(connection.scalar(text("PRAGMA busy_timeout")) or 0) >= 5_000


def test_a_postgresql_url_of_any_spelling_is_for_psycopg_3(postgres: Postgres) -> None:
    for scheme in ("postgresql", "postgresql+psycopg2", "postgresql+psycopg"):
        address = postgres.database().replace("postgresql", scheme)
        with opened(address) as engine, engine.connect() as connection:
            assert engine.dialect.driver == "psycopg"
            assert connection.scalar(text("SHOW transaction_isolation")) == "read committed"
