"""When people paused the engine and let it go on."""

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import Instant, RowNumber

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "pauses",
        sa.Column("seq", RowNumber, primary_key=True),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("at", Instant, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
    )
