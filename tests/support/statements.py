"""Records which SQL statements the tests send: each text once, with its first values, for ``tests.support.plans``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from sqlalchemy import Connection, Engine, event

from ferroscope.db import store
from ferroscope.db.executor import Command, Database, Result

_READ_OR_CHANGE: Final = ("SELECT", "UPDATE", "DELETE")


@contextmanager
def recording(file: Path) -> Iterator[None]:
    """Append to the file what any store of this process sends until the end of the block."""
    known = set[tuple[str, str]]()
    build: Callable[[str], Database] = store.database_of

    def note(connection: Connection, text: str, values: Any) -> None:
        kind = connection.dialect.name
        if text.startswith(_READ_OR_CHANGE) and (kind, text) not in known:
            known.add((kind, text))
            with file.open("a") as output:
                output.write(json.dumps([kind, text, values], default=repr) + "\n")

    def database_of(family: str) -> Any:
        database = build(family)
        send = database.send

        def recorded(connection: Connection, commands: Sequence[Command]) -> list[Result]:
            for command in commands:
                note(connection, command.text, command.values)
            return send(connection, commands)

        return SimpleNamespace(opening=database.opening, closing=database.closing, send=recorded)

    def executed(connection: Connection, _cursor: Any, text: str, values: Any, *_: Any) -> None:
        note(connection, text, values)

    event.listen(Engine, "before_cursor_execute", executed)
    with mock.patch.object(store, "database_of", database_of):
        yield
    event.remove(Engine, "before_cursor_execute", executed)
