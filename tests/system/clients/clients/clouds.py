"""What openstacksdk does with a cloud of clouds.yaml, whatever its kind of login; run by ``runner``."""

from __future__ import annotations

from typing import Any

import openstack


def names(urls: dict[str, str], cloud: str) -> list[str]:
    """Return the names of the nodes that this login may see."""
    return sorted(node.name for node in openstack.connect(cloud=cloud).baremetal.nodes())


def enroll_and_inspect(urls: dict[str, str], cloud: str, node: dict[str, Any], address: str) -> dict[str, Any]:
    """Create a node with its port, manage and inspect it, and return its states and inventory."""
    baremetal = openstack.connect(cloud=cloud).baremetal
    created = baremetal.create_node(**node)
    baremetal.create_port(node_id=created.id, address=address)
    inspected = baremetal.set_node_provision_state(created.id, "inspect", wait=True, timeout=60)
    inventory = baremetal.get_node_inventory(created.id)
    return {"provision_state": inspected.provision_state, "inventory": inventory["inventory"]}


def delete(urls: dict[str, str], cloud: str, node: str) -> None:
    openstack.connect(cloud=cloud).baremetal.delete_node(node, ignore_missing=False)
