"""The store and the queue on SQLAlchemy Core, for SQLite, PostgreSQL, MariaDB and MySQL."""
