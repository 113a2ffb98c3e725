"""Settled months: the answers they count, payouts, the ledger, and what is to be paid out."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_FINAL = ("settlement", "counted_answer", "payout", "ledger_entry")
_REFUSAL = "settled rows are final; correct them with further entries"


def upgrade() -> None:
    """Make the tables, and let the database refuse changes of what is settled."""
    op.create_table(
        "settlement",
        sa.Column("period", sa.String(7), primary_key=True),
        sa.Column("pool", sa.BigInteger, nullable=False),
        sa.Column("carried", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("input_hash", sa.String(64), nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("settled_at", sa.String(32), nullable=False),
        sa.CheckConstraint(_is_month("period"), name="settlement_period"),
        sa.CheckConstraint("pool >= 0 AND carried >= 0", name="settlement_amounts"),
        sa.CheckConstraint("length(currency) = 3", name="settlement_currency"),
        sa.CheckConstraint("length(input_hash) = 64", name="settlement_input_hash"),
    )
    _make_answers()
    _make_payouts()
    _make_ledger()
    for table in _FINAL:
        _make_final(table)


def _is_month(column: str) -> str:
    if op.get_bind().dialect.name == "postgresql":
        return f"{column} ~ '^20[0-9][0-9]-(0[1-9]|1[0-2])$'"
    return f"{column} GLOB '20[0-9][0-9]-0[1-9]' OR {column} GLOB '20[0-9][0-9]-1[0-2]'"


def _make_answers() -> None:
    op.create_table(
        "counted_answer",
        sa.Column("ingredient_id", sa.Integer, sa.ForeignKey("answer.ingredient_id"), primary_key=True),
        sa.Column("period", sa.String(7), sa.ForeignKey("settlement.period"), nullable=False, index=True),
        sa.Column("answered_in", sa.String(7), nullable=False),
        sa.Column("contributor", sa.String(200), nullable=False),
        sa.CheckConstraint(_is_month("answered_in"), name="counted_answer_month"),
        sa.CheckConstraint("answered_in <= period", name="counted_answer_order"),
    )


def _make_payouts() -> None:
    op.create_table(
        "payout",
        sa.Column("period", sa.String(7), sa.ForeignKey("settlement.period"), primary_key=True),
        sa.Column("contributor", sa.String(200), primary_key=True),
        sa.Column("weight", sa.BigInteger, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.CheckConstraint("weight > 0", name="payout_weight"),
        sa.CheckConstraint("amount >= 0", name="payout_amount"),
    )
    op.create_table(
        "payout_outbox",
        sa.Column("key", sa.String(210), primary_key=True),
        sa.Column("period", sa.String(7), nullable=False),
        sa.Column("contributor", sa.String(200), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.ForeignKeyConstraint(["period", "contributor"], ["payout.period", "payout.contributor"]),
        sa.CheckConstraint("key = period || ':' || contributor", name="payout_outbox_key"),
        sa.CheckConstraint("amount > 0", name="payout_outbox_amount"),
    )


def _make_ledger() -> None:
    op.create_table(
        "ledger_entry",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("txn", sa.String(50), nullable=False),
        sa.Column("account", sa.String(220), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.UniqueConstraint("txn", "account", name="ledger_entry_once"),
        sa.CheckConstraint("amount <> 0", name="ledger_entry_amount"),
        sa.Index("ledger_entry_account", "account"),
    )


def _make_final(table: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$"
        )
        op.execute(
            f"CREATE TRIGGER {table}_is_final BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        )
