"""The DB-API module: connections over the simulated network, and errors as the drivers spell them.

A call sends one message, of one statement or of several, and waits for one answer. It can be lost on its way,
or the answer on its way back: then the statements, and even a COMMIT, have taken effect although the caller gets an
error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from ferroscope.db.executor import CommandError, SqlCommand
from tests.simulation.database.errors import SqlError
from tests.simulation.database.server import Server
from tests.simulation.database.sessions import Limits, Result, Said, text_of
from tests.simulation.kernel import Kernel, OverError, Owner
from tests.simulation.network import Link

apilevel = "2.0"
threadsafety = 1
paramstyle = "pyformat"
_POSTGRESQL = {
    "deadlock": "40P01",
    "lock timeout": "55P03",
    "serialization": "40001",
    "aborted": "25P02",
    "unique": "23505",
}
_MARIADB = {"deadlock": 1213, "lock timeout": 1205, "serialization": 1020, "aborted": 1815, "unique": 1062}


class Error(Exception):
    """``sqlstate`` and ``diag`` as psycopg has them, ``args[0]`` the number as PyMySQL has it."""

    sqlstate: str | None = None
    diag: Any = None


class DatabaseError(Error): ...


class OperationalError(DatabaseError): ...


class IntegrityError(DatabaseError): ...


class InterfaceError(Error): ...


class ProgrammingError(DatabaseError): ...


class InternalError(DatabaseError): ...


class DataError(DatabaseError): ...


class NotSupportedError(DatabaseError): ...


class Warning(Exception):  # noqa: A001  # its name in the DB-API
    pass


def Binary(content: bytes) -> bytes:  # noqa: N802  # its name in the DB-API
    return content


class Diagnosis:
    def __init__(self, constraint: str) -> None:
        self.constraint_name = constraint


class Timeouts:
    """How long a client waits: for its words to arrive, for an answer, for a connection."""

    def __init__(self, *, unsent: float, unanswered: float, connect: float) -> None:
        self.unsent = unsent
        self.unanswered = unanswered
        self.connect = connect


class Connection:
    """One connection of one process; without a kernel it answers at once."""

    def __init__(
        self,
        server: Server,
        *,
        name: str,
        limits: Limits,
        kernel: Kernel | None = None,
        link: Link | None = None,
        owner: Owner | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.server = server
        self.closed = False
        self.broken = False
        self._kernel = kernel
        self._link = link
        self._timeouts = timeouts
        self._waiting: tuple[Any, int] | None = None
        self._arrives_at = 0.0
        self.failed_at = 0  # which statement of the last message that failed
        self.session = server.connect(name, limits, self._broke)
        if owner is not None:
            owner.on_death.append(self._died)

    def cursor(self) -> Cursor:
        return Cursor(self)

    def commit(self) -> None:
        if self.session.transaction is not None:
            self.call([("COMMIT", {})])

    def rollback(self) -> None:
        if self.session.transaction is not None and not self.broken:
            self.call([("ROLLBACK", {})])

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._kernel is None or self._link is None:
            self.server.hang_up(self.session)
        elif not self._kernel.over:
            self._link.send(lambda: self.server.hang_up(self.session), None, after=self._arrives_at)

    def _died(self) -> None:
        if not self.closed:
            self.closed = self.broken = True
            self._say_goodbye()

    def _broke(self) -> None:
        """The server has ended this session; a client that waits hears of it."""
        self.broken = True
        if self._kernel is not None and self._link is not None and self._waiting is not None:
            self._link.send(partial(self._kernel.resume, *self._waiting, SqlError("gone")), None)

    def call(self, statements: list[Said]) -> list[Result]:
        """Send one message and return the answer, a result for each statement; the driver's errors."""
        self.failed_at = 0
        if self.closed:
            raise InterfaceError(0, "the connection is closed")
        if self.broken:
            raise self._gone("the connection is lost")
        if self._kernel is None:
            answers: list[list[Result] | SqlError] = []
            self.server.receive(self.session, statements, answers.append)
            answer: Any = answers[0] if answers else SqlError("lock timeout")
        else:
            answer = self._ask(self._kernel, statements)
        if isinstance(answer, SqlError):
            self.failed_at = min(answer.place, len(statements) - 1)
            raise self._error(answer)
        return answer  # type: ignore[no-any-return]

    def _ask(self, kernel: Kernel, statements: list[Said]) -> Any:
        assert self._link is not None
        assert self._timeouts is not None
        link, timeouts, task = self._link, self._timeouts, kernel.me()
        sql = text_of(statements)
        ticket = task.ticket
        self._waiting = (task, ticket)

        def lost() -> None:
            kernel.resume(task, ticket, SqlError("gone"))

        def reply(answer: list[Result] | SqlError) -> None:
            if (link.reset_chance or link.commit_reset_chance) and link.resets(commit=sql.endswith("COMMIT")):
                kernel.say(
                    f"{self.session.name}: the answer to {_short(sql)} is lost, the connection broken", "network"
                )
                self.server.hang_up(self.session)
                kernel.at(link.latency(), lost)
                return
            link.send(partial(kernel.resume, task, ticket, answer), timeouts.unanswered, lost)

        def arrive() -> None:
            self.session.task = task
            self.server.receive(self.session, statements, reply)

        if link.deaf_to and link.swallows(task.name):
            kernel.at(timeouts.unsent, lost)
        elif link.reset_chance and link.resets(commit=False):
            kernel.say(f"{self.session.name}: {_short(sql)} never arrives, the connection is broken", "network")
            kernel.at(link.latency(), lost)
            link.send(lambda: self.server.hang_up(self.session), None)
        else:
            self._arrives_at = link.send(arrive, timeouts.unsent, lost)
        answer = kernel.park()
        self._waiting = None
        if isinstance(answer, SqlError) and answer.kind == "gone" and sql.endswith("COMMIT"):
            task.unanswered = True
        return answer

    def _error(self, error: SqlError) -> Error:
        if error.kind == "gone":
            return self._gone("the server closed the connection")
        kind: type[DatabaseError] = IntegrityError if error.kind == "unique" else OperationalError
        if self.server.family == "mariadb":
            key = "PRIMARY" if error.detail.startswith("pk_") else error.detail
            message = f"Duplicate entry '{error.value}' for key '{key}'" if error.detail else str(error)
            return kind(_MARIADB[error.kind], message)
        raised = kind(str(error))
        raised.sqlstate = _POSTGRESQL[error.kind]
        raised.diag = Diagnosis(error.detail) if error.detail else None
        return raised

    def _gone(self, why: str) -> Error:
        self.broken = True
        if self.server.family == "mariadb":
            return OperationalError(2013, why)
        error = OperationalError(why)
        error.sqlstate = "08006"
        return error


class Cursor:
    """See the DB-API; results are fetched in whole."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.description: Sequence[Any] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self._results: list[Result] = []
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, sql: str, parameters: dict[str, Any] | None = None) -> Cursor:
        self._take(self.connection.call([(sql, dict(parameters) if parameters else {})]))
        return self

    def executemany(self, sql: str, parameters: Sequence[dict[str, Any]]) -> None:
        results = self.connection.call([(sql, dict(values)) for values in parameters])
        self.rowcount = sum(count for _, count, _, _ in results)
        self.description = None

    def _take(self, results: list[Result]) -> None:
        self._results = results
        if results:
            self._rows, self.rowcount, self.lastrowid, width = results.pop(0)
            self.description = _described(width)
        else:
            self._rows, self.description = [], None

    def nextset(self) -> bool | None:
        if not self._results:
            return None
        self._take(self._results)
        return True

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows.pop(0) if self._rows else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        rows, self._rows = self._rows, []
        return rows

    def close(self) -> None: ...

    def setinputsizes(self, *_sizes: Any) -> None: ...

    def setoutputsize(self, *_sizes: Any) -> None: ...


def send(connection: Any, commands: Sequence[SqlCommand]) -> list[tuple[list[tuple[Any, ...]], int]]:
    """What a sender does, with one message."""
    driver: Connection = connection.connection.dbapi_connection
    try:
        results = driver.call([(command.text, dict(command.values or {})) for command in commands])
    except Error as exc:
        raise CommandError(driver.failed_at, exc) from exc
    return [(rows, count) for rows, count, _, _ in results]


def connector(
    server: Server, kernel: Kernel, *, owner: Owner, link: Link, limits: Limits, timeouts: Timeouts, name: str
) -> Callable[[], Connection]:
    """Return a function that connects; it fails as a driver does where nobody answers."""

    def connect() -> Connection:
        if kernel.over:
            raise OverError
        if not link.up:
            kernel.sleep(timeouts.connect)
            if not link.up:
                raise OperationalError("connection timed out")
        if server.down:
            kernel.sleep(min(link.latency(), timeouts.connect))
            raise OperationalError("connection refused")
        return Connection(server, name=name, limits=limits, kernel=kernel, link=link, owner=owner, timeouts=timeouts)

    return connect


@lru_cache
def _described(width: int) -> tuple[Any, ...] | None:
    return tuple((str(place), None, None, None, None, None, None) for place in range(width)) or None


def _short(sql: str) -> str:
    return " ".join(sql.split())[:40]
