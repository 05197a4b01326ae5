"""``db.inspections.Journal`` on every database."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Severity
from tests.store.conftest import Adapter
from tests.support import examples


def test_entries_come_back_in_order_with_time_and_uuid(adapter: Adapter) -> None:
    node = adapter.node()
    inspection = examples.uuid()
    noted = [
        examples.entry(
            node,
            f"message {number} 😀",
            inspection=inspection,
            severity=Severity.WARNING,
            reason="timeout",
            detail={"number": number, "list": [None]},
        )
        for number in range(5)
    ]
    before = adapter.read(lambda tx: tx.now)
    adapter.write(lambda tx: tx.journal.append(noted[:3]))
    adapter.write(lambda tx: tx.journal.append(iter(noted[3:])))
    after = adapter.read(lambda tx: tx.now)
    listed = adapter.read(lambda tx: tx.journal.list(Query(filters={"node": node.uuid})))
    assert [msgspec.structs.replace(entry, at=0.0, id=0, uuid="") for entry in listed] == noted
    assert all(before <= entry.at <= after for entry in listed)
    assert len({entry.uuid for entry in listed}) == len({entry.id for entry in listed}) == 5
    assert [entry.id for entry in listed] == sorted(entry.id for entry in listed)


def test_old_entries_that_belong_to_no_inspection_are_found_page_by_page(adapter: Adapter) -> None:
    node = adapter.node()
    entries = [
        examples.entry(node, "0", at=1.0),
        examples.entry(node, "1", at=2.0, inspection=examples.uuid()),
        examples.entry(node, "2", at=3.0),
        examples.entry(node, "3", at=4.0),
        examples.entry(node, "4"),
    ]
    adapter.write(lambda tx: tx.journal.append(entries))

    def left() -> list[str]:
        return [entry.message for entry in adapter.read(lambda tx: tx.journal.list(Query(filters={"node": node.uuid})))]

    first = adapter.read(lambda tx: tx.journal.find_old(100.0, None, 3))
    assert adapter.write(lambda tx: tx.journal.remove(first.keys)) == 2
    assert left() == ["1", "3", "4"]
    second = adapter.read(lambda tx: tx.journal.find_old(100.0, first.after, 3))
    assert adapter.write(lambda tx: tx.journal.remove(second.keys)) == 1
    assert (first.is_last, second.is_last) == (False, True)
    assert left() == ["1", "4"]


def test_entries_can_be_filtered(adapter: Adapter) -> None:
    node, other = adapter.node(), adapter.node()
    inspection = examples.uuid()
    adapter.write(
        lambda tx: tx.journal.append(
            [
                examples.entry(node, "1", inspection=inspection),
                examples.entry(node, "2", severity=Severity.ERROR),
                examples.entry(other, "3"),
            ]
        )
    )

    def found(**filters: object) -> list[str]:
        return [entry.message for entry in adapter.read(lambda tx: tx.journal.list(Query(filters=filters)))]

    assert found() == ["1", "2", "3"]
    assert found(node=node.uuid) == ["1", "2"]
    assert found(node=node.uuid, inspection=inspection) == ["1"]
    assert found(node=node.uuid, inspection=(inspection,)) == ["1"]
    assert found(node=node.uuid, inspection=None) == ["2"]
    assert found(node=node.uuid, inspection=()) == []
    assert found(severity=Severity.ERROR) == ["2"]
    assert found(severity=("ERROR", "WARNING")) == ["2"]
    second = adapter.read(lambda tx: tx.journal.list(Query(filters={"severity": "ERROR"})))[0]
    assert found(uuid=second.uuid) == ["2"]


@pytest.mark.parametrize("descending", [False, True])
def test_the_journal_is_paged_by_its_order(adapter: Adapter, *, descending: bool) -> None:
    node = adapter.node()
    messages = [str(number) for number in range(5)]
    adapter.write(lambda tx: tx.journal.append([examples.entry(node, message) for message in messages]))
    read: list[str] = []
    marker: str | None = None
    while len(read) < 5:
        query = Query(filters={"node": node.uuid}, limit=2, marker=marker, descending=descending)
        page = adapter.read(lambda tx, query=query: tx.journal.list(query))  # type: ignore[misc]
        assert page
        marker = page[-1].uuid
        read.extend(entry.message for entry in page)
    assert read == (messages[::-1] if descending else messages)


def test_an_unknown_marker_is_not_found(adapter: Adapter) -> None:
    with pytest.raises(NotFoundError):
        adapter.read(lambda tx: tx.journal.list(Query(marker=examples.uuid())))


def test_what_a_ramdisk_says_can_be_noted_whatever_it_is(adapter: Adapter) -> None:
    node = adapter.node()
    said = "bad \x00 disk \x1b[31m 😀 " + "x" * 100_000
    inspection = examples.inspection(node, error=said)

    def note(tx):  # type: ignore[no-untyped-def]
        tx.journal.append([examples.entry(node, said, detail={"said": said})])
        tx.inspections.add(inspection)
        tx.nodes.update(msgspec.structs.replace(node, last_error=said))

    adapter.write(note)
    noted = adapter.read(lambda tx: tx.journal.list(Query()))[0]
    assert noted.message.replace("\ufffd", "\x00") == said
    assert noted.detail == {"said": said}


def test_an_entry_that_counts_is_replaced_and_no_other(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.write(lambda tx: tx.journal.append([examples.entry(node, said) for said in ("one", "two")]))
    first, second = adapter.read(lambda tx: tx.journal.list(Query(filters={"node": node.uuid})))
    counting = msgspec.structs.replace(second, message="three\0", detail={"more": 3})
    adapter.write(lambda tx: tx.journal.recount(counting))
    stored = adapter.read(lambda tx: tx.journal.list(Query(filters={"node": node.uuid})))
    assert stored == [first, msgspec.structs.replace(counting, message="three\N{REPLACEMENT CHARACTER}")]
