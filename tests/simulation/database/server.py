"""The server: clients connect, send messages, hang up and are hung up on; it fails over and starts again."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import MetaData

from tests.simulation.database import storage
from tests.simulation.database.commits import Commit, CommitLog
from tests.simulation.database.constraints import UniqueConstraints
from tests.simulation.database.errors import SqlError
from tests.simulation.database.executor import Executor
from tests.simulation.database.locks import RowLocks
from tests.simulation.database.plan import Control, Plan
from tests.simulation.database.planner import Planner
from tests.simulation.database.sessions import Limits, Result, Said, Session, Statement, text_of
from tests.simulation.database.snapshots import StatementView
from tests.simulation.database.statements import Family, Statements
from tests.simulation.database.storage import Row
from tests.simulation.database.transactions import Transactions
from tests.simulation.kernel import Kernel

Reply = Callable[[list[Result] | SqlError], object]
# What is left to do of a message: plans and their parameters.
Work = list[tuple[Plan, dict[str, Any]]]

# What BEGIN and COMMIT answer.
_NOTHING: Result = ([], 0, None, 0)
# The simulated epoch second at which the simulation begins.
EPOCH = 1_700_000_000.0


class Server:
    """``clock`` gives epoch seconds: simulated ones at ``rate``, wrong by ``offset``, where none is given.

    ``hears`` is told of each message before it is carried out.
    """

    def __init__(
        self,
        kernel: Kernel | None,
        metadata: MetaData,
        family: Family = "postgresql",
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.kernel = kernel
        self.family = family
        self.clock = clock or self._simulated_time
        self.rate = 1.0
        self.offset = 0.0
        self.down = False
        self.hears: Callable[[Session, str], object] = lambda _session, _sql: None
        self.tables = storage.build(metadata)
        self.log = CommitLog(self.tables)
        rng, locks = kernel.rng("database") if kernel else random.Random(0), RowLocks()
        self.transactions = Transactions(kernel, rng, self.log, locks)
        self.statements = Statements(
            kernel,
            rng,
            family,
            log=self.log,
            transactions=self.transactions,
            executor=Executor(locks, UniqueConstraints(locks, self.transactions.open)),
            look=partial(StatementView, self.clock, locks),
        )
        self.transactions.wake = self.statements.go_on
        self.transactions.idle = self._break
        self._planner = Planner(self.tables)
        self._sessions: dict[Session, None] = {}

    def _simulated_time(self) -> float:
        now = self.kernel.now if self.kernel else 0.0
        return EPOCH + now * self.rate + self.offset

    # Sessions.

    def connect(self, name: str, limits: Limits, broken: Callable[[], object]) -> Session:
        session = Session(name, limits, broken)
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
            self.transactions.roll_back(session.transaction)
            session.transaction = None

    def _break(self, session: Session) -> None:
        self.hang_up(session)
        session.broken()

    # Messages.

    def receive(self, session: Session, statements: list[Said], reply: Reply) -> None:
        """Carry out a message of the client's; ``reply`` is called once, perhaps much later."""
        if not session.alive or self.down:
            reply(SqlError("gone"))
            return
        if self.kernel is not None:
            session.last_active = self.kernel.now
        self.hears(session, text_of(statements))
        work = [(plan, values) for sql, values in statements for plan in self._planner.plans(sql)]
        self._go_on(session, work, 0, [], reply)

    def _go_on(self, session: Session, work: Work, place: int, results: list[Result], reply: Reply) -> None:
        while place < len(work):
            plan, values = work[place]
            place += 1
            if isinstance(plan, Control):
                self._control(session, plan)
                results.append(_NOTHING)
                continue
            statement = Statement(session, plan, values)
            outcome = self.statements.begin(statement)
            if outcome is None:  # it waits: go on when it has ended
                statement.finish = partial(self._after, session, work, place, results, reply)
                return
            if isinstance(outcome, SqlError):
                outcome.place = len(results)
                reply(outcome)
                return
            results.append(outcome)
        if self.kernel is not None:
            session.last_active = self.kernel.now
        reply(results)

    def _after(
        self, session: Session, work: Work, place: int, results: list[Result], reply: Reply, outcome: Result | SqlError
    ) -> None:
        if isinstance(outcome, SqlError):
            if self.kernel is not None:
                session.last_active = self.kernel.now
            outcome.place = len(results)
            reply(outcome)
            return
        results.append(outcome)
        self._go_on(session, work, place, results, reply)

    def _control(self, session: Session, plan: Control) -> None:
        kind = plan.kind
        if kind == "begin":
            repeatable, readonly = plan.arguments
            self.transactions.begin(session, repeatable=repeatable or session.next_repeatable, readonly=readonly)
            session.next_repeatable = False
        elif kind == "isolation":
            session.next_repeatable = plan.arguments[0]
        elif kind == "lazy" and session.transaction is not None:
            session.transaction.durable = False
        elif kind == "notify" and session.transaction is None:
            self.transactions.notify([plan.arguments[0]])
        elif kind == "notify":
            session.transaction.notes.append(plan.arguments[0])
        elif kind in ("commit", "rollback"):
            transaction, session.transaction = session.transaction, None
            failed, session.failed = session.failed, False
            if transaction is not None and kind == "commit" and not failed:
                self.transactions.commit(transaction)
            elif transaction is not None:
                self.transactions.roll_back(transaction)

    # Trouble.

    def fail_over(self, lost: int, *, durable_too: bool) -> list[Commit]:
        """All sessions break and up to ``lost`` of the last commits never happened; return those.

        Without ``durable_too`` only commits that nobody asked to be durable, and after which no
        durable one came, can be lost: that is what a loss of power does.
        """
        self.down = True
        for session in list(self._sessions):
            self._break(session)
        return self.log.take_back(lost, durable_too=durable_too)

    def start(self) -> None:
        self.down = False

    # What nobody but the simulation itself can see.

    def peek(self, table: str, *key: Any) -> Row | None:
        """Return the committed row."""
        return self.tables[table].committed(key)

    def all(self, table: str) -> list[Row]:
        """Return all committed rows."""
        return [version.row for version in self.tables[table].heads.values() if version.row is not None]
