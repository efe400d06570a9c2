"""Reservations bought elsewhere: ours by somebody's word."""

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import Instant, RowNumber

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "adoptions",
        sa.Column("seq", RowNumber, primary_key=True),
        sa.Column("reservation_id", sa.String, nullable=False, unique=True),
        sa.Column("pool", sa.String, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("at", Instant, nullable=False),
    )
