"""``ferroscope db copy``: all that is stored moves to another database, while no process of the service runs.

The source is only read, in one snapshot, and never changed. The destination is marked as incomplete until everything in
it was read back and is equal (``db.copying.destination``), so a copy that failed or was killed is no loss: it starts
over. Memory does not depend on the number of machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final

import msgspec
from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import DBAPIError, IntegrityError

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.core.finding import MAX_CLOCK_SKEW_SECONDS
from ferroscope.db import executor, location, migrate
from ferroscope.db.copying import tables
from ferroscope.db.copying.destination import Destination, OtherCopyError
from ferroscope.db.copying.reading import batches
from ferroscope.db.copying.values import Checksum, ColumnLimits, Converter, OddValueError, Row
from ferroscope.db.engine import build_engine
from ferroscope.db.errors import described, violated_constraint
from ferroscope.db.prepare import SchemaError, explained, schema_problem
from ferroscope.db.sqlite import waiting
from ferroscope.db.url import DatabaseUrlError, parse_url
from ferroscope.secrets.keys import key_ring
from ferroscope_client.core.values import many

# Time limit of a statement, and of a pause between two, in seconds: the source is idle while the destination writes.
_STATEMENT_SECONDS: Final = 600.0
_LOCK_TIMEOUT: Final = 30.0

Advance = Callable[[int], None]
# Begins a stage with this title and number of rows, and yields the function that counts rows as done.
Stage = Callable[[str, int], AbstractContextManager[Advance]]


class CopyError(Exception):
    """The copy is refused, or failed: ``advice`` says what to do."""

    def __init__(self, summary: str, advice: str = "") -> None:
        super().__init__(summary)
        self.advice = advice


class CopiedTable(msgspec.Struct, frozen=True):
    """``checksum``: the same for the same rows on every database."""

    name: str
    rows: int
    checksum: str


class LeftTable(msgspec.Struct, frozen=True):
    """Rows that are not copied, and why."""

    name: str
    rows: int
    why: str


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied, or with a dry run what would be; ``notes`` are worth knowing."""

    source: str
    destination: str
    tables: list[CopiedTable]
    left: list[LeftTable]
    notes: list[str]


# Asks for the password of the user and server that it is called with.
Ask = Callable[[str], str]


def copy(
    settings: Settings,
    source: str,
    destination: str,
    stage: Stage,
    *,
    dry_run: bool = False,
    ask_password: Ask | None = None,
) -> Copied:
    """Copy the database at the URL ``source`` to the one at ``destination``; the key file is that of ``settings``.

    A dry run checks everything, reads all rows, and changes nothing. ``CopyError``; ``SchemaError``: a schema is not
    that of this release; ``SetupError``: a package, or the key file, is missing; ``StoreUnavailableError``.
    """
    with ExitStack() as stack:
        source_side = _Side(settings, source, "source", ask_password)
        destination_side = _Side(settings, destination, "destination", ask_password)
        _check_different(source_side, destination_side)
        stack.enter_context(source_side.opened())
        notes = _check_source(source_side, settings, dry_run=dry_run)
        stack.enter_context(destination_side.opened(create=not dry_run))
        present_schema = _check_destination(destination_side, dry_run=dry_run)
        notes += _clocks(source_side, destination_side)
        since = [0.0 if dry_run else side.now() for side in (source_side, destination_side)]
        with source_side.snapshot():
            copying = _Copying(source_side, destination_side, stage)
            copying.read(None if dry_run else Destination(destination_side.connection, present_schema))
            left = copying.left()
        if not dry_run:
            copying.verify()
            for side, began, role in zip(
                (source_side, destination_side), since, ("source", "destination"), strict=True
            ):
                _refuse_processes(side, f"a process was started on the {role} during the copy", began)
            copying.complete()
        return Copied(
            source=source_side.place,
            destination=destination_side.place,
            tables=copying.done,
            left=left,
            notes=notes + copying.notes(),
        )


class _Side:
    """One of the two databases; ``name`` says which."""

    def __init__(self, settings: Settings, url: str, name: str, ask_password: Ask | None) -> None:
        try:
            parsed = parse_url(url)
        except DatabaseUrlError as exc:
            raise CopyError(f"the URL of the {name} is invalid: {exc.summary}", exc.advice) from exc
        if ask_password is not None and parsed.username and parsed.password is None:
            url = parsed.set(password=ask_password(name) or None).render_as_string(hide_password=False)
        self.settings: DatabaseSettings = msgspec.structs.replace(
            settings.database, connection=url, statement_timeout=_STATEMENT_SECONDS
        )
        with explained():
            self.place = location.place(self.settings)
            self.engine: Engine = build_engine(self.settings)
        self.file = location.file_of(self.settings)
        self._connection: Connection | None = None

    @property
    def exists(self) -> bool:
        return self._connection is not None

    @property
    def connection(self) -> Connection:
        assert self._connection is not None  # noqa: S101  # ``opened`` comes first
        return self._connection

    @contextmanager
    def opened(self, *, create: bool = False) -> Iterator[None]:
        """Connect; a file of SQLite that does not exist is not created without ``create``."""
        if not create and location.missing(self.settings):
            yield
            return
        try:
            with self.errors("open"):
                if create:
                    location.refuse_others(self.settings)
                location.make_directory(self.settings)
                self._connection = self.engine.connect()
            with waiting(self._connection, _LOCK_TIMEOUT):
                yield
        finally:
            if self._connection is not None:
                self._connection.invalidate()
                self._connection.close()
            self.engine.dispose()

    @contextmanager
    def errors(self, doing: str, advice: str = "") -> Iterator[None]:
        """Explain errors of this database; ``CopyError``."""
        try:
            yield
        except IntegrityError as exc:
            constraint = violated_constraint(exc) or "a constraint"
            raise CopyError(
                f"cannot {doing} {self.place}: two rows of the source are the same to it ({constraint})",
                "it may ignore spaces at the end, or a character was replaced; rename one of the two in the source",
            ) from exc
        except DBAPIError as exc:
            # SQLite's message would quote the value.
            reason = described(exc).partition(" with text ")[0]
            raise CopyError(f"cannot {doing} {self.place}: {reason}", advice) from exc

    def now(self) -> float:
        with self.errors("read"):
            return tables.now(self.connection)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read what is committed now, until the end of the block."""
        with self.errors("read"):
            for statement in executor.database_of(self.connection.dialect.name).opening(False, False, True):
                self.connection.exec_driver_sql(statement.text)
        try:
            yield
        finally:
            executor.rollback(self.connection)


def _check_different(source_side: _Side, destination_side: _Side) -> None:
    same_file = (
        source_side.file
        and destination_side.file
        and destination_side.file.exists()
        and source_side.file.exists()
        and source_side.file.samefile(destination_side.file)
    )
    if same_file or source_side.place == destination_side.place:
        raise CopyError("source and destination are the same database")


def _check_source(side: _Side, settings: Settings, *, dry_run: bool) -> list[str]:
    """Check that the source can be copied; return notes."""
    if not side.exists:
        raise CopyError(f"the database file {side.file} does not exist", "correct the URL of the source")
    with side.errors("read"):
        schema_version = migrate.current(side.engine)
        if schema_version != migrate.HEAD:
            raise SchemaError(*_problem(side, schema_version))
        if missing := key_ring(settings).missing(tables.keys_in_use(side.connection)):
            raise CopyError(
                f"[secrets] key_file lacks the key {', '.join(missing)}, with which secrets of nodes are encrypted",
                "they are copied as they are: give this command and the service on the destination the "
                "same key file (-c, or OS_SECRETS__KEY_FILE)",
            )
    if dry_run:
        with side.errors("read"):
            running = len(tables.processes(side.connection))
        processes = many(running, "process", "processes")
        return [f"the service is running on the source: {processes}; stop all before the copy"] if running else []
    _refuse_processes(side, "the service is running on the source")
    return []


def _check_destination(side: _Side, *, dry_run: bool) -> str:
    """Check that the destination is empty, or holds an incomplete copy; return the mark that replaces its version."""
    with side.errors("read"):
        schema_version = migrate.current(side.engine) if side.exists else None
    if schema_version is None:
        if not dry_run:
            migrate.upgrade(side.engine)
        return migrate.HEAD
    if schema_version.startswith(migrate.COPYING):
        return schema_version
    if schema_version != migrate.HEAD:
        raise SchemaError(*_problem(side, schema_version))
    _refuse_processes(side, "the service is running on the destination")
    with side.errors("read"):
        filled = tables.filled(side.connection)
    if filled:
        shown = ", ".join(filled[:5]) + (f" and {many(len(filled) - 5, 'more table')}" if len(filled) > 5 else "")
        raise CopyError(
            f"the destination {side.place} is not empty: it has rows in {shown}",
            "give a new database; nothing is overwritten or merged",
        )
    return schema_version


def _problem(side: _Side, schema_version: str | None) -> tuple[str, str]:
    summary, advice = schema_problem(schema_version, side.connection.engine)
    return f"{side.place}: {summary}", advice


def _refuse_processes(side: _Side, reason: str, since: float | None = None) -> None:
    with side.errors("read"):
        running = tables.processes(side.connection, since)
    if running:
        shown = ", ".join(f"{process.role} on {process.host} (PID {process.pid})" for process in running[:5])
        more = f" and {len(running) - 5} more" if len(running) > 5 else ""
        wait = max(0.0, *(process.left for process in running))
        raise CopyError(
            f"{reason}: {shown}{more}",
            f"stop all of its processes on all hosts; a killed process counts as running for another {wait:.0f} s",
        )


def _clocks(source_side: _Side, destination_side: _Side) -> list[str]:
    """Return a note if the clocks of the databases differ: times are stored as they are."""
    if not destination_side.exists:
        return []
    before, now, after = source_side.now(), destination_side.now(), source_side.now()
    skew = now - min(max(now, before), after)
    if abs(skew) <= MAX_CLOCK_SKEW_SECONDS:
        return []
    side = "ahead of" if skew > 0 else "behind"
    return [f"the clock of the destination is {abs(skew):.0f} s {side} the source's: synchronize them"]


_AGAIN: Final = (
    "the destination is marked as incomplete, and no service starts on it; repeat the command: it starts over"
)


class _Copying:
    """Reads, writes and compares; ``done`` lists the tables that were read."""

    def __init__(self, source_side: _Side, destination_side: _Side, stage: Stage) -> None:
        self._source, self._destination, self._stage = source_side, destination_side, stage
        self._target: Destination | None = None
        self._epoch = 0
        self._numbers: dict[str, int] = {}
        self._replaced = 0
        self.done: list[CopiedTable] = []

    def read(self, target: Destination | None) -> None:
        """Read all tables, and write them if there is a ``target``."""
        self._target = target
        with self._source.errors("read"):
            source = self._source.connection
            total = sum(tables.count(source, table) for table in tables.COPIED)
            self._epoch = tables.highest_epoch(source)
            numbered = [table for table in tables.COPIED if tables.serial(table) is not None]
            self._numbers = {table.name: tables.last_number(source, table) for table in numbered}
        limits = self._limits()
        if target is not None:
            with self._writing():
                target.clear()
        with self._stage("Copying" if target else "Reading", total) as advance:
            for table in tables.COPIED:
                self._read(table, limits, advance)

    def _limits(self) -> ColumnLimits:
        if not self._destination.exists:
            return ColumnLimits()
        with self._destination.errors("read"):
            largest = tables.largest_packet(self._destination.connection)
        return ColumnLimits(largest=largest, nul=self._destination.engine.dialect.name != "postgresql")

    def _read(self, table: Table, limits: ColumnLimits, advance: Advance) -> None:
        checksum, convert = Checksum(), Converter(table, limits)
        for rows in self._rows(table, convert):
            checksum.add(rows)
            if self._target is not None:
                with self._writing():
                    self._target.write(table, rows)
            advance(len(rows))
        self._replaced += convert.replaced
        self.done.append(CopiedTable(str(table.name), checksum.rows, checksum.text))

    def _rows(self, table: Table, convert: Converter) -> Iterator[list[Row]]:
        row_batches = batches(self._source.connection, table, convert)
        while True:
            try:
                with self._source.errors("read"):
                    rows = next(row_batches, None)
            except OddValueError as exc:
                raise CopyError(
                    f"the destination cannot store a value of the source: {exc}", "correct it in the source"
                ) from exc
            if rows is None:
                return
            yield rows

    def left(self) -> list[LeftTable]:
        """Return what is left behind."""
        with self._source.errors("read"):
            counted = [(table, tables.count(self._source.connection, table), why) for table, why in tables.LEFT.items()]
        return [LeftTable(str(table.name), rows, why) for table, rows, why in counted if rows]

    def verify(self) -> None:
        """Read everything back, and compare it; ``CopyError``."""
        total = sum(copied.rows for copied in self.done)
        with self._destination.snapshot(), self._stage("Verifying", total) as advance:
            for table, copied in zip(tables.COPIED, self.done, strict=True):
                checksum = Checksum()
                with self._destination.errors("read"):
                    for rows in batches(self._destination.connection, table, Converter(table, ColumnLimits())):
                        checksum.add(rows)
                        advance(len(rows))
                if (checksum.rows, checksum.text) != (copied.rows, copied.checksum):
                    raise CopyError(
                        f"table {table.name} of the destination differs: {copied.rows:,} rows were copied, "
                        f"{checksum.rows} were read back, and the checksums are {copied.checksum[:12]} and "
                        f"{checksum.text[:12]}",
                        _AGAIN,
                    )

    def complete(self) -> None:
        """Let the service start on the destination."""
        assert self._target is not None  # noqa: S101  # it was written
        with self._writing():
            self._target.complete(self._epoch, self._numbers)

    def notes(self) -> list[str]:
        """Return what is different in the copy."""
        if not self._replaced:
            return []
        return [f"there is NUL in {many(self._replaced, 'text')}, which PostgreSQL cannot store: it becomes U+FFFD"]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._destination.errors("write to", _AGAIN):
                yield
        except OtherCopyError as exc:
            raise CopyError(f"{exc}: {self._destination.place}", "wait for its end; one copy at a time") from exc
