"""Transactions: how they begin, are committed or rolled back, and what becomes of those that idle."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.database.commits import CommitLog
from tests.simulation.database.locks import RowLocks
from tests.simulation.database.sessions import Session, Statement, Transaction
from tests.simulation.kernel import Kernel

# How often idle sessions are looked for, in seconds.
_SWEEP = 0.2


class Transactions:
    """Those that are ``open``.

    ``notify`` is told of a commit's channels, ``wake`` of each statement that has waited for one,
    ``idle`` of a session whose client has said nothing within a transaction for too long.
    """

    def __init__(self, kernel: Kernel | None, rng: random.Random, log: CommitLog, locks: RowLocks) -> None:
        self.open: dict[Transaction, None] = {}
        self.notify: Callable[[list[str]], object] = lambda _channels: None
        self.wake: Callable[[Statement], object] = lambda _statement: None
        self.idle: Callable[[Session], object] = lambda _session: None
        self._kernel = kernel
        self._rng = rng
        self._log = log
        self._locks = locks
        self._sweeps = False

    def begin(self, session: Session, *, repeatable: bool, readonly: bool) -> Transaction:
        """Begin one and let it be the session's."""
        transaction = session.transaction = Transaction(session, repeatable=repeatable, readonly=readonly)
        self.open[transaction] = None
        if not self._sweeps and self._kernel is not None and session.limits.idle:
            self._sweeps = True
            self._kernel.at(_SWEEP - self._kernel.now % _SWEEP, self._sweep)
        return transaction

    def commit(self, transaction: Transaction) -> None:
        if transaction.overlay:
            self._log.append(transaction, self._kernel.now if self._kernel else 0.0)
        notes = transaction.notes
        self._end(transaction)
        if notes:
            self.notify(notes)

    def roll_back(self, transaction: Transaction) -> None:
        self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        if transaction.over:
            return
        transaction.over = True
        self.open.pop(transaction, None)
        if transaction.snapshot is not None:
            self._log.let_go(transaction.snapshot)
        self._locks.release(transaction)
        waiters, transaction.waiters = transaction.waiters, []
        self._rng.shuffle(waiters)
        for statement in waiters:
            if self._kernel is not None:
                self._kernel.at(self._rng.random() * 0.0005, self.wake, statement)

    def _sweep(self) -> None:
        """Look for idle sessions, for as long as a transaction is open."""
        assert self._kernel is not None
        for transaction in list(self.open):
            session = transaction.session
            limit = session.limits.idle
            if limit and session.waiting is None and session.last_active + limit < self._kernel.now:
                self._kernel.say(f"{session.name} was idle in a transaction for {limit:g} s: rolled back", "database")
                self.idle(session)
        self._sweeps = bool(self.open)
        if self._sweeps:
            self._kernel.at(_SWEEP, self._sweep)
