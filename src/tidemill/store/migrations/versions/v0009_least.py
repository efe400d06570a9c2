"""How many instances of a launch must come at once, or none."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("launches", sa.Column("least", sa.Integer, nullable=False, server_default="1"))
