"""An open transaction as repositories see it: it runs their statements, and keeps what a commit has to announce.

``transaction.SqlTransaction`` is one, with a repository for each kind of thing that is stored.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection
from sqlalchemy.sql.elements import ClauseElement

from ferroscope.contracts.metrics import Moved
from ferroscope.db.batch import Answer, Asked, Batch, Check, Failed
from ferroscope.db.executor import Parameters, Statements

NOTHING: Final[Parameters] = {}


class SqlSession:
    """``claims`` are the tokens of the process's claims; ``begun`` and ``ended`` join and leave them at the commit.

    ``woken`` are the messages to publish and ``transitions`` those to report, also at the commit.
    """

    def __init__(self, connection: Connection, batch: Batch, statements: Statements, claims: set[str]) -> None:
        self.dialect = connection.dialect
        self.woken: set[str] = set()
        self.transitions: list[Moved] = []
        self.claims = claims
        self.begun: set[str] = set()
        self.ended: set[str] = set()
        self._connection = connection
        self._batch = batch
        self._statements = statements

    @property
    def now(self) -> float:
        """The database's clock when the transaction began."""
        return self._batch.now

    @property
    def connection(self) -> Connection:
        """Where statements are run that change their shape; what was asked before them has been sent."""
        self._batch.flush()
        return self._connection

    def ask(
        self,
        statement: ClauseElement,
        given: Parameters = NOTHING,
        *,
        check: Check | None = None,
        failed: Failed | None = None,
    ) -> Asked:
        """Let a constant statement go to the database with the next that is waited for; see ``batch``.

        ``check`` is told of its answer before anything can be committed, and may raise. ``failed`` returns what
        to raise where a constraint refuses it.
        """
        return self._batch.ask(self._statements.compile(statement, given), given, check=check, failed=failed)

    def run(self, statement: ClauseElement, given: Parameters = NOTHING, *, failed: Failed | None = None) -> Answer:
        """Run a constant statement and wait for its answer; for others there is ``connection``."""
        return self.ask(statement, given, failed=failed).answer()

    def moved(self, moved: Moved) -> None:
        """See ``contracts.store.Transaction``."""
        self.transitions.append(moved)

    def wake(self, channel: str) -> None:
        """Publish on ``channel`` when, and only when, this transaction commits; a message may follow it."""
        self.woken.add(channel)
