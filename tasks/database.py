"""The database: SQLite in WAL mode, or PostgreSQL; connected, and brought up to date when it is opened."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event, inspect, literal_column, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, Pool

#: The version of the tables, as the newest file in `migrations/versions` names it.
NEWEST = "0004"

_VERSION_TABLE = "alembic_version"

# How long a transaction waits for another one's lock, and a server for a connection; far longer than any
# transaction here takes.
_PATIENCE_SECONDS = 10.0
# A run that is frozen inside a transaction keeps its locks. PostgreSQL gives them back after this time; under
# SQLite nobody can write until the run goes on or is killed.
_FROZEN_MILLISECONDS = 60_000
# A number that nothing else in this database takes an advisory lock with.
_MIGRATION_LOCK = 0x7A5C_0001


class DatabaseError(Exception):
    """The database is not one that this program can use. The message names it and the way out."""


@contextmanager
def opened(url: str, *, read_only: bool = False) -> Iterator[Engine]:
    """Connect to the database at `url`, make it or bring it up to date, and disconnect at the end.

    Args:
        url: `sqlite:///file` or `postgresql://host/database`.
        read_only: change nothing in it, not even the tables; whoever writes gets the database's own error.

    Raises:
        DatabaseError: it was made by a newer program; or, when it may only be read, it is not there or older.
    """
    engine = _engine(make_url(url), read_only=read_only)
    try:
        if read_only:
            must_be_up_to_date(engine)
        else:
            _bring_up_to_date(engine)
        yield engine
    finally:
        engine.dispose()


def reader(url: str, *, patience_seconds: float) -> Engine:
    """Return an engine that only reads, for a process that lives long and serves many.

    Each use makes a connection of its own: it finds the database as it is then, also where there was none
    before, and never waits for one that stopped to answer meanwhile.

    Args:
        url: as above.
        patience_seconds: how long to wait for somebody else's lock, and for the server to let one in.
    """
    return _engine(make_url(url), read_only=True, patience_seconds=patience_seconds, pool=NullPool)


def _engine(
    url: URL,
    *,
    read_only: bool,
    patience_seconds: float = _PATIENCE_SECONDS,
    pool: type[Pool] | None = None,
) -> Engine:
    milliseconds = round(patience_seconds * 1000)
    if url.get_backend_name() == "sqlite":
        if not read_only:
            Path(url.database or "").parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(url, poolclass=pool)
        set_up = partial(_set_up_sqlite, read_only=read_only, milliseconds=milliseconds)
        event.listen(engine, "begin", _begin_sqlite)
        event.listen(engine, "connect", set_up)
        return engine
    # Psycopg 3, also where a URL of old names no driver. READ COMMITTED, whatever the server's default is:
    # what waited for the fence has to look at it again.
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",
        poolclass=pool,
        connect_args={"connect_timeout": round(patience_seconds)},
    )
    event.listen(
        engine, "connect", partial(_set_up_postgresql, read_only=read_only, milliseconds=milliseconds)
    )
    return engine


def _set_up_sqlite(connection: Any, _record: Any, *, read_only: bool, milliseconds: int) -> None:
    # Python's driver would begin transactions by itself, and never before a SELECT.
    connection.isolation_level = None
    # In WAL mode readers do not wait for the writer.
    mode = "query_only=ON" if read_only else "journal_mode=WAL"
    for pragma in (f"busy_timeout={milliseconds}", mode, "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # SQLite takes its write lock at the first write; by then what was read may be out of date and the
    # transaction fails. A writing transaction therefore takes the lock at its beginning.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if _writes(connection) else "BEGIN")


def _writes(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("writes", False))


def _set_up_postgresql(connection: Any, _record: Any, *, read_only: bool, milliseconds: int) -> None:
    connection.autocommit = True
    for setting in (
        f"lock_timeout = {milliseconds}",
        f"idle_in_transaction_session_timeout = {_FROZEN_MILLISECONDS}",
        f"default_transaction_read_only = {'on' if read_only else 'off'}",
    ):
        connection.execute(f"SET {setting}")
    connection.autocommit = False


# --- the version of the tables ------------------------------------------------------------------------------


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        if not inspect(connection).has_table(_VERSION_TABLE):
            return None
        query = text(f"SELECT version_num FROM {_VERSION_TABLE}")  # noqa: S608  # a constant
        return str(connection.scalar(query))


def insert_once(session: Session, table: Any, row: Mapping[str, Any]) -> bool:
    """Insert a row unless there is one of its key; return whether it was inserted.

    Of two transactions that try at once, the second waits here for the end of the first.
    """
    insert = sqlite.insert if session.connection().dialect.name == "sqlite" else postgresql.insert
    # Drivers count the rows of an INSERT differently, or not at all; what it returns says it everywhere.
    one: Any = insert(table).values(row).on_conflict_do_nothing().returning(literal_column("1"))
    return session.execute(one).first() is not None


def must_be_up_to_date(engine: Engine) -> None:
    """Raise `DatabaseError` when the database is not there, or not of the version that this program reads."""
    if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").exists():
        # To connect would make an empty one.
        raise DatabaseError(
            f"there is no database {engine.url.database} yet; `python -m tasks load` makes it"
        )
    version = _version(engine)
    if version != NEWEST:
        raise DatabaseError(
            f"the database has tables of version {version}, and this program reads {NEWEST}; "
            "`python -m tasks load` brings an older one up to date"
        )


def _bring_up_to_date(engine: Engine) -> None:
    """Make the tables or change them to the newest version, all or nothing, one process at a time."""
    version = _version(engine)
    if version == NEWEST:
        return
    if version is not None and version > NEWEST:
        raise DatabaseError(
            f"the database has tables of version {version}, and this program knows {NEWEST}; "
            "update the program"
        )
    with engine.execution_options(writes=True).begin() as connection:
        _ALONE[connection.dialect.name](connection)
        # Slow to import, and hardly ever needed.
        from tasks.migrations import upgrade  # noqa: PLC0415

        upgrade(connection)


def _alone_in_postgresql(connection: Connection) -> None:
    # Whoever waits for this lock waits for a migration, which may take its time.
    connection.execute(text("SET LOCAL lock_timeout = 0"))
    connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))


def _alone_in_sqlite(_connection: Connection) -> None:
    """A transaction that writes is alone from its beginning."""


_ALONE: dict[str, Callable[[Connection], None]] = {
    "postgresql": _alone_in_postgresql,
    "sqlite": _alone_in_sqlite,
}
