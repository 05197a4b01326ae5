"""The store and the queue on SQLAlchemy Core: SQLite, PostgreSQL, MariaDB and MySQL alike."""
