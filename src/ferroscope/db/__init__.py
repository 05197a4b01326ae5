"""The store and the queue on SQLAlchemy Core, for SQLite, PostgreSQL, MariaDB and MySQL.

Callers import ``store``, ``transaction`` and ``queue``; the repositories of a transaction are in a file each.
"""
