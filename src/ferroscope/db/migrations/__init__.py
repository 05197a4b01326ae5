"""Alembic's environment and the migrations; ``adapters.sql.migrate`` runs them."""
