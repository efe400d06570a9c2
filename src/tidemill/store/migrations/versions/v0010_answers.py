"""What AWS said of a launch that failed, and since when launches there have failed."""

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import Instant

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("launches", sa.Column("answer", sa.String, nullable=False, server_default=""))
    op.add_column("launches", sa.Column("failing_since", Instant))
