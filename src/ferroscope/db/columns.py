"""Parts of the tables: their metadata, the types of columns, and the options of databases."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Integer, LargeBinary, MetaData, String, Text
from sqlalchemy.dialects import mysql

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

UUID: Final = String(36)
LONG_TEXT: Final = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
LONG_BLOB: Final = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
SERIAL: Final = BigInteger().with_variant(Integer(), "sqlite")
# Binary collation, so that names and UUIDs compare the same on every database.
OPTIONS: Final[dict[str, Any]] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}
OFTEN_UPDATED: Final[dict[str, Any]] = {**OPTIONS, "postgresql_with": {"fillfactor": 60}}
SEQUENCE: Final[dict[str, Any]] = {**OPTIONS, "sqlite_autoincrement": True}
