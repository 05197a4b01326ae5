"""The server: sessions, transactions, snapshots, row locks, time-outs, and what a fail-over loses.

Isolation is that of PostgreSQL's READ COMMITTED: each statement has a snapshot of its own; a row that
it wants to change and that somebody else has changed is waited for, then looked at again. Between
the snapshot and the locks time may pass. MariaDB's statements see the newest rows instead. A read
only transaction at REPEATABLE READ has one snapshot.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import msgspec
from sqlalchemy import MetaData

from tests.simulation.database import storage
from tests.simulation.database.errors import BlockedError, SqlError
from tests.simulation.database.plan import Change, Control, Insert, Plan, Select
from tests.simulation.database.planner import Planner
from tests.simulation.database.storage import Key, Row, Table
from tests.simulation.kernel import Kernel, Task

Family = Literal["postgresql", "mariadb"]
# Rows, how many were affected, the last serial number, how many columns a row has (0: no rows at all).
Result = tuple[list[tuple[Any, ...]], int, int | None, int]
Reply = Callable[[list[Result] | SqlError], object]
Lock = tuple[str, Key]

# How often idle sessions are looked for, in seconds.
_SWEEP = 0.2
# The simulated epoch second at which the simulation begins.
EPOCH = 1_700_000_000.0


class Limits(msgspec.Struct, frozen=True):
    """Seconds a session may wait for a lock, and idle within a transaction (0: for ever)."""

    lock: float
    idle: float


class Changed(msgspec.Struct, frozen=True):
    """One row that a commit changed; None: it was not there, or is there no more."""

    table: str
    key: Key
    before: Row | None
    after: Row | None


class Commit(msgspec.Struct):
    """One committed transaction that changed something, and the task that made it."""

    sequence: int
    durable: bool
    changes: list[Changed]
    task: Task | None
    at: float


class Transaction:
    __slots__ = ("durable", "locks", "notes", "over", "overlay", "readonly", "repeatable", "session", "snapshot",
                 "waiters")  # fmt: skip

    def __init__(self, session: Session, *, repeatable: bool, readonly: bool) -> None:
        self.session = session
        self.repeatable = repeatable
        self.readonly = readonly
        self.durable = True
        self.snapshot: int | None = None
        self.overlay: dict[str, dict[Key, Row | None]] = {}
        self.locks: list[Lock] = []
        self.notes: list[str] = []
        self.waiters: list[Operation] = []
        self.over = False


class Session:
    """One connection as the server knows it."""

    def __init__(self, server: Server, name: str, limits: Limits, broken: Callable[[], object]) -> None:
        self.server = server
        self.name = name
        self.limits = limits
        self.broken = broken
        self.transaction: Transaction | None = None
        self.next_repeatable = False
        self.failed = False
        self.alive = True
        self.waiting: Operation | None = None
        self.last_active = 0.0
        self.task: Task | None = None


class Operation:
    """One statement on its way; ``attempt`` may have to be made several times."""

    __slots__ = ("alone", "done", "finish", "parameters", "plan", "session", "timed", "view", "waits_for")

    def __init__(self, session: Session, plan: Plan, parameters: dict[str, Any]) -> None:
        self.session = session
        self.plan = plan
        self.parameters = parameters
        self.view: StatementView | None = None
        self.finish: Callable[[Result | SqlError], object] = _nobody  # who waits for its outcome, if it takes time
        self.done = False
        self.timed = False
        self.alone = False  # a transaction of its own
        self.waits_for: Transaction | None = None


def _nobody(_outcome: Result | SqlError) -> None: ...


class StatementView:
    """The tables as one statement of one transaction sees them."""

    __slots__ = ("_memory", "_server", "_snapshot", "_transaction")

    def __init__(self, server: Server, transaction: Transaction, snapshot: int) -> None:
        self._server = server
        self._transaction = transaction
        self._snapshot = snapshot
        self._memory: dict[Select, Any] = {}

    def now(self) -> float:
        return self._server.clock()

    def rows(self, table: Table) -> Iterable[tuple[Key, Row]]:
        committed = table.rows(self._snapshot)
        own = self._transaction.overlay.get(table.name)
        if not own:
            return committed
        present = [(key, row) for key, row in committed if key not in own]
        return present + [(key, mine) for key, mine in own.items() if mine is not None]

    def row(self, table: Table, key: Key) -> Row | None:
        own = self._transaction.overlay.get(table.name)
        if own is not None and key in own:
            return own[key]
        return table.at(key, self._snapshot)

    def lock(self, table: Table, key: Key, seen: Row, *, skip: bool) -> Row | None:
        if not self._server.lock(self._transaction, table, key, skip=skip):
            return None
        own = self._transaction.overlay.get(table.name)
        if own is not None and key in own:
            return own[key]
        present = table.committed(key)
        if present is not seen and self._transaction.repeatable:
            raise SqlError("serialization")
        return present

    def remembers(self, query: Select) -> bool:
        return query in self._memory

    def remembered(self, query: Select) -> Any:
        return self._memory[query]

    def remember(self, query: Select, value: Any) -> Any:
        self._memory[query] = value
        return value


class Server:
    """``watch`` is told of each commit before it takes effect, ``forgot`` of those that were lost."""

    def __init__(self, kernel: Kernel | None, metadata: MetaData, family: Family = "postgresql") -> None:
        self.kernel = kernel
        self.family = family
        self.tables = storage.build(metadata)
        self.planner = Planner(self.tables)
        self.sequence = 0
        self.down = False
        self.rate = 1.0
        self.offset = 0.0
        self.gap_chance = 0.15
        self.clock: Callable[[], float] = self._simulated_time
        self.watch: Callable[[Commit], object] = lambda _commit: None
        self.forgot: Callable[[list[Commit]], object] = lambda _commits: None
        self.notify: Callable[[list[str]], object] = lambda _channels: None
        self.hears: Callable[[Session, str], object] = lambda _session, _sql: None
        self.log: deque[Commit] = deque(maxlen=200)
        self.commits = 0
        self.statements = 0
        self.deadlocks = 0
        self._locks: dict[Lock, Transaction] = {}
        self._open: dict[Transaction, None] = {}
        self._sessions: dict[Session, None] = {}
        self._snapshots: list[int] = []
        self._rng = kernel.rng("database") if kernel else random.Random(0)
        self._sweeps = False

    def _simulated_time(self) -> float:
        now = self.kernel.now if self.kernel else 0.0
        return EPOCH + now * self.rate + self.offset

    # Sessions.

    def connect(self, name: str, limits: Limits, broken: Callable[[], object]) -> Session:
        session = Session(self, name, limits, broken)
        self._sessions[session] = None
        return session

    def hang_up(self, session: Session) -> None:
        """The client is gone: its transaction is rolled back."""
        if session.alive:
            session.alive = False
            self._sessions.pop(session, None)
            self._abandon(session)

    def _abandon(self, session: Session) -> None:
        if session.waiting is not None:
            session.waiting.done = True
            session.waiting = None
        if session.transaction is not None:
            self._roll_back(session.transaction)
            session.transaction = None

    def _break(self, session: Session) -> None:
        self.hang_up(session)
        session.broken()

    def receive(self, session: Session, sql: str, parameters: list[dict[str, Any]], reply: Reply) -> None:
        """Carry out a message of the client's; ``reply`` is called once, perhaps much later."""
        if not session.alive or self.down:
            reply(SqlError("gone"))
            return
        session.last_active = self.kernel.now if self.kernel else 0.0
        self.hears(session, sql)
        plans = self.planner.plans(sql)
        self._go_on(session, [(plan, values) for values in parameters for plan in plans], 0, [], reply)

    def _go_on(
        self, session: Session, work: list[tuple[Plan, dict[str, Any]]], place: int, results: list[Result], reply: Reply
    ) -> None:
        while place < len(work):
            plan, values = work[place]
            place += 1
            if isinstance(plan, Control):
                self._control(session, plan)
                continue
            operation = Operation(session, plan, values)
            self.statements += 1
            outcome = self._begin(operation)
            if outcome is None:  # it waits: go on when it has ended
                operation.finish = partial(self._after, session, work, place, results, reply)
                return
            if isinstance(outcome, SqlError):
                reply(outcome)
                return
            results.append(outcome)
        session.last_active = self.kernel.now if self.kernel else 0.0
        reply(results)

    def _after(
        self,
        session: Session,
        work: list[tuple[Plan, dict[str, Any]]],
        place: int,
        results: list[Result],
        reply: Reply,
        result: Result | SqlError,
    ) -> None:
        if isinstance(result, SqlError):
            session.last_active = self.kernel.now if self.kernel else 0.0
            reply(result)
            return
        results.append(result)
        self._go_on(session, work, place, results, reply)

    def _control(self, session: Session, plan: Control) -> None:
        kind = plan.kind
        if kind == "begin":
            repeatable, readonly = plan.arguments
            session.transaction = self._new(session, repeatable or session.next_repeatable, readonly)
            session.next_repeatable = False
        elif kind == "isolation":
            session.next_repeatable = plan.arguments[0]
        elif kind == "lazy" and session.transaction is not None:
            session.transaction.durable = False
        elif kind == "notify" and session.transaction is not None:
            session.transaction.notes.append(plan.arguments[0])
        elif kind in ("commit", "rollback"):
            transaction, session.transaction = session.transaction, None
            failed, session.failed = session.failed, False
            if transaction is not None and kind == "commit" and not failed:
                self._commit(transaction)
            elif transaction is not None:
                self._roll_back(transaction)

    def _new(self, session: Session, repeatable: bool, readonly: bool) -> Transaction:
        transaction = Transaction(session, repeatable=repeatable, readonly=readonly)
        self._open[transaction] = None
        if not self._sweeps and self.kernel is not None and session.limits.idle:
            self._sweeps = True
            self.kernel.at(_SWEEP - self.kernel.now % _SWEEP, self._sweep)
        return transaction

    # Statements.

    def _begin(self, operation: Operation) -> Result | SqlError | None:
        """Begin the statement; its outcome, or None where its ``finish`` will be told."""
        session = operation.session
        if session.failed:
            return SqlError("aborted")
        plan = operation.plan
        locks = plan.writes or (isinstance(plan, Select) and plan.locks)
        gap = locks and self.kernel is not None and self.family == "postgresql" and self._rng.random() < self.gap_chance
        if not gap:
            return self._attempt(operation)
        assert self.kernel is not None
        self._look(operation)
        self._snapshots.append(self.sequence)
        snapshot = self.sequence
        session.waiting = operation

        def later() -> None:
            self._snapshots.remove(snapshot)
            self._again(operation)

        self.kernel.at(self._rng.choice((0.0002, 0.002, 0.02)) * self._rng.random(), later)
        return None

    def _look(self, operation: Operation) -> tuple[Transaction, StatementView]:
        """Return the statement's transaction and its view; the snapshot is taken the first time."""
        session = operation.session
        transaction = session.transaction
        if transaction is None:
            transaction = self._new(session, False, False)
            session.transaction = transaction
            operation.alone = True
        if operation.view is None or (self.family == "mariadb" and not transaction.repeatable):
            snapshot = self.sequence
            if transaction.repeatable:
                if transaction.snapshot is None:
                    transaction.snapshot = snapshot
                    self._snapshots.append(snapshot)
                snapshot = transaction.snapshot
            operation.view = StatementView(self, transaction, snapshot)
        return transaction, operation.view

    def _again(self, operation: Operation) -> None:
        if not operation.done:
            outcome = self._attempt(operation)
            if outcome is not None:
                operation.finish(outcome)

    def _attempt(self, operation: Operation) -> Result | SqlError | None:
        """Run the statement; None where it has to wait."""
        session = operation.session
        transaction, view = self._look(operation)
        session.waiting = operation
        operation.waits_for = None
        plan = operation.plan
        frame: list[Any] = [operation.parameters, view, *([None] * plan.width)]
        try:
            result = self._run(transaction, plan, frame)
        except BlockedError as exc:
            return self._block(operation, exc)
        except SqlError as exc:
            return self._fail(operation, exc)
        operation.done = True
        session.waiting = None
        if operation.alone:
            session.transaction = None
            self._commit(transaction)
        return result

    def _run(self, transaction: Transaction, plan: Plan, frame: list[Any]) -> Result:
        if isinstance(plan, Select):
            rows = plan.run(frame)
            return rows, len(rows), None, len(plan.items)
        if isinstance(plan, Change):
            affected = plan.affected(frame)
            table = plan.source.table
            if plan.changes is not None:
                for key, present, row in affected:
                    assert row is not None
                    self._check_unique(transaction, table, key, present, row)
            returned = []
            for key, present, row in affected:
                self._write(transaction, table, key, row)
                frame[plan.source.slot] = present if row is None else row
                if plan.returning:
                    returned.append(tuple([value(frame) for value in plan.returning]))
            return returned, len(affected), None, len(plan.returning)
        assert isinstance(plan, Insert)
        return self._insert(transaction, plan, frame)

    def _insert(self, transaction: Transaction, plan: Insert, frame: list[Any]) -> Result:
        table, returned, last = plan.into, [], None
        for row in plan.new(frame):
            key = table.key_of(row)
            if plan.upsert:
                row = self._merged(transaction, plan, frame, key, row)
            else:
                self._check_unique(transaction, table, key, None, row)
            if self._locks.get((table.name, key)) is not transaction:
                self._locks[table.name, key] = transaction
                transaction.locks.append((table.name, key))
            self._write(transaction, table, key, row)
            last = row[table.serial] if table.serial else None
            frame[plan.slot] = row
            if plan.returning:
                returned.append(tuple([value(frame) for value in plan.returning]))
        return returned, len(plan.rows), last, len(plan.returning)

    def _merged(self, transaction: Transaction, plan: Insert, frame: list[Any], key: Key, row: Row) -> Row:
        """Return what an upsert makes of the row that is there already, or the new one."""
        table = plan.into
        self.lock(transaction, table, key, skip=False)
        own = transaction.overlay.get(table.name, {})
        present = own[key] if key in own else table.committed(key)
        if present is None:
            self._check_unique(transaction, table, key, None, row)
            return row
        frame[plan.slot], frame[plan.excluded] = present, row
        merged = present | {name: value(frame) for name, value in plan.upsert}
        self._check_unique(transaction, table, key, present, merged)
        return merged

    def _write(self, transaction: Transaction, table: Table, key: Key, row: Row | None) -> None:
        if transaction.readonly:
            raise AssertionError("a read only transaction writes")
        transaction.overlay.setdefault(table.name, {})[key] = row

    def lock(self, transaction: Transaction, table: Table, key: Key, *, skip: bool) -> bool:
        """Take the row's lock; False where it is skipped; ``BlockedError`` where it must be waited for."""
        name = (table.name, key)
        holder = self._locks.get(name)
        if holder is transaction:
            return True
        if holder is not None:
            if skip:
                return False
            raise BlockedError(holder, f"{table.name} {key}")
        self._locks[name] = transaction
        transaction.locks.append(name)
        return True

    def _check_unique(self, transaction: Transaction, table: Table, key: Key, present: Row | None, row: Row) -> None:
        if present is None:
            self._check_key(transaction, table, key)
        for column in table.uniques:
            value = row[column]
            if value is None or (present is not None and present[column] == value):
                continue
            own = transaction.overlay.get(table.name, {})
            for other, version in table.heads.items():
                if other == key or version.row is None or version.row[column] != value:
                    continue
                if other in own:
                    continue
                holder = self._locks.get((table.name, other))
                if holder is not None and holder.overlay.get(table.name, {}).get(other, version.row) is not version.row:
                    raise BlockedError(holder, f"{table.name}.{column}")
                raise SqlError("unique", f"uq_{table.name}_{column}", str(value))
            for other, mine in own.items():
                if other != key and mine is not None and mine[column] == value:
                    raise SqlError("unique", f"uq_{table.name}_{column}", str(value))
            for rival in self._open:
                if rival is transaction:
                    continue
                for other, theirs in rival.overlay.get(table.name, {}).items():
                    if other != key and theirs is not None and theirs[column] == value:
                        raise BlockedError(rival, f"{table.name}.{column}")

    def _check_key(self, transaction: Transaction, table: Table, key: Key) -> None:
        own = transaction.overlay.get(table.name, {})
        holder = self._locks.get((table.name, key))
        if holder is not None and holder is not transaction and key in holder.overlay.get(table.name, {}):
            raise BlockedError(holder, f"{table.name} {key}")
        taken = own[key] if key in own else table.committed(key)
        if taken is not None:
            raise SqlError("unique", f"pk_{table.name}", str(key[0]))

    # Waiting.

    def _block(self, operation: Operation, blocked: BlockedError) -> SqlError | None:
        holder = blocked.holder
        operation.waits_for = holder
        if self.kernel is None or self._deadlocked(operation):
            if self.kernel is not None:
                self.deadlocks += 1
                self.kernel.say(f"deadlock over {blocked.what}: rolled back", "database")
            return self._fail(operation, SqlError("deadlock" if self.kernel else "lock timeout"))
        holder.waiters.append(operation)
        if not operation.timed:
            operation.timed = True
            self.kernel.at(operation.session.limits.lock, self._time_out, operation)
            self.kernel.say(f"{operation.session.name} waits for {blocked.what}", "database")
        return None

    def _deadlocked(self, operation: Operation) -> bool:
        mine = operation.session.transaction
        seen: Transaction | None = operation.waits_for
        steps = 0
        while seen is not None and steps < 100:
            if seen is mine:
                return True
            waiting = seen.session.waiting
            seen = waiting.waits_for if waiting is not None else None
            steps += 1
        return False

    def _time_out(self, operation: Operation) -> None:
        if not operation.done:
            operation.finish(self._fail(operation, SqlError("lock timeout")))

    def _sweep(self) -> None:
        """End the sessions whose client has said nothing within a transaction for too long."""
        assert self.kernel is not None
        for transaction in list(self._open):
            session = transaction.session
            idle = session.limits.idle
            if idle and session.waiting is None and session.last_active + idle < self.kernel.now:
                self.kernel.say(f"{session.name} was idle in a transaction for {idle:g} s: rolled back", "database")
                self._break(session)
        self._sweeps = bool(self._open)
        if self._sweeps:
            self.kernel.at(_SWEEP, self._sweep)

    def _fail(self, operation: Operation, error: SqlError) -> SqlError:
        operation.done = True
        session = operation.session
        session.waiting = None
        transaction = session.transaction
        if transaction is not None and (self.family == "postgresql" or error.kind == "deadlock" or operation.alone):
            self._roll_back(transaction)
            session.transaction = None
            session.failed = self.family == "postgresql" and not operation.alone
        return error

    # The end of transactions.

    def _commit(self, transaction: Transaction) -> None:
        if transaction.overlay:
            self.commits += 1
            keep = bool(self._snapshots)
            changes = []
            for name, rows in transaction.overlay.items():
                table = self.tables[name]
                changes += [Changed(name, key, table.committed(key), row) for key, row in rows.items()]
            now = self.kernel.now if self.kernel else 0.0
            commit = Commit(self.sequence + 1, transaction.durable, changes, transaction.session.task, now)
            self.watch(commit)
            self.sequence += 1
            for change in changes:
                self.tables[change.table].put(change.key, change.after, self.sequence, keep=keep)
            self.log.append(commit)
        notes = transaction.notes
        self._end(transaction)
        if notes:
            self.notify(notes)

    def _roll_back(self, transaction: Transaction) -> None:
        self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        if transaction.over:
            return
        transaction.over = True
        self._open.pop(transaction, None)
        if transaction.snapshot is not None:
            self._snapshots.remove(transaction.snapshot)
        for name in transaction.locks:
            if self._locks.get(name) is transaction:
                del self._locks[name]
        waiters, transaction.waiters = transaction.waiters, []
        self._rng.shuffle(waiters)
        for operation in waiters:
            if not operation.done and self.kernel is not None:
                self.kernel.at(self._rng.random() * 0.0005, self._again, operation)

    # Trouble.

    def fail_over(self, lost: int, *, durable_too: bool) -> list[Commit]:
        """All sessions break and up to ``lost`` of the last commits never happened; return those.

        Without ``durable_too`` only commits that nobody asked to be durable, and after which no
        durable one came, can be lost: that is what a loss of power does.
        """
        self.down = True
        for session in list(self._sessions):
            self._break(session)
        gone: list[Commit] = []
        while self.log and len(gone) < lost and (durable_too or not self.log[-1].durable):
            commit = self.log.pop()
            self.sequence += 1
            for change in reversed(commit.changes):
                self.tables[change.table].put(change.key, change.before, self.sequence, keep=False)
            gone.append(commit)
        self.forgot(gone)
        return gone

    def start(self) -> None:
        self.down = False

    def peek(self, table: str, *key: Any) -> Row | None:
        """Return the committed row, as nobody but the simulation itself can see it."""
        return self.tables[table].committed(key)

    def all(self, table: str) -> list[Row]:
        return [version.row for version in self.tables[table].heads.values() if version.row is not None]
