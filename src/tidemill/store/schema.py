"""The tables, once for both databases. `migrations` has their history.

Columns carry the names of the fields they keep. Fees are whole dollars, as EC2 states them; what hours came to
is in millionths, so that sums do not depend on their order. A price per hour is a rate, not money, and keeps
its floating point: both databases give back the very number.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

from tidemill.model.alerts import AlertEvent, AlertKind, Severity
from tidemill.model.capacity import SourceKind
from tidemill.model.purchase_reasons import ReasonKind
from tidemill.model.purchases import LaunchState, PurchaseState
from tidemill.store.columns import Document, Instant, Names, OneOf, RowNumber, Span

# All versions, oldest first. This code reads and writes the last.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012")

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# One row: the owner of the ledger, and the epochs of the leading engine and of the leading purchaser, where that is a
# process of its own. Every write locks it first, so writes are serial.
ledger = Table(
    "ledger",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("deployment", String, nullable=False),
    Column("account", String, nullable=False),
    Column("region", String, nullable=False),
    Column("cluster", String, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("purchaser_epoch", BigInteger, nullable=False, server_default="0"),
)

launches = Table(
    "launches",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("id", String, nullable=False, unique=True),
    Column("pool", String, nullable=False),
    Column("source_kind", OneOf(SourceKind), nullable=False),
    Column("source_id", String, nullable=False),
    Column("instance_type", String, nullable=False),
    Column("zone", String, nullable=False),
    Column("count", Integer, nullable=False),
    Column("provisioner", String, nullable=False),
    Column("written_at", Instant, nullable=False),
    Column("state", OneOf(LaunchState), nullable=False, index=True),
    Column("state_at", Instant),
    Column("instance_ids", Names, nullable=False),
    Column("failure", String, nullable=False),
    Column("node_class", String, nullable=False),
    Column("least", Integer, nullable=False),
    Column("answer", String, nullable=False),
    Column("failing_since", Instant),
)

# Blocks and extensions alike. `approval_round` counts how often it was put to approval.
purchases = Table(
    "purchases",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("id", String, nullable=False, unique=True),
    Column("plan", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("window", String, nullable=False),
    Column("instance_type", String, nullable=False),
    Column("count", Integer, nullable=False),
    Column("duration", Span, nullable=False),
    Column("earliest_start", Instant, nullable=False),
    Column("latest_start", Instant, nullable=False),
    Column("earliest_end", Instant, nullable=False),
    Column("zones", Names, nullable=False),
    Column("max_fee_usd", BigInteger, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("planned_start", Instant),
    Column("proposer", String, nullable=False),
    Column("proposed_at", Instant, nullable=False),
    Column("state", OneOf(PurchaseState), nullable=False),
    Column("state_at", Instant),
    Column("reservation_ids", Names, nullable=False),
    Column("fee_usd", BigInteger, nullable=False),
    Column("reason", OneOf(ReasonKind)),
    Column("reason_data", Document),
    Column("note", String, nullable=False),
    Column("extends", String, nullable=False),
    Column("offer_id", String, nullable=False),
    Column("start", Instant),
    Column("end", Instant),
    Column("approval_round", Integer, nullable=False),
    Index("ix_purchases_state", "state", "state_at"),
)

# Who decided what, when, about which envelope. Append-only.
verdicts = Table(
    "verdicts",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("purchase_id", String, ForeignKey("purchases.id"), nullable=False, index=True),
    Column("approval_round", Integer, nullable=False),
    Column("who", String, nullable=False),
    Column("at", Instant, nullable=False),
    Column("approved", Boolean, nullable=False),
    Column("note", String, nullable=False),
    Column("envelope", Document, nullable=False),
)

# When people paused the engine and let it go on. Append-only: the last row counts.
pauses = Table(
    "pauses",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("paused", Boolean, nullable=False),
    Column("who", String, nullable=False),
    Column("at", Instant, nullable=False),
    Column("reason", String, nullable=False),
)

# Reservations bought elsewhere, and who adopted them.
adoptions = Table(
    "adoptions",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("reservation_id", String, nullable=False, unique=True),
    Column("pool", String, nullable=False),
    Column("who", String, nullable=False),
    Column("at", Instant, nullable=False),
    Column("given_up", Boolean, nullable=False),
    # As AWS last showed it; all empty: AWS has never shown it.
    Column("kind", OneOf(SourceKind)),
    Column("instance_type", String),
    Column("zone", String),
    Column("count", Integer),
    Column("start", Instant),
    Column("end", Instant),
    Column("lives", Boolean),
)

# Every change in the other tables. Append-only; `before` is empty for a new record.
audit = Table(
    "audit",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("at", Instant, nullable=False),
    Column("who", String, nullable=False),
    Column("what", String, nullable=False),
    Column("subject", String, nullable=False, index=True),
    Column("before", Document),
    Column("after", Document, nullable=False),
)

# Alerts, by occasion. Not audited: each row has its own history.
alerts = Table(
    "alerts",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("key", String, nullable=False, unique=True),
    Column("kind", OneOf(AlertKind), nullable=False),
    Column("severity", OneOf(Severity), nullable=False),
    Column("about", String, nullable=False),
    Column("title", String, nullable=False),
    Column("text", String, nullable=False),
    Column("facts", Document, nullable=False),
    Column("lasts", Boolean, nullable=False),
    Column("first_at", Instant, nullable=False),
    Column("raised_at", Instant, nullable=False),
    Column("occasion", Integer, nullable=False),
    Column("resolved_at", Instant),
)

# Messages about alerts, for each target: an outbox. `due_at` is empty once nothing more is tried.
alert_words = Table(
    "alert_words",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("key", String, ForeignKey("alerts.key"), nullable=False),
    Column("occasion", Integer, nullable=False),
    Column("target", String, nullable=False),
    Column("word", OneOf(AlertEvent), nullable=False),
    Column("made_at", Instant, nullable=False),
    Column("due_at", Instant, index=True),
    Column("attempts", Integer, nullable=False),
    Column("sent_at", Instant),
    Column("failure", String, nullable=False),
    Column("answer", String, nullable=False),
    UniqueConstraint("key", "occasion", "target", "word"),
)

# When an engine last ran, for the watchdog.
heartbeats = Table(
    "heartbeats",
    metadata,
    Column("who", String, primary_key=True),
    Column("at", Instant, nullable=False),
)

# Accelerator hours of blocks by team; the row without a team has the total. A running sum, not money: no audit.
block_hours = Table(
    "block_hours",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("account", String, nullable=False),
    Column("region", String, nullable=False),
    Column("cluster", String, nullable=False),
    Column("reservation_id", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("team", String, nullable=False),
    Column("used_h", Double, nullable=False),
    Column("held_h", Double, nullable=False),
    Index("ix_block_hours_line", "reservation_id", "pool", "team", unique=True),
)

# Instances paid by the hour, from `since` to `until`, and their cost; both empty: still running.
cost_lines = Table(
    "cost_lines",
    metadata,
    Column("seq", RowNumber, primary_key=True),
    Column("instance_id", String, nullable=False, unique=True),
    Column("account", String, nullable=False),
    Column("region", String, nullable=False),
    Column("cluster", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("team", String, nullable=False),
    Column("kind", OneOf(SourceKind), nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("usd_per_hour", Double, nullable=False),
    Column("since", Instant, nullable=False),
    Column("until", Instant, index=True),
    Column("usd_millionths", BigInteger),
)
