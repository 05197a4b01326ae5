"""SQL that each database spells in its own way."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Final, TypeVar

from sqlalchemy import Double, Integer, String, Table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

T = TypeVar("T")

NOW: Final = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
    "mysql": "(UNIX_TIMESTAMP(SYSDATE(6)) + 0E0)",
    "mariadb": "(UNIX_TIMESTAMP(SYSDATE(6)) + 0E0)",
}


class _Spelled(FunctionElement[T]):
    """A function with its text by dialect, or else ``""``; ``{}`` is where its arguments are."""

    inherit_cache = True
    texts: ClassVar[Mapping[str, str]]


@compiles(_Spelled)
def _text(element: _Spelled[Any], compiler: SQLCompiler, **options: Any) -> str:
    text = element.texts.get(compiler.dialect.name) or element.texts[""]
    return text.format(*(compiler.process(part, **options) for part in element.clauses)) if "{}" in text else text


class db_now(_Spelled[float]):  # noqa: N801  # named like an SQL function
    """The database's clock in seconds since the epoch; it advances within a transaction."""

    type = Double()
    inherit_cache = True
    texts = NOW


class Whole(_Spelled[int]):
    """The whole part of a positive number; a cast to an integer is rounded by servers, and not by SQLite."""

    type = Integer()
    inherit_cache = True
    texts: ClassVar = {"": "floor({})", "sqlite": "CAST({} AS INTEGER)"}  # not every SQLite was built with floor()


class Bytes(_Spelled[int]):
    """The length of a text in bytes; NULL if it is NULL. A server returns it without reading a long text."""

    type = Integer()
    inherit_cache = True
    # octet_length is newer than the SQLite of Debian 12, and its length() of a text counts characters.
    texts: ClassVar = {"": "octet_length({})", "sqlite": "length(CAST({} AS BLOB))"}


class Attribute(_Spelled[str]):
    """What to sort by for a value of a document, by its name; NULL if it is missing."""

    type = String()
    inherit_cache = True
    texts: ClassVar = {
        "": "JSON_UNQUOTE(JSON_EXTRACT({}, CONCAT('$.', {})))",
        # It refuses a document with the character 0 anywhere.
        "postgresql": r"json_extract_path_text(CAST(replace({}, '\u0000', '\u0020') AS JSON), {})",
        "sqlite": "json_extract({}, '$.' || {})",
    }


@cache
def upsert(family: str, table: Table) -> Any:
    """Return the INSERT that, if the primary key already exists, replaces the other columns instead."""
    others = [column.name for column in table.columns if not column.primary_key]
    if family in ("mysql", "mariadb"):
        from sqlalchemy.dialects import mysql

        statement = mysql.insert(table)
        return statement.on_duplicate_key_update({name: statement.inserted[name] for name in others})
    if family == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    into = insert(table)
    return into.on_conflict_do_update(
        index_elements=list(table.primary_key.columns), set_={name: into.excluded[name] for name in others}
    )


# MariaDB's default limit of one packet, in bytes.
MIN_PACKET_BYTES: Final = 16 * 1024 * 1024


# The maximum number of bytes to send as one value. Within a ``PACKET``: PyMySQL sends bytes as hexadecimal.
LARGEST_VALUE: Final = {
    "sqlite": sys.maxsize,
    "postgresql": sys.maxsize,
    "mysql": 4 * 1024 * 1024,
    "mariadb": 4 * 1024 * 1024,
}
