"""Run by Alembic for every command; the connection comes from ``db.migrate``."""

from __future__ import annotations

from alembic import context

from ferroscope.db.migrations import repeatable  # noqa: F401  # registers itself
from ferroscope.db.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, compare_type=True)
with context.begin_transaction():
    context.run_migrations()
