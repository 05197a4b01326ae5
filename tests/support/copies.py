"""Databases of each kind to copy from and to: with odd values in all tables, and what is in them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    LargeBinary,
    String,
    Table,
    event,
    insert,
    select,
)

from ferroscope.config.options import Settings
from ferroscope.db import migrate
from ferroscope.db.copying import copy as database_copy
from ferroscope.db.copying.copy import Copied, Stage
from ferroscope.db.copying.tables import COPIED
from tests.support.databases import opened
from tests.support.upgrades import ended, forked

PAIRS: Final = [("sqlite", "postgresql"), ("postgresql", "mariadb"), ("mariadb", "sqlite")]
_TEXTS: Final = (
    "",
    "naïve 日本語 🧀",
    "quote ' \" \\ % %s %(name)s ; -- :x ?",
    "line\nbreak\ttab\r\x01\x7f",
    '{"a":"\\u0000"}',
)
# More than MariaDB takes in one statement.
_LARGE: Final = 5 * 1024 * 1024


@contextmanager
def silent(_title: str, _total: int) -> Iterator[Callable[[int], None]]:
    """A stage whose progress nobody sees."""
    yield lambda _done: None


def copy(
    source: str, destination: str, *, stage: Stage = silent, settings: Settings | None = None, **more: Any
) -> Copied:
    return database_copy.copy(settings or Settings(), source, destination, stage, **more)


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    with opened(url) as engine, engine.connect() as connection:
        yield connection


def fill(url: str) -> None:
    """Put rows with odd values into every table that is copied: the longest, the largest, and as little as possible."""
    with connected(url) as connection:
        for table in COPIED:
            connection.execute(table.delete())
            if table.name == "secret_keys":  # of keys that nobody has
                continue
            for number in range(1, 6):
                connection.execute(insert(table), {column.name: _value(column, number) for column in table.columns})
        large = {"inspection": "large", "part": "logs", "node": "n", "codec": "zlib", "created_at": 0.5}
        connection.execute(insert(_table("inspection_data")), large | {"content": os.urandom(_LARGE)})
        nodes = _table("nodes")
        connection.execute(nodes.update().where(nodes.c.uuid == "name").values(last_error="🧀" * (_LARGE // 4)))


def _table(name: str) -> Table:
    return next(table for table in COPIED if table.name == name)


def _value(column: Column[Any], number: int) -> Any:
    kind = column.type
    if number == 2 and column.nullable:
        return None
    if isinstance(kind, Boolean):
        return number % 2 == 0
    if isinstance(kind, Double):
        return (0.1 + 0.2, 0.0, 1.7e308, 1764180000.123456, 5e-324)[number - 1]
    if isinstance(kind, LargeBinary):
        return (b"", bytes(range(256)), b"\0" * 70_000, os.urandom(300_000), b"'\\")[number - 1]
    if isinstance(kind, String):
        return _text(kind.length, number)
    if column.primary_key:
        return (1 << 40) + number if column.autoincrement is True else number
    return number if number % 2 else -(1 << (62 if isinstance(kind, BigInteger) else 30))


def _text(length: int | None, number: int) -> str:
    if length is None:
        return _TEXTS[number - 1]
    # Names that differ in nothing but case, and the longest, of characters of four bytes each.
    return ("name", "NAME", "näme", "🧀" * length, f"{'x' * (length - 1)}é")[number - 1][:length]


def dump(url: str) -> dict[str, list[str]]:
    """Return all rows of all copied tables."""
    with connected(url) as connection:
        return {table.name: sorted(repr(tuple(row)) for row in connection.execute(select(table))) for table in COPIED}


def version(url: str) -> str | None:
    with opened(url) as engine:
        return migrate.current(engine)


def killed(source: str, destination: str, after: int) -> bool:
    """Copy in a process that kills itself at the statement of this number; whether it came to that."""

    def work() -> None:
        statements = iter(range(1, 1 << 30))

        def count(*_: Any) -> None:
            if next(statements) == after:
                os.kill(os.getpid(), signal.SIGKILL)

        build = database_copy.build_engine

        def counted(settings: Any) -> Any:
            engine = build(settings)
            if settings.connection == destination:
                event.listen(engine, "after_cursor_execute", count)
            return engine

        database_copy.build_engine = counted  # type: ignore[attr-defined]  # in a process of its own
        copy(source, destination)

    code = ended(forked(work))
    assert code in (0, -signal.SIGKILL)
    return code != 0
