"""The tables of the store, as they are now; how they came to be is in `migrations/`.

Times are ISO 8601 in UTC, as text: they sort, and mean the same in every database. Fences are 64 bits wide.
"""

from enum import StrEnum

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class IngredientState(StrEnum):
    """Where an ingredient is in the queue."""

    OPEN = "open"  # nobody was asked yet
    ANSWERED = "answered"
    REJECTED = "rejected"
    NEEDS_HUMAN = "needs_human"
    SETTLED = "settled"  # by a human, with an answer or without; never asked about again


class AttemptState(StrEnum):
    """What is known of a paid call."""

    RESERVED = "reserved"  # it has begun, and nobody has said yet how it ended
    DONE = "done"  # the server took the request up and answered it
    REFUSED = "refused"  # the server did not take it up: nothing was spent
    UNKNOWN = "unknown"  # nobody can tell what the server did: the reserve counts as spent


class UrlState(StrEnum):
    """Where a URL of a sitemap is between the site and the search engines."""

    DUE = "due"  # it is to be announced
    PROVISIONAL = "provisional"  # it was, to an endpoint that had not checked the key yet
    ANNOUNCED = "announced"  # as it is now; or it was there before anything was


class Base(DeclarativeBase):
    """What SQLAlchemy knows of all tables."""


class LabelRow(Base):
    """A label as it was loaded."""

    __tablename__ = "label"

    id: Mapped[int] = mapped_column(primary_key=True)
    ref: Mapped[str] = mapped_column(String(200), unique=True)  # the id that the contributor gave
    language: Mapped[str] = mapped_column(String(20))
    product: Mapped[str] = mapped_column(Text)
    contributor: Mapped[str] = mapped_column(String(200))
    ingredients: Mapped[str] = mapped_column(Text)
    loaded_at: Mapped[str] = mapped_column(String(32))


class IngredientRow(Base):
    """The queue. `label_id` and `contributor` are the first that needed the ingredient."""

    __tablename__ = "ingredient"
    __table_args__ = (Index("ingredient_state", "state", "asked"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)  # the part's key
    part: Mapped[str] = mapped_column(Text)
    label_id: Mapped[int] = mapped_column(ForeignKey("label.id"))
    contributor: Mapped[str] = mapped_column(String(200))
    state: Mapped[IngredientState] = mapped_column(String(20))
    attempts: Mapped[int]
    asked: Mapped[str | None] = mapped_column(String(200))  # the versions that last judged it
    added_at: Mapped[str] = mapped_column(String(32))
    tried_at: Mapped[str | None] = mapped_column(String(32))  # when a paid call about it was last begun


class AttemptRow(Base):
    """One paid call. What it cost is `actual`, and `reserved` as long as that is not known.

    `delivery` is the message that the run came with: a copy of it asks nothing that it asked already.
    """

    __tablename__ = "attempt"
    __table_args__ = (
        UniqueConstraint("request_hash", "delivery", "number", name="attempt_once"),
        Index("attempt_started", "started_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    ingredient_id: Mapped[int] = mapped_column(ForeignKey("ingredient.id"), index=True)
    request_hash: Mapped[str] = mapped_column(String(64))
    delivery: Mapped[str] = mapped_column(String(255))
    number: Mapped[int]  # 1, or 2 for the one more try inside a run
    state: Mapped[AttemptState] = mapped_column(String(20))
    reserved: Mapped[int] = mapped_column(BigInteger)  # micro-units of the currency
    actual: Mapped[int | None] = mapped_column(BigInteger)
    tokens_in: Mapped[int | None] = mapped_column(BigInteger)
    tokens_out: Mapped[int | None] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(String(100))
    answer: Mapped[str | None] = mapped_column(Text)
    fence: Mapped[int] = mapped_column(BigInteger)
    started_at: Mapped[str] = mapped_column(String(32))
    settled_at: Mapped[str | None] = mapped_column(String(32))


class AnswerRow(Base):
    """The answer for an ingredient."""

    __tablename__ = "answer"

    ingredient_id: Mapped[int] = mapped_column(ForeignKey("ingredient.id"), primary_key=True)
    state: Mapped[str] = mapped_column(String(20))
    fodmap: Mapped[str] = mapped_column(String(100))
    gluten: Mapped[str] = mapped_column(String(20))
    lactose: Mapped[str] = mapped_column(String(20))
    e_number: Mapped[str | None] = mapped_column(String(20))
    reason: Mapped[str] = mapped_column(Text)
    proposal: Mapped[str] = mapped_column(Text)
    decision: Mapped[str] = mapped_column(Text)
    fence: Mapped[int] = mapped_column(BigInteger)
    # Of the first answer; stays when a better one replaces it.
    answered_at: Mapped[str] = mapped_column(String(32))
    decided_at: Mapped[str] = mapped_column(String(32))


class RejectionRow(Base):
    """What was not accepted: rejected, or left to a human."""

    __tablename__ = "rejection"

    id: Mapped[int] = mapped_column(primary_key=True)
    ingredient_id: Mapped[int] = mapped_column(ForeignKey("ingredient.id"), index=True)
    verdict: Mapped[str] = mapped_column(String(20))
    rules: Mapped[str] = mapped_column(String(100))
    reason: Mapped[str] = mapped_column(Text)
    proposal: Mapped[str] = mapped_column(Text)
    decision: Mapped[str] = mapped_column(Text)
    asked: Mapped[str] = mapped_column(String(200))
    fence: Mapped[int] = mapped_column(BigInteger)
    rejected_at: Mapped[str] = mapped_column(String(32))


class SitemapSiteRow(Base):
    """A site whose sitemap has been read as a whole at least once."""

    __tablename__ = "sitemap_site"

    site: Mapped[str] = mapped_column(String(300), primary_key=True)  # host, and port where it is unusual
    urls: Mapped[int]
    read_at: Mapped[str] = mapped_column(String(32))
    # How often in a row the endpoint has said that it is asked too often, and when it may be asked again.
    rate_limits: Mapped[int]
    not_before: Mapped[str | None] = mapped_column(String(32))


class SitemapUrlRow(Base):
    """A URL of a sitemap. A fingerprint is what a change shows by; "" is that of a page that is gone."""

    __tablename__ = "sitemap_url"
    __table_args__ = (Index("sitemap_url_state", "site", "state"),)

    site: Mapped[str] = mapped_column(String(300), primary_key=True)
    url: Mapped[str] = mapped_column(String(2048), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(80))
    announced: Mapped[str | None] = mapped_column(String(80))  # the fingerprint that was announced last
    state: Mapped[UrlState] = mapped_column(String(20))
    missing: Mapped[int]  # in so many readings in a row, counted up to 2
    modified_at: Mapped[str | None] = mapped_column(String(32))  # what the sitemap says; for people
    first_seen: Mapped[str] = mapped_column(String(32))
    announced_at: Mapped[str | None] = mapped_column(String(32))


class FenceRow(Base):
    """The highest fence seen of each resource. Never deleted: without its row, an old run could write."""

    __tablename__ = "fence"

    resource: Mapped[str] = mapped_column(String(200), primary_key=True)
    fence: Mapped[int] = mapped_column(BigInteger)
    token: Mapped[str] = mapped_column(String(200))


# --- rewards: what is settled is never changed, the database refuses it -------------------------------------


class SettlementRow(Base):
    """A settled month. Amounts are minor units of its currency."""

    __tablename__ = "settlement"

    period: Mapped[str] = mapped_column(String(7), primary_key=True)
    pool: Mapped[int] = mapped_column(BigInteger)
    carried: Mapped[int] = mapped_column(BigInteger)
    currency: Mapped[str] = mapped_column(String(3))
    input_hash: Mapped[str] = mapped_column(String(64))
    fence: Mapped[int] = mapped_column(BigInteger)
    settled_at: Mapped[str] = mapped_column(String(32))


class CountedAnswerRow(Base):
    """An answer that a settled month counts; the key says that no other one does."""

    __tablename__ = "counted_answer"

    ingredient_id: Mapped[int] = mapped_column(ForeignKey("answer.ingredient_id"), primary_key=True)
    period: Mapped[str] = mapped_column(ForeignKey("settlement.period"), index=True)
    answered_in: Mapped[str] = mapped_column(String(7))
    contributor: Mapped[str] = mapped_column(String(200))


class PayoutRow(Base):
    """What a contributor gets for a month, and by which weight."""

    __tablename__ = "payout"

    period: Mapped[str] = mapped_column(ForeignKey("settlement.period"), primary_key=True)
    contributor: Mapped[str] = mapped_column(String(200), primary_key=True)
    weight: Mapped[int] = mapped_column(BigInteger)
    amount: Mapped[int] = mapped_column(BigInteger)


class LedgerEntryRow(Base):
    """A line of the ledger. The lines of one transaction sum to zero; balances are sums over lines."""

    __tablename__ = "ledger_entry"
    __table_args__ = (
        UniqueConstraint("txn", "account", name="ledger_entry_once"),
        Index("ledger_entry_account", "account"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    txn: Mapped[str] = mapped_column(String(50))
    account: Mapped[str] = mapped_column(String(220))
    amount: Mapped[int] = mapped_column(BigInteger)
    currency: Mapped[str] = mapped_column(String(3))


class PayoutOutboxRow(Base):
    """A payout for whoever sends the money; the key makes sending it twice one payment."""

    __tablename__ = "payout_outbox"
    __table_args__ = (
        ForeignKeyConstraint(["period", "contributor"], ["payout.period", "payout.contributor"]),
    )

    key: Mapped[str] = mapped_column(String(210), primary_key=True)
    period: Mapped[str] = mapped_column(String(7))
    contributor: Mapped[str] = mapped_column(String(200))
    amount: Mapped[int] = mapped_column(BigInteger)
    currency: Mapped[str] = mapped_column(String(3))
    created_at: Mapped[str] = mapped_column(String(32))
