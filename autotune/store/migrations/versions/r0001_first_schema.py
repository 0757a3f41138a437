"""The first schema: trials, and what they share."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates the tables."""
    for name in ("problems", "devices"):
        op.create_table(
            f"autotune_{name}",
            sa.Column("digest", sa.Text, primary_key=True),
            sa.Column("key", sa.Text, nullable=False),
            sa.Column("body", sa.Text, nullable=False),
        )
        op.create_index(f"ix_autotune_{name}_key", f"autotune_{name}", ["key"])
    for name in ("environments", "configs"):
        op.create_table(
            f"autotune_{name}",
            sa.Column("digest", sa.Text, primary_key=True),
            sa.Column("body", sa.Text, nullable=False),
        )
    op.create_table(
        "autotune_trials",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("uid", sa.Text, nullable=False, unique=True),
        sa.Column("study", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("round", sa.Text, nullable=False),
        sa.Column("kernel", sa.Text, nullable=False),
        sa.Column("kernel_hash", sa.Text, nullable=False),
        sa.Column("space_hash", sa.Text, nullable=False),
        sa.Column("config", sa.Text, sa.ForeignKey("autotune_configs.digest"), nullable=False),
        sa.Column("problem", sa.Text, sa.ForeignKey("autotune_problems.digest"), nullable=False),
        sa.Column("device", sa.Text, sa.ForeignKey("autotune_devices.digest"), nullable=False),
        sa.Column("environment", sa.Text, sa.ForeignKey("autotune_environments.digest"), nullable=False),
        sa.Column("protocol", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("resources", sa.JSON, nullable=True),
        sa.Column("accuracy", sa.JSON, nullable=True),
        sa.Column("measurement", sa.JSON, nullable=True),
        sa.Column("predicted_ms", sa.Float, nullable=True),
        sa.Column("board", sa.Text, nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sqlite_autoincrement=True,  # numbers of deleted rows never come again
    )
    op.create_index("ix_autotune_trials_study", "autotune_trials", ["study"])
