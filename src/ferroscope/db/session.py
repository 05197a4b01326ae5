"""An open transaction as its repositories use it: it executes statements and collects what to publish on commit.

``transaction.Transaction`` adds the repositories.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from sqlalchemy import Connection

from ferroscope.contracts.errors import LostUpdateError
from ferroscope.contracts.telemetry import Moved
from ferroscope.core.notification import ChangeView, Subscription
from ferroscope.db.batch import Batch
from ferroscope.db.replication import Memory
from ferroscope.secrets.keys import KeyRing

NO_KEYS: Final = KeyRing()
_REMOVED: Final = object()


class Written:
    """The rows that a transaction has written. A row's ``mark`` differs after each write: its version, or its time.

    A struct that was read before the same transaction wrote its row must not be written: the version alone would report
    another process where there is none, so that the caller repeats the request for ever, and a record without a version
    would be reverted in silence. That is a mistake in the program, so it is raised where it is made.
    """

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], object] = {}

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


class Session:
    """``keys`` encrypt secrets of nodes; ``subscriptions`` say which targets get which events.

    ``claims`` are the tokens of the process's claims; on commit, ``begun`` are added to them and ``ended`` removed.

    Also on commit, the messages in ``woken`` are published, ``transitions`` are reported to the meter, and ``memory``
    keeps the ``epochs`` of leases.
    """

    def __init__(
        self,
        connection: Connection,
        batch: Batch,
        claims: set[str],
        keys: KeyRing = NO_KEYS,
        subscriptions: Sequence[Subscription] = (),
        *,
        memory: Memory,
    ) -> None:
        self.keys = keys
        self.subscriptions = subscriptions
        self.dialect = connection.dialect
        self.woken: set[str] = set()
        self.transitions: list[Moved] = []
        self.hardware_changes: list[ChangeView] = []
        self.claims = claims
        self.begun: set[str] = set()
        self.ended: set[str] = set()
        self.memory = memory
        self.epochs: dict[str, int] = {}
        self.written = Written()
        self._connection = connection
        self._batch = batch
        # How repositories execute constant statements; for others there is ``connection``.
        self.ask, self.run = batch.ask, batch.run

    @cached_property
    def now(self) -> float:
        """The database's clock when the transaction began."""
        return self._batch.now

    @property
    def connection(self) -> Connection:
        """SQLAlchemy's connection, for statements whose shape varies; buffered statements are sent first."""
        self._batch.flush()
        return self._connection

    def moved(self, moved: Moved) -> None:
        """Report this transition of a node if and when the transaction commits."""
        self.transitions.append(moved)

    def hardware_changed(self, changes: Sequence[ChangeView]) -> None:
        """Report these differences from the previous inspection if and when the transaction commits."""
        self.hardware_changes.extend(changes)

    def wake(self, channel: str) -> None:
        """Publish on ``channel`` if and when this transaction commits; details may follow its name."""
        self.woken.add(channel)
