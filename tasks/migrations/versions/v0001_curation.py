"""Labels, the queue of ingredients, answers, rejections, and the fence."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "fence",
        sa.Column("resource", sa.String(200), primary_key=True),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("token", sa.String(200), nullable=False),
    )
    op.create_table(
        "label",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("ref", sa.String(200), nullable=False, unique=True),
        sa.Column("language", sa.String(20), nullable=False),
        sa.Column("product", sa.Text, nullable=False),
        sa.Column("contributor", sa.String(200), nullable=False),
        sa.Column("ingredients", sa.Text, nullable=False),
        sa.Column("loaded_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "ingredient",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("part", sa.Text, nullable=False),
        sa.Column("label_id", sa.Integer, sa.ForeignKey("label.id"), nullable=False),
        sa.Column("contributor", sa.String(200), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("asked", sa.String(200)),
        sa.Column("added_at", sa.String(32), nullable=False),
        sa.Index("ingredient_state", "state", "asked"),
    )
    _make_judgements()


def _make_judgements() -> None:
    op.create_table(
        "answer",
        sa.Column("ingredient_id", sa.Integer, sa.ForeignKey("ingredient.id"), primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("fodmap", sa.String(100), nullable=False),
        sa.Column("gluten", sa.String(20), nullable=False),
        sa.Column("lactose", sa.String(20), nullable=False),
        sa.Column("e_number", sa.String(20)),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("proposal", sa.Text, nullable=False),
        sa.Column("decision", sa.Text, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("answered_at", sa.String(32), nullable=False),
        sa.Column("decided_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "rejection",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("ingredient_id", sa.Integer, sa.ForeignKey("ingredient.id"), nullable=False, index=True),
        sa.Column("verdict", sa.String(20), nullable=False),
        sa.Column("rules", sa.String(100), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("proposal", sa.Text, nullable=False),
        sa.Column("decision", sa.Text, nullable=False),
        sa.Column("asked", sa.String(200), nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("rejected_at", sa.String(32), nullable=False),
    )
