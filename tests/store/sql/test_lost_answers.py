"""The answer to COMMIT is lost: the store finds out what became of the change before it answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from ferroscope.contracts.errors import OutcomeUnknownError, StoreUnavailableError
from ferroscope.contracts.store import CallContext, Query, Receipt, RepeatedCallError
from ferroscope.db import Transaction, schema
from ferroscope.db.executor import CommandError, Result, SqlCommand
from tests.store.conftest import Adapter, Open
from tests.support import examples

# What each driver raises when its connection breaks.
_BROKEN: Final[dict[str, Callable[[], Exception]]] = {
    "sqlite": lambda: sqlite3.ProgrammingError("Cannot operate on a closed database."),
    "postgresql": lambda: __import__("psycopg").OperationalError("the connection is lost"),
    "mysql": lambda: __import__("pymysql").err.OperationalError(2013, "Lost connection to MySQL server during query"),
}


def key(*, instead: bool = False) -> Receipt:
    """Return the receipt of a call that is being carried out."""
    return Receipt("k" * 64, "call", given=True, instead=instead)


def change(adapter: Adapter, receipt: Receipt, work: Callable[[Transaction], Any] | None = None) -> Any:
    """Write on behalf of the call; return the UUID of the node that was added."""
    return adapter.store.on_behalf_of(CallContext(receipt=receipt)).write(work or added)


class Lossy:
    """Breaks connections at a COMMIT: before the server gets it, or before its answer arrives.

    Without ``is_sent`` they break before that.

    ``only_changes``: not where only something is read, or a receipt is looked for.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.store: Any = adapter.store
        self.times = 0
        self.arrives = True
        self.is_sent = True
        self.only_changes = False
        self._send = self.store._shared.send
        self.store._shared.send = self

    def __call__(self, connection: Any, commands: Sequence[SqlCommand]) -> list[Result]:
        commits = [place for place, command in enumerate(commands) if command.text == "COMMIT"]
        if not self.times or not commits:
            return self._send(connection, commands)  # type: ignore[no-any-return]
        if self.only_changes and not any("receipts" in command.text for command in commands):
            return self._send(connection, commands)  # type: ignore[no-any-return]
        self.times -= 1
        if self.arrives:
            self._send(connection, commands)
        family = connection.dialect.name.replace("mariadb", "mysql")
        if family != "sqlite":  # which has no connection that could break
            connection.connection.dbapi_connection.close()
        place = commits[0] if self.is_sent else 0
        raise CommandError(place, _BROKEN[family](), sent=None if self.is_sent else commits[0])


def added(tx: Transaction) -> str:
    node = examples.node()
    tx.nodes.add(node)
    return node.uuid


def test_a_change_of_which_the_answer_was_lost_is_answered_as_done(adapter: Adapter) -> None:
    receipt = key()
    lossy = Lossy(adapter)
    lossy.times = 1
    uuid = change(adapter, receipt)
    assert adapter.get(uuid).uuid == uuid
    assert receipt.written


def test_a_change_that_did_not_arrive_has_changed_nothing_and_cannot_arrive_later(open_adapter: Open) -> None:
    receipt = key()
    adapter, other = open_adapter(), open_adapter()
    lossy = Lossy(adapter)
    lossy.times, lossy.arrives = 1, False
    with pytest.raises(StoreUnavailableError):
        change(adapter, receipt)
    stored = adapter.read(lambda tx: tx.receipts.get(receipt.id))
    assert stored is not None
    assert stored.void
    with pytest.raises(RepeatedCallError):  # as if the network had delivered it late
        change(other, key())


def test_a_repeated_call_replaces_the_void_receipt(adapter: Adapter) -> None:
    receipt = key()
    lossy = Lossy(adapter)
    lossy.times, lossy.arrives = 1, False
    with pytest.raises(StoreUnavailableError):
        change(adapter, receipt)
    change(adapter, key(instead=True))
    stored = adapter.read(lambda tx: tx.receipts.get(receipt.id))
    assert stored is not None
    assert not stored.void


def test_the_answer_to_the_question_itself_may_be_lost(adapter: Adapter) -> None:
    receipt = key()
    lossy = Lossy(adapter)
    lossy.times = 3
    uuid = change(adapter, receipt)
    assert adapter.get(uuid).uuid == uuid


def test_the_outcome_is_unknown_while_nobody_can_be_asked(open_adapter: Open) -> None:
    receipt = key()
    adapter = open_adapter(busy_timeout=0.1)
    lossy = Lossy(adapter)
    lossy.times = 1_000_000
    with pytest.raises(OutcomeUnknownError):
        change(adapter, receipt)
    lossy.times = 0
    assert adapter.read(lambda tx: tx.nodes.list(Query()))


def test_without_a_receipt_the_outcome_is_unknown(adapter: Adapter) -> None:
    lossy = Lossy(adapter)
    lossy.times = 1
    with pytest.raises(OutcomeUnknownError):
        adapter.write(added)


def test_a_connection_that_breaks_before_commit_is_sent_has_changed_nothing(adapter: Adapter) -> None:
    lossy = Lossy(adapter)
    lossy.times, lossy.arrives, lossy.is_sent = 1, False, False

    def work(tx: Transaction) -> None:
        tx.connection  # noqa: B018  # begins
        added(tx)

    with pytest.raises(StoreUnavailableError):
        adapter.write(work)
    assert list(adapter.read(lambda tx: tx.nodes.list(Query()))) == []


def test_the_same_key_has_effect_once(adapter: Adapter) -> None:
    receipt = key()
    change(adapter, receipt)
    with pytest.raises(RepeatedCallError):
        change(adapter, key())


def test_the_changes_of_one_call_have_a_receipt_each(adapter: Adapter) -> None:
    receipt = key()
    change(adapter, receipt)
    lossy = Lossy(adapter)
    lossy.times = 1
    uuid = change(adapter, receipt)
    assert adapter.get(uuid).uuid == uuid


def test_old_receipts_are_removed(adapter: Adapter) -> None:
    receipt = key()
    change(adapter, receipt)
    assert adapter.write(lambda tx: tx.receipts.remove_old(10)) == 0
    adapter.write(lambda tx: tx.receipts.add(Receipt("old", "call")))
    past = schema.receipts.update().where(schema.receipts.c.id == "old").values(expires_at=0.0)
    adapter.write(lambda tx: tx.connection.execute(past))  # type: ignore[attr-defined]
    assert adapter.write(lambda tx: tx.receipts.remove_old(10)) == 1
    assert adapter.read(lambda tx: tx.receipts.get(receipt.id)) is not None


def test_only_the_newest_replies_are_kept_and_no_call_is_forgotten_for_that(adapter: Adapter) -> None:
    idents = [f"r{number}" for number in range(6)]
    for number, ident in enumerate(idents):
        adapter.write(lambda tx, ident=ident: tx.receipts.add(Receipt(ident, "call", given=True)))  # type: ignore[misc]
        adapter.write(lambda tx, ident=ident: tx.receipts.answered(ident, 200, "{}"))  # type: ignore[misc]
        at = schema.receipts.update().where(schema.receipts.c.id == ident).values(expires_at=9e9 + number)
        adapter.write(lambda tx, at=at: tx.connection.execute(at))  # type: ignore[misc, attr-defined]
    dropped = [adapter.write(lambda tx: tx.receipts.drop_replies(3, kept=2)) for _ in range(3)]
    assert dropped == [3, 1, 0]
    found = [adapter.read(lambda tx, ident=ident: tx.receipts.get(ident)) for ident in idents]  # type: ignore[misc]
    assert [one.reply for one in found if one is not None] == [None] * 4 + ["{}"] * 2
