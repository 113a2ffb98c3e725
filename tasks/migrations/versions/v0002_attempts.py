"""Paid calls: what was reserved and spent for each, and when an ingredient was last asked about."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table of attempts, and let the queue rotate by the last attempt."""
    op.add_column("ingredient", sa.Column("tried_at", sa.String(32)))
    op.create_table(
        "attempt",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("ingredient_id", sa.Integer, sa.ForeignKey("ingredient.id"), nullable=False, index=True),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("delivery", sa.String(255), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("reserved", sa.BigInteger, nullable=False),
        sa.Column("actual", sa.BigInteger),
        sa.Column("tokens_in", sa.BigInteger),
        sa.Column("tokens_out", sa.BigInteger),
        sa.Column("reason", sa.String(100), nullable=False),
        sa.Column("answer", sa.Text),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("settled_at", sa.String(32)),
        sa.UniqueConstraint("request_hash", "delivery", "number", name="attempt_once"),
        sa.Index("attempt_started", "started_at"),
    )
