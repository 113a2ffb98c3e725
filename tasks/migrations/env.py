"""Run by Alembic for every command; the connection, and the transaction it is in, come from `upgrade`."""

from alembic import context

from tasks.tables import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
with context.begin_transaction():
    context.run_migrations()
