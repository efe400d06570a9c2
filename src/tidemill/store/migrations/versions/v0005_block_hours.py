"""Accelerator hours of blocks, by pool and team."""

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import RowNumber

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    words = ("account", "region", "cluster", "reservation_id", "pool", "team")
    op.create_table(
        "block_hours",
        sa.Column("seq", RowNumber, primary_key=True),
        *(sa.Column(name, sa.String, nullable=False) for name in words),
        sa.Column("used_h", sa.Double, nullable=False),
        sa.Column("held_h", sa.Double, nullable=False),
    )
    line = ["reservation_id", "pool", "team"]
    op.create_index("ix_block_hours_line", "block_hours", line, unique=True)
