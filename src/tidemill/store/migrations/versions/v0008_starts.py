"""Of which NodeClass a node was that never became Ready; when the offer starts that a purchase was proposed for."""

import sqlalchemy as sa
from alembic import op

from tidemill.store.columns import Instant

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("launches", sa.Column("node_class", sa.String, nullable=False, server_default=""))
    op.add_column("purchases", sa.Column("planned_start", Instant))
