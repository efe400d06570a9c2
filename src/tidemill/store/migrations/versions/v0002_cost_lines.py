"""What is paid by the hour, and for whom."""

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import Instant, RowNumber

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    words = ("account", "region", "cluster", "pool", "team", "kind")
    op.create_table(
        "cost_lines",
        sa.Column("seq", RowNumber, primary_key=True),
        sa.Column("instance_id", sa.String, nullable=False, unique=True),
        *(sa.Column(name, sa.String, nullable=False) for name in words),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("usd_per_hour", sa.Double, nullable=False),
        sa.Column("since", Instant, nullable=False),
        sa.Column("until", Instant),
        sa.Column("usd_millionths", sa.BigInteger),
    )
    op.create_index("ix_cost_lines_until", "cost_lines", ["until"])
