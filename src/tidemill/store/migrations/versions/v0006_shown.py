"""What AWS last showed of adopted reservations, words that were taken back, and from when to when a purchase lasts."""

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import Instant

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    table = "adoptions"
    op.add_column(table, sa.Column("given_up", sa.Boolean, nullable=False, server_default=sa.false()))
    for name in ("kind", "instance_type", "zone"):
        op.add_column(table, sa.Column(name, sa.String))
    op.add_column(table, sa.Column("count", sa.Integer))
    op.add_column(table, sa.Column("start", Instant))
    op.add_column(table, sa.Column("end", Instant))
    op.add_column(table, sa.Column("lives", sa.Boolean))
    op.add_column("purchases", sa.Column("start", Instant))
    op.add_column("purchases", sa.Column("end", Instant))
