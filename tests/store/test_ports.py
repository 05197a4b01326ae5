"""``db.ports.Ports`` on every database."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.errors import ConflictError, LostUpdateError, NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.db import Transaction
from tests.store.conftest import Adapter
from tests.support import examples


def test_every_field_comes_back_as_it_was_stored(adapter: Adapter) -> None:
    port = examples.port(
        adapter.node(),
        name="eno1",
        pxe_enabled=False,
        physical_network="net 1",
        local_link_connection={"switch_id": "00:11:22:33:44:55", "port_id": "Eth1/1"},
        extra={"a": [1, "😀"]},
        internal={"b": None},
        attributes={"c": True},
        created_at=1_700_000_000.5,
    )
    adapter.write(lambda tx: tx.ports.add([port]))
    assert adapter.read(lambda tx: tx.ports.get(port.uuid)) == port
    assert adapter.read(lambda tx: tx.ports.get(port.address)) == port


def test_a_change_is_saved_with_its_time(adapter: Adapter) -> None:
    node, other = adapter.node(), adapter.node()
    port = examples.port(node, created_at=5.0)
    adapter.write(lambda tx: tx.ports.add([port]))
    wanted = msgspec.structs.replace(port, node=other.uuid, address=examples.mac(), pxe_enabled=False, name="new")
    returned = adapter.write(lambda tx: tx.ports.update(wanted))
    assert returned.updated_at is not None
    assert returned == msgspec.structs.replace(wanted, updated_at=returned.updated_at)
    assert adapter.read(lambda tx: tx.ports.get(wanted.address)) == returned
    assert list(adapter.read(lambda tx: tx.ports.list(Query(filters={"node": node.uuid})))) == []
    assert list(adapter.read(lambda tx: tx.ports.list(Query(filters={"node": other.uuid})))) == [returned]
    with pytest.raises(NotFoundError):
        adapter.read(lambda tx: tx.ports.get(port.address))


def test_an_unknown_port_is_not_found(adapter: Adapter) -> None:
    for ident in ("52:54:00:00:00:00", "7b0d0b1c-5a53-4b0c-b3e8-6dbb5cbfd7b4", "", "nul\x00"):
        with pytest.raises(NotFoundError) as error:
            adapter.read(lambda tx, ident=ident: tx.ports.get(ident))  # type: ignore[misc]
        assert (error.value.kind, error.value.ident) == ("port", ident)


def test_a_change_of_an_unknown_port_is_not_found(adapter: Adapter) -> None:
    port = examples.port(adapter.node())
    with pytest.raises(NotFoundError):
        adapter.write(lambda tx: tx.ports.update(port))


@pytest.mark.parametrize("field", ["address", "uuid", "name"])
def test_a_taken_value_is_a_conflict_of_its_field_and_nothing_is_stored(adapter: Adapter, field: str) -> None:
    first = examples.port(adapter.node(), name="first", created_at=1.0)
    adapter.write(lambda tx: tx.ports.add([first]))
    node = adapter.node()
    clash = msgspec.structs.replace(examples.port(node), **{field: getattr(first, field)})
    with pytest.raises(ConflictError) as error:
        adapter.write(lambda tx: tx.ports.add([examples.port(node), clash]))
    assert (error.value.field, error.value.value) == (field, getattr(first, field))
    assert list(adapter.read(lambda tx: tx.ports.list(Query()))) == [first]


def test_two_new_ports_with_one_address_are_a_conflict(adapter: Adapter) -> None:
    port = examples.port(adapter.node())
    with pytest.raises(ConflictError) as error:
        adapter.write(lambda tx: tx.ports.add([port, msgspec.structs.replace(port, uuid=examples.uuid())]))
    assert error.value.field == "address"
    assert list(adapter.read(lambda tx: tx.ports.list(Query()))) == []


def test_a_change_to_a_taken_address_is_a_conflict(adapter: Adapter) -> None:
    one, two = (examples.port(adapter.node()) for _ in range(2))
    adapter.write(lambda tx: tx.ports.add([one, two]))
    with pytest.raises(ConflictError) as error:
        adapter.write(lambda tx: tx.ports.update(msgspec.structs.replace(two, address=one.address)))
    assert (error.value.field, error.value.value) == ("address", one.address)


def test_an_address_can_be_taken_again_after_its_port_is_removed(adapter: Adapter) -> None:
    port = examples.port(adapter.node())
    adapter.write(lambda tx: tx.ports.add([port]))
    adapter.write(lambda tx: tx.ports.remove([port.uuid, examples.uuid()]))
    with pytest.raises(NotFoundError):
        adapter.read(lambda tx: tx.ports.get(port.uuid))
    again = examples.port(adapter.node(), address=port.address)
    adapter.write(lambda tx: tx.ports.add([again]))
    assert adapter.read(lambda tx: tx.ports.get(port.address)).uuid == again.uuid


def test_an_address_moves_to_another_port_in_one_transaction(adapter: Adapter) -> None:
    old, new_node = examples.port(adapter.node()), adapter.node()
    adapter.write(lambda tx: tx.ports.add([old]))

    def move(tx):  # type: ignore[no-untyped-def]
        tx.ports.remove([old.uuid])
        tx.ports.add([examples.port(new_node, address=old.address)])

    adapter.write(move)
    assert adapter.read(lambda tx: tx.ports.get(old.address)).node == new_node.uuid


def test_lists_are_filtered_and_paged(adapter: Adapter) -> None:
    node, other = adapter.node(), adapter.node()
    mine = [examples.port(node, created_at=float(at)) for at in (2, 1, 3)]
    adapter.write(lambda tx: tx.ports.add([*mine, examples.port(other)]))
    mine.sort(key=lambda port: port.created_at)
    first = adapter.read(lambda tx: tx.ports.list(Query(filters={"node": node.uuid}, limit=2)))
    assert list(first) == mine[:2]
    rest = adapter.read(lambda tx: tx.ports.list(Query(filters={"node": node.uuid}, limit=2, marker=first[-1].uuid)))
    assert list(rest) == mine[2:]
    addresses = (mine[0].address, mine[2].address, "52:54:00:00:00:00")
    found = adapter.read(lambda tx: tx.ports.list(Query(filters={"address": addresses})))
    assert list(found) == [mine[0], mine[2]]
    by_address = adapter.read(lambda tx: tx.ports.list(Query(filters={"node": (node.uuid,)}, sort_key="address")))
    assert [port.address for port in by_address] == sorted(port.address for port in mine)


def test_a_struct_is_not_written_after_its_own_transaction_wrote_the_port(adapter: Adapter) -> None:
    port = examples.port(adapter.node())
    adapter.write(lambda tx: tx.ports.add([port]))

    def twice(tx: Transaction) -> None:
        read = tx.ports.get(port.uuid)
        returned = tx.ports.update(msgspec.structs.replace(read, name="first"))
        tx.ports.update(msgspec.structs.replace(returned, physical_network="net"))
        tx.ports.update(msgspec.structs.replace(read, pxe_enabled=False))

    with pytest.raises(LostUpdateError, match=f"port {port.uuid} was written"):
        adapter.write(twice)
    assert adapter.read(lambda tx: tx.ports.get(port.uuid)).name is None
