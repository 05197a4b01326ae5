"""``db.nodes.Nodes`` on every database."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.errors import ConflictError, LostUpdateError, NotFoundError, StaleError
from ferroscope.contracts.store import Query, packed
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope_client.core.states import Provision, State
from tests.store.conftest import Adapter
from tests.support import examples

DOCUMENT = {
    "text": "quote ' double \" back\\slash percent % null \x00 line\nend",
    "müller": "Ω 漢 😀",
    "numbers": [0, -1, 2**53, 1.5, 1e300],
    "nothing": None,
    "yes": True,
    "nested": {"deep": [{"er": []}, {}]},
}


def _every_field() -> Node:
    return examples.node(
        name="node-1",
        state=State.WAITING,
        provision_state=Provision.INSPECT_WAIT,
        target_provision_state="manageable",
        provision_updated_at=1_700_000_000.125,
        power_state="power on",
        target_power_state="power off",
        inspection=examples.uuid(),
        inspection_started_at=1_700_000_001.5,
        inspection_finished_at=1_700_000_002.75,
        last_error="it's broken: 😀 " + "x" * 70_000,
        auto_discovered=True,
        maintenance=True,
        resource_class="baremetal",
        conductor_group="rack 1",
        owner="someone",
        instance_uuid=examples.uuid(),
        driver_info=DOCUMENT,
        properties={"cpus": 4},
        extra=DOCUMENT,
        instance_info={"a": 1},
        internal={"b": [2]},
        attributes={"c": {}},
        created_at=1_699_999_999.5,
    )


def test_every_field_comes_back_as_it_was_stored(adapter: Adapter) -> None:
    node = _every_field()
    adapter.write(lambda tx: tx.nodes.add(node))
    assert adapter.get(node.uuid) == node


def test_every_field_can_be_changed(adapter: Adapter) -> None:
    node = adapter.node(name="before", created_at=1_699_999_999.5)
    wanted = msgspec.structs.replace(_every_field(), uuid=node.uuid)
    returned = adapter.write(lambda tx: tx.nodes.update(wanted))
    stored = adapter.get(node.uuid)
    assert returned == stored
    assert stored == msgspec.structs.replace(wanted, version=stored.version, updated_at=stored.updated_at)


def test_a_node_without_a_time_of_creation_gets_the_present_one(adapter: Adapter) -> None:
    before = adapter.read(lambda tx: tx.now)
    node = adapter.node()
    assert before <= node.created_at <= adapter.read(lambda tx: tx.now)
    assert node.updated_at is None


def test_a_name_may_look_like_a_uuid(adapter: Adapter) -> None:
    node = adapter.node(name=examples.uuid())
    assert node.name is not None
    assert adapter.get(node.name) == node


def test_an_unknown_node_is_not_found(adapter: Adapter) -> None:
    adapter.node()
    for ident in ("nobody", "7b0d0b1c-5a53-4b0c-b3e8-6dbb5cbfd7b4", "", "nul\x00", "😀", "x" * 5000):
        with pytest.raises(NotFoundError) as error:
            adapter.get(ident)
        assert (error.value.kind, error.value.ident) == ("node", ident)


def test_names_differ_by_case(adapter: Adapter) -> None:
    lower, upper = adapter.node(name="node-a"), adapter.node(name="NODE-A")
    assert adapter.get("node-a") == lower
    assert adapter.get("NODE-A") == upper


def test_a_taken_name_is_a_conflict_of_that_field(adapter: Adapter) -> None:
    other = adapter.node(name="other")
    for name in ("taken", "instance_uuid", "x_address", "pk_nodes.uuid", "(uuid)", "PRIMARY", "a'b"):
        adapter.node(name=name)
        with pytest.raises(ConflictError) as adding:
            adapter.node(name=name)
        renamed = msgspec.structs.replace(other, name=name)
        with pytest.raises(ConflictError) as renaming:
            adapter.write(lambda tx, renamed=renamed: tx.nodes.update(renamed))  # type: ignore[misc]
        assert (adding.value.field, adding.value.value) == ("name", name)
        assert (renaming.value.field, renaming.value.value) == ("name", name)
    assert adapter.get(other.uuid) == other


def test_a_taken_uuid_is_a_conflict_of_that_field(adapter: Adapter) -> None:
    node = adapter.node(name="name")
    with pytest.raises(ConflictError) as error:
        adapter.node(uuid=node.uuid)
    assert (error.value.field, error.value.value) == ("uuid", node.uuid)


def test_a_taken_instance_is_a_conflict_of_that_field(adapter: Adapter) -> None:
    instance = examples.uuid()
    adapter.node(instance_uuid=instance)
    with pytest.raises(ConflictError) as error:
        adapter.node(name="second", instance_uuid=instance)
    assert (error.value.field, error.value.value) == ("instance_uuid", instance)


def test_a_name_that_was_given_up_can_be_taken(adapter: Adapter) -> None:
    renamed, removed = adapter.node(name="one"), adapter.node(name="two")
    adapter.write(lambda tx: tx.nodes.update(msgspec.structs.replace(renamed, name=None)))
    adapter.write(lambda tx: tx.nodes.remove(removed.uuid))
    assert adapter.node(name="one").name == "one"
    assert adapter.node(name="two").name == "two"


def test_two_nodes_swap_their_names_in_one_transaction(adapter: Adapter) -> None:
    one, two = adapter.node(name="one"), adapter.node(name="two")

    def swap(tx):  # type: ignore[no-untyped-def]
        nameless = tx.nodes.update(msgspec.structs.replace(one, name=None))
        tx.nodes.update(msgspec.structs.replace(two, name="one"))
        tx.nodes.update(msgspec.structs.replace(nameless, name="two"))

    adapter.write(swap)
    assert adapter.get("one").uuid == two.uuid
    assert adapter.get("two").uuid == one.uuid


def test_each_save_gives_a_new_version_and_the_time(adapter: Adapter) -> None:
    node = adapter.node()
    first = adapter.write(lambda tx: tx.nodes.update(node))
    second = adapter.write(lambda tx: tx.nodes.update(first))
    assert node.version < first.version < second.version
    assert first.updated_at is not None
    assert first.updated_at >= node.created_at
    assert adapter.get(node.uuid) == second


def test_a_save_of_an_older_version_is_refused(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.write(lambda tx: tx.nodes.update(msgspec.structs.replace(node, owner="first")))
    with pytest.raises(StaleError):
        adapter.write(lambda tx: tx.nodes.update(msgspec.structs.replace(node, owner="second")))
    assert adapter.get(node.uuid).owner == "first"


def test_a_save_of_a_removed_node_is_not_found(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.write(lambda tx: tx.nodes.remove(node.uuid))
    with pytest.raises(NotFoundError):
        adapter.write(lambda tx: tx.nodes.update(node))


def test_a_removed_node_takes_everything_along(adapter: Adapter) -> None:
    gone, stays = adapter.node(name="gone"), adapter.node(name="stays")
    inspections = {node.uuid: examples.inspection(node) for node in (gone, stays)}
    bmc = {gone.uuid: "192.0.2.1", stays.uuid: "192.0.2.2"}

    def fill(tx):  # type: ignore[no-untyped-def]
        for node in (gone, stays):
            tx.ports.add([examples.port(node), examples.port(node)])
            tx.inspections.add(inspections[node.uuid])
            tx.data.save(inspections[node.uuid].uuid, node.uuid, packed({"inventory": b"{}"}))
            tx.requests.put(examples.request(node))
            tx.journal.append([examples.entry(node)])
            tx.addresses.set_bmc(node.uuid, [bmc[node.uuid]])

    adapter.write(fill)
    adapter.write(lambda tx: tx.nodes.remove(gone.uuid))

    def left(tx):  # type: ignore[no-untyped-def]
        return {
            node.uuid: [
                len(tx.ports.list(Query(filters={"node": node.uuid}))),
                len(tx.inspections.list(Query(filters={"node": node.uuid}))),
                len(tx.data.load(inspections[node.uuid].uuid, ["inventory"])),
                len(tx.requests.pending(node.uuid)),
                len(tx.journal.list(Query(filters={"node": node.uuid}))),
            ]
            for node in (gone, stays)
        }

    assert adapter.read(left) == {gone.uuid: [0, 0, 0, 0, 0], stays.uuid: [2, 1, 1, 1, 1]}
    adapter.join("worker")
    assert adapter.must_claim("worker").request.node == stays.uuid
    assert adapter.claim("worker") is None
    with pytest.raises(NotFoundError):
        adapter.get(gone.uuid)
    assert adapter.get("stays") == stays


def test_filters_take_a_value_or_one_of_several(adapter: Adapter) -> None:
    one = adapter.node(driver="a", provision_state=Provision.ENROLL, maintenance=True)
    two = adapter.node(driver="b", provision_state=Provision.MANAGEABLE)
    three = adapter.node(driver="b", provision_state=Provision.ENROLL, owner="me")

    def found(**filters: object) -> set[str]:
        return {node.uuid for node in adapter.read(lambda tx: tx.nodes.list(Query(filters=filters)))}

    assert found(driver="b") == {two.uuid, three.uuid}
    assert found(driver="b", provision_state=Provision.ENROLL) == {three.uuid}
    assert found(provision_state=("enroll", "manageable")) == {one.uuid, two.uuid, three.uuid}
    assert found(provision_state=("manageable",)) == {two.uuid}
    assert found(uuid=(one.uuid, two.uuid)) == {one.uuid, two.uuid}
    assert found(maintenance=True) == {one.uuid}
    assert found(maintenance=False) == {two.uuid, three.uuid}
    assert found(owner=None) == {one.uuid, two.uuid}
    assert found(owner="nobody") == set()
    assert found(owner="nul\x00") == set()
    assert found(driver=()) == set()


def test_an_upper_bound_leaves_out_what_has_no_value(adapter: Adapter) -> None:
    early = adapter.node(provision_updated_at=10.0)
    adapter.node(provision_updated_at=20.0)
    adapter.node(provision_updated_at=None)
    found = adapter.read(lambda tx: tx.nodes.list(Query(before={"provision_updated_at": 20.0})))
    assert [node.uuid for node in found] == [early.uuid]


@pytest.mark.parametrize("descending", [False, True])
def test_pages_put_together_are_the_whole_list(adapter: Adapter, *, descending: bool) -> None:
    nodes = [
        adapter.node(name=name, owner=owner, created_at=at, attributes=attributes)
        for name, owner, at, attributes in [
            ("b", None, 2.0, {"lessee": "p"}),
            ("B", "x", 1.0, {}),
            (None, "x", 1.0, {"lessee": "o\0", "retired": True}),
            ("a", None, 3.0, {"lessee": "p", "retired": True}),
            (None, "y", 3.0, {}),
        ]
    ]

    def value(node: Node) -> tuple[bool, object, float, str]:
        key = node.attributes.get(sort_key) if sort_key in ("lessee", "retired") else getattr(node, sort_key)
        return (key is not None, key or "", node.created_at, node.uuid)

    for sort_key in ("uuid", "name", "created_at", "provision_state", "owner", "lessee", "retired"):
        expected = [node.uuid for node in sorted(nodes, key=value, reverse=descending)]
        pages: list[str] = []
        while len(pages) < len(nodes):
            query = Query(limit=2, marker=pages[-1] if pages else None, sort_key=sort_key, descending=descending)
            page = adapter.read(lambda tx, query=query: tx.nodes.list(query))  # type: ignore[misc]
            assert 0 < len(page) <= 2
            pages.extend(node.uuid for node in page)
        assert pages == expected, sort_key


def test_a_page_goes_on_behind_a_marker_that_no_longer_matches(adapter: Adapter) -> None:
    nodes = [adapter.node(created_at=float(at), state=State.WAITING) for at in (1, 2, 3)]
    adapter.write(lambda tx: tx.nodes.update(msgspec.structs.replace(nodes[1], state=State.FINISHED)))
    query = Query(filters={"state": State.WAITING}, marker=nodes[1].uuid)
    assert [node.uuid for node in adapter.read(lambda tx: tx.nodes.list(query))] == [nodes[2].uuid]


def test_an_unknown_marker_is_not_found(adapter: Adapter) -> None:
    marker = examples.uuid()
    with pytest.raises(NotFoundError) as error:
        adapter.read(lambda tx: tx.nodes.list(Query(marker=marker)))
    assert (error.value.kind, error.value.ident) == ("node", marker)


def test_orphans_are_known_by_their_uuids(adapter: Adapter) -> None:
    kept, gone = adapter.node(), adapter.node()
    adapter.write(lambda tx: tx.nodes.update(msgspec.structs.replace(tx.nodes.get(gone.uuid), orphaned_at=1.5)))
    assert adapter.read(lambda tx: tx.nodes.orphans()) == {kept.uuid: None, gone.uuid: 1.5}


@pytest.mark.parametrize("lock", [False, True])
def test_a_struct_is_not_written_after_its_own_transaction_wrote_the_node(adapter: Adapter, lock: bool) -> None:
    """Two functions that are given the same struct: the second would revert the first, or fail whenever repeated."""
    node = adapter.node(owner="nobody")

    def twice(tx: Transaction) -> None:
        read = tx.nodes.get(node.uuid, lock=lock)
        tx.nodes.update(msgspec.structs.replace(read, owner="first"))
        tx.nodes.update(msgspec.structs.replace(read, name="second"))

    with pytest.raises(LostUpdateError, match=f"node {node.uuid} was written"):
        adapter.write(twice)
    assert adapter.get(node.uuid) == node


def test_a_struct_is_not_written_after_its_own_transaction_removed_the_node(adapter: Adapter) -> None:
    node = adapter.node()

    def remove_and_save(tx: Transaction) -> None:
        read = tx.nodes.get(node.uuid, lock=True)
        tx.nodes.remove(node.uuid)
        tx.nodes.update(read)

    with pytest.raises(LostUpdateError, match="removed"):
        adapter.write(remove_and_save)
    assert adapter.get(node.uuid) == node


def test_what_a_write_returned_may_be_written_again_in_the_same_transaction(adapter: Adapter) -> None:
    fresh = examples.node()

    def thrice(tx: Transaction) -> Node:
        tx.nodes.add(fresh)
        one = tx.nodes.update(msgspec.structs.replace(fresh, owner="first"))
        tx.nodes.update(msgspec.structs.replace(one, name="second"))
        return tx.nodes.update(msgspec.structs.replace(tx.nodes.get(fresh.uuid), maintenance=True))

    last = adapter.write(thrice)
    assert (last.owner, last.name, last.maintenance) == ("first", "second", True)
    assert adapter.get(fresh.uuid) == last
