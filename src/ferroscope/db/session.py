"""An open transaction as its repositories use it: its statements are buffered, so that one round trip carries several.

A transaction rarely needs a result at once: its writes can be sent with its next read, BEGIN with its first statement,
COMMIT with its last. So ``ask`` only buffers a statement. Reading its answer sends it, after all statements buffered
before it, in their order: the database executes the same sequence as it would without batching.

A condition of the commit (the fence still holds, the row still has the version that was read) is a ``check`` of its
statement: COMMIT is never sent in the same round trip as a statement whose check has not run yet.

``Session`` also collects what to publish on commit; ``transaction.Transaction`` adds the repositories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.sql.elements import ClauseElement

from ferroscope.contracts.errors import LostUpdateError
from ferroscope.contracts.store import NO_CALL, CallContext
from ferroscope.contracts.telemetry import Moved
from ferroscope.core.notification import ChangeView, Subscription
from ferroscope.db.connections import Memory
from ferroscope.db.executor import CommandError, Rows, Send, SqlCommand
from ferroscope.secrets.keys import KeyRing

R = TypeVar("R")

_log = structlog.get_logger(__name__)

Check = Callable[["Answer"], None]
Failed = Callable[[IntegrityError], Exception]

# The constant statements of this package, compiled once to a text for the driver.
#
# An inspection executes about sixty statements, and a third of its total cost was SQLAlchemy's work on each execution.
# Statements whose shape varies (lists with filters, ``IN`` with a list) are executed by SQLAlchemy.

Parameters = dict[str, Any]
NOTHING: Final[Parameters] = {}
# Far more than there are statements; the limit keeps the cache finite whatever queries clients send.
_MAX_COMPILED: Final = 2048


class Compiled(msgspec.Struct, frozen=True):
    """A statement as the driver executes it, with the names of its values by position, if it does not take names."""

    text: str
    positions: tuple[str, ...] | None
    defaults: dict[str, Any]
    answers: bool  # whether it returns rows; asking the driver may cost more than reading them


class CompiledStatements:
    """A cache of the compiled statements of one engine."""

    def __init__(self, engine: Engine) -> None:
        numbered: Any = type(engine.dialect)
        # ``postgresql.send`` calls libpq, which numbers parameters.
        self.dialect = numbered(paramstyle="numeric_dollar") if engine.dialect.driver == "psycopg" else engine.dialect
        # The statement is kept too: its ``id`` is the key, and could be reused after it was freed.
        self.compiled: dict[tuple[int, tuple[str, ...]], tuple[ClauseElement, Compiled]] = {}

    def compile(self, statement: Any, parameters: Parameters) -> Compiled:
        """Compile ``statement`` for parameters of these names, and keep it."""
        compiled = statement.compile(dialect=self.dialect, column_keys=list(parameters))
        compiled_statement = Compiled(
            text=str(compiled),
            positions=tuple(compiled.positiontup) if compiled.positional else None,
            defaults={} if compiled.params.keys() <= parameters.keys() else dict(compiled.params),
            answers=bool(statement.is_select or getattr(statement, "_returning", ())),
        )
        if len(self.compiled) >= _MAX_COMPILED:
            self.compiled.clear()
        self.compiled[id(statement), tuple(parameters)] = (statement, compiled_statement)
        return compiled_statement


class Answer(msgspec.Struct, frozen=True):
    """The result of a statement: its rows, as the driver returned them, and the number of rows affected."""

    rows: Rows
    rowcount: int

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def first(self) -> Any:
        """Return the first row, or None."""
        return self.rows[0] if self.rows else None

    def scalars(self) -> list[Any]:
        """Return the first column."""
        return [row[0] for row in self.rows]


_NOT_YET: Final = Answer((), -1)


class PendingAnswer(SqlCommand, eq=False):
    """A statement passed to ``Session.ask``, and its answer once received."""

    session: Session = None  # type: ignore[assignment]  # fields before it have defaults
    check: Check | None = None
    failed: Failed | None = None
    received: Answer = _NOT_YET

    def answer(self) -> Answer:
        """Return the answer; if necessary, send the buffered statements first."""
        if self.received is _NOT_YET:
            self.session.flush()
        return self.received


_REMOVED: Final = object()


class Written(msgspec.Struct):
    """The rows that a transaction has written. A row's ``mark`` differs after each write: its version, or its time.

    A struct that was read before the same transaction wrote its row must not be written. The version alone would report
    another process where there is none, so the caller would repeat the request for ever. A record without a version
    would be reverted in silence. Such a write is a mistake in the program, so it is raised where it is made.
    """

    _marks: dict[tuple[str, str], object] = {}

    def check(self, kind: str, uuid: str, mark: object) -> None:
        """Raise ``LostUpdateError`` if a struct with this mark is older than what this transaction wrote."""
        written = self._marks.get((kind, uuid), mark)
        if written != mark:
            raise LostUpdateError(kind, uuid, removed=written is _REMOVED)

    def note(self, kind: str, uuid: str, mark: object) -> None:
        """Remember the mark of a row that has been added or updated."""
        self._marks[kind, uuid] = mark

    def removed(self, kind: str, uuid: str) -> None:
        """Remember that a row has been removed."""
        self._marks[kind, uuid] = _REMOVED


class Shared(msgspec.Struct):
    """What all transactions of a store share.

    ``keys`` encrypt secrets of nodes; ``subscriptions`` say which targets get which events. ``claims`` are the tokens
    of the claims that this process holds.

    ``clock`` is the host's, and is None if the database has its own: the last statement that begins a transaction then
    returns the time.
    """

    dialect: Dialect
    send: Send
    statements: CompiledStatements
    clock: Callable[[], float] | None
    monotonic: Callable[[], float]
    memory: Memory
    claims: set[str] = msgspec.field(default_factory=set)
    keys: KeyRing = msgspec.field(default_factory=KeyRing)
    subscriptions: Sequence[Subscription] = ()


class Repository(msgspec.Struct):
    """A part of a transaction: what it does with one kind of rows."""

    _tx: Session


class FirstUse(Generic[R]):
    """Builds a repository when it is first used; a transaction has one thread, so there is nothing to lock."""

    def __init__(self, build: Callable[[Any], R]) -> None:
        self._build = build

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, session: Session, owner: type) -> R:
        # An attribute of the object comes first, so this is called once.
        built = session.__dict__[self._name] = self._build(session)
        session.used.append(self._name)
        return built


class _BeginTime:
    """The database's clock when the transaction began. The first exchange sets it on the session.

    Not a ``cached_property``: before Python 3.12 that holds one lock for the sessions of all threads meanwhile.
    """

    def __get__(self, session: Session, owner: type) -> float:
        session.flush()
        now: float = session.__dict__["now"]
        return now


class Session:
    """A transaction on ``connection``; the statements of ``opening`` begin it.

    On commit, ``begun`` are added to the process's claims and ``ended`` are removed. The messages in ``woken`` are
    published: the name of a channel, and what may follow it. ``transitions`` and ``hardware_changes`` are reported to
    the meter, and the process's memory keeps the ``epochs`` of leases.
    """

    now = _BeginTime()  # in seconds since the epoch

    def __init__(
        self, shared: Shared, connection: Connection, opening: Sequence[SqlCommand], call: CallContext = NO_CALL
    ) -> None:
        self.call = call
        self.keys, self.subscriptions, self.dialect = shared.keys, shared.subscriptions, shared.dialect
        self.claims, self.memory = shared.claims, shared.memory
        self.info = connection.info
        self.used: list[str] = []  # the names of the repositories that were used
        self.woken: set[str] = set()
        self.transitions: list[Moved] = []
        self.hardware_changes: list[ChangeView] = []
        self.begun: set[str] = set()
        self.ended: set[str] = set()
        self.epochs: dict[str, int] = {}
        self.written = Written()
        self.changed_nodes: set[str] = set()  # UUIDs of nodes that are locked, to be changed, or added
        self._shared = shared
        self._connection = connection
        self._opening = opening
        self._waiting: list[PendingAnswer] = []
        self._has_checks = False  # whether any of them has one
        self.is_open = False  # whether anything has been sent
        self.unanswered = False  # the first message failed, and COMMIT was not sent: nothing can have been committed
        self.committing = False  # COMMIT may have been sent, and was not answered
        self.sent_at = 0.0  # the monotonic time of the last exchange's beginning

    @property
    def is_used(self) -> bool:
        """Whether there is anything to commit."""
        return self.is_open or bool(self._waiting)

    @property
    def connection(self) -> Connection:
        """SQLAlchemy's connection, for statements whose shape varies; buffered statements are sent first."""
        self.flush()
        return self._connection

    def ask(
        self,
        statement: ClauseElement,
        parameters: Parameters = NOTHING,
        *,
        check: Check | None = None,
        failed: Failed | None = None,
    ) -> PendingAnswer:
        """Buffer a constant statement; it is sent with the next one whose answer is read.

        ``check`` is called with the answer before COMMIT is sent, and may raise. ``failed`` returns the exception to
        raise if the statement violates a constraint.
        """
        statements = self._shared.statements
        compiled_before = statements.compiled.get((id(statement), tuple(parameters)))
        compiled = statements.compile(statement, parameters) if compiled_before is None else compiled_before[1]
        values: Any = compiled.defaults | parameters if compiled.defaults else parameters
        if compiled.positions is not None:
            values = [*map(values.__getitem__, compiled.positions)]
        pending = PendingAnswer(compiled.text, values, compiled.answers, False, self, check, failed)
        self._waiting.append(pending)
        if check is not None:
            self._has_checks = True
        return pending

    def run(
        self, statement: ClauseElement, parameters: Parameters = NOTHING, *, failed: Failed | None = None
    ) -> Answer:
        """Run a constant statement and return its answer."""
        pending = self.ask(statement, parameters, failed=failed)
        self.flush()
        return pending.received

    def end(self, closing: Sequence[SqlCommand], position: str = "") -> int | None:
        """Send the buffered statements and ``closing``, which begins with COMMIT; nothing if there were no statements.

        ``position`` is a query for a number or NULL, sent immediately before ``closing``; return its answer.
        """
        if self._has_checks:
            self.flush()
        if not self._waiting and not self.is_open:
            return None
        if not position:
            self.flush(closing)
            return None
        asked = PendingAnswer(position, {}, answers=True)
        self._waiting.append(asked)
        self.flush(closing)
        number = asked.received.rows[0][0]
        return None if number is None else int(number)

    def probe(self) -> None:
        """Send what is buffered, or else a query: if the connection is broken, that is found before COMMIT is sent."""
        if not self._waiting and self.is_open:
            self._waiting.append(PendingAnswer("SELECT 1", {}, answers=True))
        self.flush()

    def flush(self, closing: Sequence[SqlCommand] = ()) -> None:
        """Send the buffered statements and ``closing``, and before them BEGIN if it has not been sent yet."""
        if not self._waiting and self.is_open and not closing:
            return
        shared = self._shared
        waiting, self._waiting = self._waiting, []
        first, self.is_open = not self.is_open, True
        opening = self._opening if first else ()
        commands: list[SqlCommand] = [*opening, *waiting, *closing]
        self.unanswered = first and not closing
        self.committing = bool(closing)
        self.sent_at = shared.monotonic()
        try:
            results = shared.send(self._connection, commands)
        except CommandError as exc:
            error = self._translate(exc, commands, waiting, len(opening))
            if exc.sent <= len(opening) + len(waiting):
                self.unanswered, self.committing = first, False
            if not closing or not self._is_committed(exc, len(opening) + len(waiting)):
                raise error from exc.cause
            _log.debug("committed, but others were not notified", error=str(error))
            results = list(exc.results)
        self.unanswered = self.committing = False
        if first:
            began = float(results[len(opening) - 1][0][0][0]) if shared.clock is None else shared.clock()
            self.__dict__["now"] = began
        for pending, (rows, count) in zip(waiting, results[len(opening) :], strict=False):
            pending.received = Answer(rows, count)
        if self._has_checks:
            self._has_checks = False
            for pending in waiting:
                if pending.check is not None:
                    pending.check(pending.received)

    def close(self) -> None:
        """Drop the repositories: they refer back to this object, and the cycle would wait for the garbage collector."""
        for name in self.used:
            del self.__dict__[name]

    def _is_committed(self, error: CommandError, commit: int) -> bool:
        """Whether only what comes after the COMMIT at this place failed; a broken connection is not used again."""
        if error.place <= commit or getattr(error.cause, "unreplicated", False):
            return False
        if self.dialect.is_disconnect(error.cause, self._connection.connection.dbapi_connection, None):
            self._connection.invalidate()
        return True

    def _translate(
        self, error: CommandError, commands: Sequence[SqlCommand], waiting: Sequence[PendingAnswer], before: int
    ) -> Exception:
        """Return SQLAlchemy's error, or the result of the statement's ``failed`` if it violated a constraint."""
        dialect, driver = self.dialect, self._connection.connection.dbapi_connection
        gone = dialect.is_disconnect(error.cause, driver, None)
        kind = dialect.loaded_dbapi.Error
        raised: Exception = DBAPIError.instance(
            commands[error.place].text, None, error.cause, kind, connection_invalidated=gone, dialect=dialect
        )
        pending = waiting[error.place - before] if before <= error.place < before + len(waiting) else None
        if pending is not None and pending.failed is not None and isinstance(raised, IntegrityError):
            return pending.failed(raised)
        return raised
