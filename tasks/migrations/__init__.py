"""The tables' history: one file a version in `versions/`, applied when a database is opened.

A new version is a new file with the next number there, and that number as `NEWEST` in `tasks.database`.
What a version did is never changed afterwards: databases that have it would not notice.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect

#: The tables as they were when there was no history yet.
_BEFORE_HISTORY = "0001"


def upgrade(connection: Connection) -> None:
    """Bring the tables to the newest version, inside the transaction of `connection`.

    A database from before there was a history is taken over as it is.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    tables = inspect(connection)
    if tables.has_table("fence") and not tables.has_table("alembic_version"):
        command.stamp(config, _BEFORE_HISTORY)
    command.upgrade(config, "head")
