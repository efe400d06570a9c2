"""Which NodeClass the nodes of a launch are made from, so that a changed one starts with a clean record."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("launches", sa.Column("node_class", sa.String, nullable=False, server_default=""))
