"""The course of a statement: its snapshot, its attempts, its wait for somebody else's lock, its outcome.

Isolation is that of PostgreSQL's READ COMMITTED: each statement has a snapshot of its own; a row that
it wants to change and that somebody else has changed is waited for, then looked at again. Between
the snapshot and the locks time may pass. MariaDB's statements see the newest rows instead. A read
only transaction at REPEATABLE READ has one snapshot.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

from tests.simulation.database.commits import CommitLog
from tests.simulation.database.errors import BlockedError, SqlError
from tests.simulation.database.executor import Executor
from tests.simulation.database.locks import is_deadlock
from tests.simulation.database.plan import Select
from tests.simulation.database.sessions import Result, Statement, Transaction
from tests.simulation.database.snapshots import StatementView
from tests.simulation.database.transactions import Transactions
from tests.simulation.kernel import Kernel

Family = Literal["postgresql", "mariadb"]
# How often time passes between a statement's snapshot and its locks.
_GAPS = 0.15


class Statements:
    """``look`` makes the view of a transaction at a snapshot. Without a kernel nothing can wait."""

    def __init__(
        self,
        kernel: Kernel | None,
        rng: random.Random,
        family: Family,
        *,
        log: CommitLog,
        transactions: Transactions,
        executor: Executor,
        look: Callable[[Transaction, int], StatementView],
    ) -> None:
        self.begun = 0
        self.deadlocks = 0
        self._kernel = kernel
        self._rng = rng
        self._family = family
        self._log = log
        self._transactions = transactions
        self._executor = executor
        self._look = look

    def begin(self, statement: Statement) -> Result | SqlError | None:
        """Begin the statement; its outcome, or None where its ``finish`` will be told."""
        self.begun += 1
        session = statement.session
        if session.failed:
            return SqlError("aborted")
        plan = statement.plan
        locks = plan.writes or (isinstance(plan, Select) and plan.locks)
        gap = locks and self._kernel is not None and self._family == "postgresql" and self._rng.random() < _GAPS
        if not gap:
            return self._attempt(statement)
        assert self._kernel is not None
        self._prepare(statement)
        statement.held = self._log.hold()
        session.waiting = statement
        self._kernel.at(self._rng.choice((0.0002, 0.002, 0.02)) * self._rng.random(), self.go_on, statement)
        return None

    def go_on(self, statement: Statement) -> None:
        """Try a statement that has waited once more, unless it has come to its end meanwhile."""
        assert statement.held is not None
        self._log.let_go(statement.held)
        if not statement.done:
            outcome = self._attempt(statement)
            if outcome is not None:
                statement.finish(outcome)

    def _prepare(self, statement: Statement) -> tuple[Transaction, StatementView]:
        """Return the statement's transaction and its view; the snapshot is taken the first time."""
        transaction = statement.session.transaction
        if transaction is None:
            transaction = self._transactions.begin(statement.session, repeatable=False, readonly=False)
            statement.alone = True
        if statement.view is None or (self._family == "mariadb" and not transaction.repeatable):
            snapshot = self._log.sequence
            if transaction.repeatable:
                if transaction.snapshot is None:
                    transaction.snapshot = self._log.hold()
                snapshot = transaction.snapshot
            statement.view = self._look(transaction, snapshot)
        return transaction, statement.view

    def _attempt(self, statement: Statement) -> Result | SqlError | None:
        """Run the statement; None where it has to wait."""
        session = statement.session
        transaction, view = self._prepare(statement)
        session.waiting = statement
        statement.waits_for = None
        plan = statement.plan
        frame: list[Any] = [statement.parameters, view, *([None] * plan.width)]
        try:
            result = self._executor.run(transaction, plan, frame)
        except BlockedError as exc:
            return self._block(statement, exc)
        except SqlError as exc:
            return self._fail(statement, exc)
        statement.done = True
        session.waiting = None
        if statement.alone:
            session.transaction = None
            self._transactions.commit(transaction)
        return result

    def _block(self, statement: Statement, blocked: BlockedError) -> SqlError | None:
        holder = blocked.holder
        statement.waits_for = holder
        if self._kernel is None:
            return self._fail(statement, SqlError("lock timeout"))
        if is_deadlock(statement.session.transaction, holder):
            self.deadlocks += 1
            self._kernel.say(f"deadlock over {blocked.what}: rolled back", "database")
            return self._fail(statement, SqlError("deadlock"))
        holder.waiters.append(statement)
        statement.held = self._log.hold()  # what it matched must still be there to be looked at again
        if not statement.timed:
            statement.timed = True
            self._kernel.at(statement.session.limits.lock, self._time_out, statement)
            self._kernel.say(f"{statement.session.name} waits for {blocked.what}", "database")
        return None

    def _time_out(self, statement: Statement) -> None:
        if not statement.done:
            statement.finish(self._fail(statement, SqlError("lock timeout")))

    def _fail(self, statement: Statement, error: SqlError) -> SqlError:
        statement.done = True
        session = statement.session
        session.waiting = None
        transaction = session.transaction
        if transaction is not None and (self._family == "postgresql" or error.kind == "deadlock" or statement.alone):
            self._transactions.roll_back(transaction)
            session.transaction = None
            session.failed = self._family == "postgresql" and not statement.alone
        return error
