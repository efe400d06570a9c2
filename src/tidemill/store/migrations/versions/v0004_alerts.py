"""Alerts, what each target was told of them, and when the engine was last heard of."""

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import Document, Instant, RowNumber

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "alerts",
        sa.Column("seq", RowNumber, primary_key=True),
        sa.Column("key", sa.String, nullable=False, unique=True),
        *(_text(name) for name in ("kind", "severity", "about", "title", "text")),
        sa.Column("facts", Document, nullable=False),
        sa.Column("lasts", sa.Boolean, nullable=False),
        sa.Column("first_at", Instant, nullable=False),
        sa.Column("raised_at", Instant, nullable=False),
        sa.Column("occasion", sa.Integer, nullable=False),
        sa.Column("resolved_at", Instant),
    )
    op.create_table(
        "alert_words",
        sa.Column("seq", RowNumber, primary_key=True),
        sa.Column("key", sa.String, sa.ForeignKey("alerts.key"), nullable=False),
        sa.Column("occasion", sa.Integer, nullable=False),
        _text("target"),
        _text("word"),
        sa.Column("made_at", Instant, nullable=False),
        sa.Column("due_at", Instant),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("sent_at", Instant),
        _text("failure"),
        _text("answer"),
        sa.UniqueConstraint("key", "occasion", "target", "word"),
    )
    op.create_index("ix_alert_words_due_at", "alert_words", ["due_at"])
    op.create_table(
        "heartbeats",
        sa.Column("who", sa.String, primary_key=True),
        sa.Column("at", Instant, nullable=False),
    )


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False)
