"""The sitemap: its URLs, what was announced of them, and when its site may be announced again."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "sitemap_site",
        sa.Column("site", sa.String(300), primary_key=True),
        sa.Column("urls", sa.Integer, nullable=False),
        sa.Column("read_at", sa.String(32), nullable=False),
        sa.Column("rate_limits", sa.Integer, nullable=False),
        sa.Column("not_before", sa.String(32)),
    )
    op.create_table(
        "sitemap_url",
        sa.Column("site", sa.String(300), primary_key=True),
        sa.Column("url", sa.String(2048), primary_key=True),
        sa.Column("fingerprint", sa.String(80), nullable=False),
        sa.Column("announced", sa.String(80)),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("missing", sa.Integer, nullable=False),
        sa.Column("modified_at", sa.String(32)),
        sa.Column("first_seen", sa.String(32), nullable=False),
        sa.Column("announced_at", sa.String(32)),
        sa.Index("sitemap_url_state", "site", "state"),
    )
