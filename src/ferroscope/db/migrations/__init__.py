"""Alembic's environment and the migrations; ``db.migrate`` runs them."""
