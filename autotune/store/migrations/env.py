"""Run by Alembic for each command; the connection comes from `autotune.store.schema`."""

from alembic import context

from autotune.store.models import Base
from autotune.store.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    include_name=lambda name, kind, _: kind != "table" or (name or "").startswith("autotune_"),
)
with context.begin_transaction():
    context.run_migrations()
