"""Intents, verdicts and the audit trail, whose lines can be neither changed nor removed."""

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import Document, Instant, Names, RowNumber, Span

revision = "0001"
down_revision = None


def upgrade() -> None:
    _whose()
    _launches()
    _purchases()
    _verdicts()
    _audit()
    _protect()


def _text(name: str, *, unique: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False, unique=unique)


def _instant(name: str) -> sa.Column[object]:
    return sa.Column(name, Instant, nullable=False)


def _whose() -> None:
    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        *(_text(name) for name in ("deployment", "account", "region", "cluster")),
        _instant("created_at"),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
    )


def _launches() -> None:
    op.create_table(
        "launches",
        sa.Column("seq", RowNumber, primary_key=True),
        _text("id", unique=True),
        *(_text(name) for name in ("pool", "source_kind", "source_id", "instance_type", "zone")),
        sa.Column("count", sa.Integer, nullable=False),
        _text("provisioner"),
        _instant("written_at"),
        _text("state"),
        sa.Column("state_at", Instant),
        sa.Column("instance_ids", Names, nullable=False),
        _text("failure"),
    )
    op.create_index("ix_launches_state", "launches", ["state"])


def _purchases() -> None:
    op.create_table(
        "purchases",
        sa.Column("seq", RowNumber, primary_key=True),
        _text("id", unique=True),
        *(_text(name) for name in ("plan", "pool", "window", "instance_type")),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("duration", Span, nullable=False),
        *(_instant(name) for name in ("earliest_start", "latest_start", "earliest_end")),
        sa.Column("zones", Names, nullable=False),
        sa.Column("max_fee_usd", sa.BigInteger, nullable=False),
        _instant("expires_at"),
        _text("proposer"),
        _instant("proposed_at"),
        _text("state"),
        sa.Column("state_at", Instant),
        sa.Column("reservation_ids", Names, nullable=False),
        sa.Column("fee_usd", sa.BigInteger, nullable=False),
        *(_text(name) for name in ("note", "extends", "offer_id")),
        sa.Column("approval_round", sa.Integer, nullable=False),
    )
    op.create_index("ix_purchases_state", "purchases", ["state", "state_at"])


def _verdicts() -> None:
    op.create_table(
        "verdicts",
        sa.Column("seq", RowNumber, primary_key=True),
        sa.Column("purchase_id", sa.String, sa.ForeignKey("purchases.id"), nullable=False),
        sa.Column("approval_round", sa.Integer, nullable=False),
        _text("who"),
        _instant("at"),
        sa.Column("approved", sa.Boolean, nullable=False),
        _text("note"),
        sa.Column("envelope", Document, nullable=False),
    )
    op.create_index("ix_verdicts_purchase_id", "verdicts", ["purchase_id"])


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", RowNumber, primary_key=True),
        _instant("at"),
        *(_text(name) for name in ("who", "what", "subject")),
        sa.Column("before", Document),
        sa.Column("after", Document, nullable=False),
    )
    op.create_index("ix_audit_subject", "audit", ["subject"])


def _protect() -> None:
    """The database itself refuses, whatever program asks: people and later versions of this one alike."""
    protected = {"audit": ("UPDATE", "DELETE"), "verdicts": ("UPDATE", "DELETE"), "purchases": ("DELETE",)}
    if op.get_bind().dialect.name == "sqlite":
        for table, verbs in protected.items():
            for verb in verbs:
                op.execute(
                    f"CREATE TRIGGER {table}_never_{verb.lower()} BEFORE {verb} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{table}: {verb} is not allowed'); END"
                )
        return
    op.execute(
        "CREATE FUNCTION tidemill_never() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '%: % is not allowed', TG_TABLE_NAME, TG_OP; END $$"
    )
    for table, verbs in protected.items():
        op.execute(
            f"CREATE TRIGGER {table}_never BEFORE {' OR '.join((*verbs, 'TRUNCATE'))} ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION tidemill_never()"
        )
