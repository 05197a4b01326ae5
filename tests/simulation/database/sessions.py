"""What the server knows of its clients: sessions, their transactions, and the statements under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tests.simulation.database.errors import SqlError
from tests.simulation.database.plan import Change, Insert, Select
from tests.simulation.database.snapshots import StatementView
from tests.simulation.database.storage import Key, Row
from tests.simulation.kernel import Task

# Rows, how many were affected, the last serial number, how many columns a row has (0: no rows at all).
Result = tuple[list[tuple[Any, ...]], int, int | None, int]
Lock = tuple[str, Key]
# A statement, as a client says it.
Said = tuple[str, dict[str, Any]]


def text_of(statements: list[Said]) -> str:
    """Return the text of a message."""
    return "; ".join(sql for sql, _ in statements)


class Limits(msgspec.Struct, frozen=True):
    """Seconds a session may wait for a lock, and idle within a transaction (0: forever)."""

    lock: float
    idle: float


class Session:
    """One connection as the server knows it."""

    def __init__(self, name: str, limits: Limits, broken: Callable[[], object]) -> None:
        self.name = name
        self.limits = limits
        self.broken = broken
        self.transaction: Transaction | None = None
        self.next_repeatable = False
        self.failed = False
        self.alive = True
        self.waiting: Statement | None = None
        self.last_active = 0.0
        self.task: Task | None = None


class Transaction:
    """``overlay`` is what it has written, ``locks`` what it holds, ``waiters`` are who waits for its end."""

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
        self.waiters: list[Statement] = []
        self.over = False


class Statement:
    """One statement on its way; several attempts may be needed."""

    __slots__ = ("alone", "done", "finish", "held", "parameters", "plan", "session", "timed", "view", "waits_for")

    def __init__(self, session: Session, plan: Select | Change | Insert, parameters: dict[str, Any]) -> None:
        self.session = session
        self.plan = plan
        self.parameters = parameters
        self.view: StatementView | None = None
        self.finish: Callable[[Result | SqlError], object] = _nobody  # who waits for its outcome, if it takes time
        self.done = False
        self.timed = False
        self.alone = False  # a transaction of its own
        self.waits_for: Transaction | None = None
        self.held: int | None = None  # the snapshot that is kept while it waits


def _nobody(_outcome: Result | SqlError) -> None: ...
