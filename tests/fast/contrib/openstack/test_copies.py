"""Whether our copy of an attached Ironic's node is as Ironic has it: only then an inspection need not save it."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contrib.openstack.copies import is_current
from ferroscope.core import ironic_nodes
from ferroscope.core.model import Node, Port
from tests.support.rows import each

UUID = "11111111-1111-4111-8111-111111111111"
NODE: dict[str, Any] = {"uuid": UUID, "driver": "redfish", "properties": {"cpus": 4}, "provision_state": "manageable"}
PORT: dict[str, Any] = {"uuid": "a", "node_uuid": UUID, "address": "52:54:00:00:00:01", "extra": {}}
OTHER = PORT | {"uuid": "b", "address": "52:54:00:00:00:02"}


def copied() -> tuple[Node, list[Port]]:
    """Return our copy of both, with what only we know of them."""
    port = ironic_nodes.port(PORT)
    assert port is not None
    node = msgspec.structs.replace(ironic_nodes.copy_node(NODE, None), version=7, created_at=1.0)
    return node, [msgspec.structs.replace(port, internal={"inspected": True}, created_at=1.0)]


def test_a_copy_is_current_whatever_only_we_know_of_it() -> None:
    assert is_current(*copied(), NODE, [PORT])
    assert is_current(*copied(), NODE | {"power_state": None}, [PORT, OTHER | {"address": "no MAC"}])
    assert is_current(*copied(), NODE, [PORT, OTHER | {"node_uuid": "of another node"}])


@each(
    ("node", "ports"),
    [
        (NODE | {"properties": {"cpus": 8}}, [PORT]),
        (NODE | {"maintenance": True}, [PORT]),
        (NODE | {"provision_state": "active"}, [PORT]),
        (NODE | {"traits": ["CUSTOM_A"]}, [PORT]),
        (NODE, []),
        (NODE, [PORT, OTHER]),
        (NODE, [OTHER]),
        (NODE, [PORT | {"address": OTHER["address"]}]),
        (NODE, [PORT | {"pxe_enabled": False}]),
    ],
)
def test_a_copy_is_not_current_if_ironic_has_changed_the_node_or_a_port(node: Any, ports: list[Any]) -> None:
    assert not is_current(*copied(), node, ports)


def test_a_copy_of_a_node_that_was_thought_to_be_gone_is_not_current() -> None:
    node, ports = copied()
    assert not is_current(msgspec.structs.replace(node, orphaned_at=1.0), ports, NODE, [PORT])
