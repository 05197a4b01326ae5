"""``db.records.Records`` on every database: chassis and port groups."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.contracts.errors import ConflictError, LostUpdateError, NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Chassis, Portgroup
from ferroscope.db import Transaction
from ferroscope.db.records import Records
from tests.store.conftest import Adapter
from tests.support import examples

KINDS = [Chassis, Portgroup]


def records(tx: Transaction, kind: type) -> Records[Any]:
    return tx.chassis if kind is Chassis else tx.portgroups


def example(kind: type, **fields: Any) -> Any:
    if kind is Portgroup:
        fields = {"node": examples.uuid(), **fields}
    return kind(uuid=examples.uuid(), **fields)


def add(adapter: Adapter, record: Any) -> Any:
    adapter.write(lambda tx: records(tx, type(record)).add(record))
    return adapter.read(lambda tx: records(tx, type(record)).get(record.uuid))


def test_every_field_comes_back_as_it_was_stored(adapter: Adapter) -> None:
    chassis = example(Chassis, description="ein Gestell 😀", extra={"a": [1, None]}, created_at=5.5)
    group = example(
        Portgroup,
        address=examples.mac(),
        name="bond0",
        mode="802.3ad",
        properties={"miimon": "100"},
        standalone_ports_supported=False,
        physical_network="net 1",
        category="data",
        extra={"b": {}},
        internal={"c": 1},
        created_at=6.5,
    )
    assert add(adapter, chassis) == chassis
    assert add(adapter, group) == group
    assert adapter.read(lambda tx: tx.portgroups.get("bond0")) == group
    assert adapter.write(lambda tx: tx.portgroups.get("bond0", lock=True)) == group


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_saved_with_its_time_and_keeps_the_time_of_creation(adapter: Adapter, kind: type) -> None:
    record = add(adapter, example(kind, created_at=5.0))
    wanted = msgspec.structs.replace(record, extra={"new": 1}, created_at=9.0)
    returned = adapter.write(lambda tx: records(tx, kind).update(wanted))
    assert returned.updated_at is not None
    stored = adapter.read(lambda tx: records(tx, kind).get(record.uuid))
    assert stored == msgspec.structs.replace(wanted, updated_at=returned.updated_at, created_at=5.0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_record_is_not_found_and_may_be_removed(adapter: Adapter, kind: type) -> None:
    unknown = example(kind)
    for work in (
        lambda tx: records(tx, kind).get(unknown.uuid),
        lambda tx: records(tx, kind).update(unknown),
        lambda tx: records(tx, kind).list(Query(marker=unknown.uuid)),
    ):
        with pytest.raises(NotFoundError) as error:
            adapter.write(work)
        assert (error.value.kind, error.value.ident) == (kind.__name__.lower(), unknown.uuid)
    adapter.write(lambda tx: records(tx, kind).remove(unknown.uuid))


@pytest.mark.parametrize(
    ("kind", "field"), [(Chassis, "uuid"), *((Portgroup, name) for name in ("uuid", "name", "address"))]
)
def test_a_taken_value_is_a_conflict_of_its_field(adapter: Adapter, kind: type, field: str) -> None:
    values = {"name": "bond0", "address": examples.mac()} if kind is Portgroup else {}
    first, second = add(adapter, example(kind, **values)), add(adapter, example(kind))
    taken = {field: getattr(first, field)}
    with pytest.raises(ConflictError) as error:
        adapter.write(lambda tx: records(tx, kind).add(msgspec.structs.replace(example(kind), **taken)))
    assert (error.value.field, error.value.value) == (field, taken[field])
    if field != "uuid":
        with pytest.raises(ConflictError) as error:
            adapter.write(lambda tx: records(tx, kind).update(msgspec.structs.replace(second, **taken)))
        assert error.value.field == field


@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_ordered_and_paged_and_removed_records_are_gone(adapter: Adapter, kind: type) -> None:
    made = [add(adapter, example(kind, created_at=float(number))) for number in (2, 1, 3)]
    made.sort(key=lambda one: one.created_at)
    assert list(adapter.read(lambda tx: records(tx, kind).list(Query(limit=2)))) == made[:2]
    assert list(adapter.read(lambda tx: records(tx, kind).list(Query(marker=made[1].uuid)))) == made[2:]
    adapter.write(lambda tx: records(tx, kind).remove(made[0].uuid))
    assert list(adapter.read(lambda tx: records(tx, kind).list(Query(descending=True)))) == made[:0:-1]


def test_port_groups_are_filtered_by_node_and_deleted_with_it(adapter: Adapter) -> None:
    node = adapter.node()
    group, other = add(adapter, example(Portgroup, node=node.uuid)), add(adapter, example(Portgroup))
    filters = {"node": node.uuid}
    assert list(adapter.read(lambda tx: tx.portgroups.list(Query(filters=filters)))) == [group]
    adapter.write(lambda tx: tx.nodes.remove(node.uuid))
    assert list(adapter.read(lambda tx: tx.portgroups.list(Query()))) == [other]


def test_nodes_and_ports_are_found_by_what_they_belong_to(adapter: Adapter) -> None:
    chassis, group = examples.uuid(), examples.uuid()
    node = adapter.node(chassis_uuid=chassis)
    port, other = examples.port(node, portgroup=group), examples.port(adapter.node())
    adapter.write(lambda tx: tx.ports.add([port, other]))
    assert [one.uuid for one in adapter.read(lambda tx: tx.nodes.list(Query(filters={"chassis_uuid": chassis})))] == [
        node.uuid
    ]
    assert [one.uuid for one in adapter.read(lambda tx: tx.ports.list(Query(filters={"portgroup": group})))] == [
        port.uuid
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_struct_is_not_written_after_its_own_transaction_wrote_the_record(adapter: Adapter, kind: type) -> None:
    record = add(adapter, example(kind))

    def twice(tx: Transaction) -> None:
        returned = records(tx, kind).update(msgspec.structs.replace(record, extra={"first": 1}))
        records(tx, kind).update(msgspec.structs.replace(returned, extra={"second": 2}))
        records(tx, kind).update(msgspec.structs.replace(record, extra={"lost": 1}))

    with pytest.raises(LostUpdateError, match=record.uuid):
        adapter.write(twice)
    assert adapter.read(lambda tx: records(tx, kind).get(record.uuid)) == record
