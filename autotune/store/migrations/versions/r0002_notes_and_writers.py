"""Notes beside a trial's figures, who has a file open, and an index for finding the best."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Trials made before have no notes."""
    op.add_column("autotune_trials", sa.Column("notes", sa.JSON, nullable=False, server_default="[]"))
    op.create_index("autotune_trials_lookup", "autotune_trials", ["kernel", "device", "problem", "protocol"])
    op.create_table(
        "autotune_writers",
        sa.Column("boot", sa.Text, primary_key=True),
        sa.Column("pid", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
    )
