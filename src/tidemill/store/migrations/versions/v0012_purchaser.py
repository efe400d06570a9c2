"""The epoch of the purchaser, where that is a process of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("ledger", sa.Column("purchaser_epoch", sa.BigInteger, nullable=False, server_default="0"))
