"""What openstacksdk does when it is asked for bare metal and its introspection; run by ``runner``.

Each function takes the roots of both APIs and gives back plain data: what the library made of the answers.
"""

from __future__ import annotations

from typing import Any

import openstack
from openstack.connection import Connection

_NODE = (
    "id",
    "name",
    "driver",
    "provision_state",
    "power_state",
    "properties",
    "extra",
    "last_error",
    "is_maintenance",
)
_INTROSPECTION = ("id", "state", "is_finished", "error", "started_at", "finished_at")


def connect(urls: dict[str, str]) -> Connection:
    """Connect without Keystone; what fails is not repeated."""
    return openstack.connect(
        auth_type="none",
        baremetal_endpoint_override=urls["bare_metal"],
        baremetal_introspection_endpoint_override=urls["introspection"],
        baremetal_status_code_retries=0,
        baremetal_introspection_status_code_retries=0,
    )


# The baremetal proxy.


def create(urls: dict[str, str], node: dict[str, Any], address: str) -> dict[str, Any]:
    """Enrol a node with its port, as manageable in one call."""
    baremetal = connect(urls).baremetal
    created = baremetal.create_node(**node)
    port = baremetal.create_port(node_id=created.id, address=address)
    return {"node": seen(created, _NODE), "port": {"id": port.id, "address": port.address, "node_id": port.node_id}}


def inspect(urls: dict[str, str], node: str, timeout: float = 30) -> dict[str, Any]:
    """Inspect, wait, and fetch the inventory and the ports."""
    baremetal = connect(urls).baremetal
    inspected = baremetal.set_node_provision_state(node, "inspect", wait=True, timeout=timeout)
    ports = [
        {"address": port.address, "is_pxe_enabled": port.is_pxe_enabled}
        for port in baremetal.ports(details=True, node=node)
    ]
    return {"node": seen(inspected, _NODE), "inventory": baremetal.get_node_inventory(node), "ports": ports}


def set_provision_state(urls: dict[str, str], node: str, target: str) -> dict[str, Any]:
    return seen(connect(urls).baremetal.set_node_provision_state(node, target), _NODE)


def inspect_many(urls: dict[str, str], nodes: list[str], timeout: float = 30) -> dict[str, list[str]]:
    """Start them all, wait for all, and tell which ones came how far."""
    baremetal = connect(urls).baremetal
    for node in nodes:
        baremetal.set_node_provision_state(node, "inspect")
    result = baremetal.wait_for_nodes_provision_state(nodes, "manageable", timeout=timeout, fail=False)
    return {name: [node.id for node in getattr(result, name)] for name in ("success", "failure", "timeout")}


def get(urls: dict[str, str], node: str, fields: list[str] | None = None) -> dict[str, Any]:
    return seen(connect(urls).baremetal.get_node(node, fields=fields), _NODE)


def find(urls: dict[str, str], node: str) -> dict[str, Any] | None:
    found = connect(urls).baremetal.find_node(node, ignore_missing=True)
    return None if found is None else seen(found, _NODE)


def list_nodes(urls: dict[str, str], details: bool = False, **query: Any) -> list[dict[str, Any]]:
    """List to the end: the library follows the links from page to page."""
    return [seen(node, _NODE) for node in connect(urls).baremetal.nodes(details=details, **query)]


def patch(urls: dict[str, str], node: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
    return seen(connect(urls).baremetal.patch_node(node, operations), _NODE)


def update(urls: dict[str, str], node: str, changes: dict[str, Any]) -> dict[str, Any]:
    return seen(connect(urls).baremetal.update_node(node, **changes), _NODE)


def validate(urls: dict[str, str], node: str, required: list[str]) -> dict[str, Any]:
    checks = connect(urls).baremetal.validate_node(node, required=required)
    return {name: [check.result, check.reason] for name, check in checks.items()}


def power_cycle(urls: dict[str, str], node: str) -> list[str]:
    """Power on, reboot, power off; tell the states that were reached."""
    baremetal = connect(urls).baremetal
    reached = []
    for target in ("power on", "rebooting", "power off"):
        baremetal.set_node_power_state(node, target, wait=True, timeout=30)
        reached.append(baremetal.get_node(node).power_state)
    return reached


def soft_power(urls: dict[str, str], node: str) -> list[str]:
    """Power on, reboot and power off softly; tell the states that were reached."""
    baremetal = connect(urls).baremetal
    reached = []
    for target in ("power on", "soft rebooting", "soft power off"):
        baremetal.set_node_power_state(node, target, wait=True, timeout=30)
        reached.append(baremetal.get_node(node).power_state)
    return reached


def ports_of(urls: dict[str, str], node: str, address: str, new_address: str) -> dict[str, Any]:
    """Create, find, change and delete a port."""
    baremetal = connect(urls).baremetal
    port = baremetal.create_port(node_id=node, address=address, is_pxe_enabled=False)
    by_address = [found.id for found in baremetal.ports(address=address)]
    by_node = [found.address for found in baremetal.ports(node=node, fields=["address"])]
    changed = baremetal.update_port(port, address=new_address, extra={"slot": 1})
    fetched = baremetal.get_port(port.id)
    baremetal.delete_port(port.id, ignore_missing=False)
    return {
        "id": port.id,
        "is_pxe_enabled": port.is_pxe_enabled,
        "by_address": by_address,
        "by_node": by_node,
        "changed": changed.address,
        "fetched": [fetched.address, fetched.extra, fetched.node_id],
        "left": [found.id for found in baremetal.ports(address=new_address)],
    }


def resources(urls: dict[str, str], node: str) -> dict[str, Any]:
    """Create a chassis and a port group for the node, set its traits, and list what there is; return what was seen."""
    baremetal = connect(urls).baremetal
    chassis = baremetal.create_chassis(description="rack", extra={"a": "1"})
    baremetal.update_chassis(chassis, description="rack 7")
    group = baremetal.create_port_group(node_id=node, name=f"bond-{node}", mode="802.3ad")
    port = next(baremetal.ports(details=True, node=node))
    baremetal.patch_port(port, [{"op": "add", "path": "/portgroup_uuid", "value": group.id}])
    baremetal.set_node_traits(node, ["CUSTOM_SDK", "HW_CPU_X86_VMX"])
    baremetal.add_node_trait(node, "CUSTOM_MORE")
    baremetal.remove_node_trait(node, "CUSTOM_SDK")
    baremetal.patch_node(node, [{"op": "add", "path": "/chassis_uuid", "value": chassis.id}])
    shown = baremetal.get_node(node)
    conductors = [baremetal.get_conductor(one.hostname) for one in baremetal.conductors()]
    seen = {
        "chassis": baremetal.get_chassis(chassis.id).description,
        "chassis_listed": chassis.id in [one.id for one in baremetal.chassis(details=True)],
        "group": [one.name for one in baremetal.port_groups(details=True, node=node)],
        "ports": [one.address for one in baremetal.ports(portgroup=group.id)],
        "traits": sorted(shown.traits),
        "chassis_of_node": shown.chassis_id == chassis.id,
        "conductor": shown.conductor,
        "conductors": {one.hostname: [one.alive, one.drivers] for one in conductors},
        "allocations": [one.id for one in baremetal.allocations()],
        "templates": [one.id for one in baremetal.deploy_templates()],
        "connectors": [one.id for one in baremetal.volume_connectors()],
        "vifs": baremetal.list_node_vifs(node),
    }
    baremetal.patch_port(port, [{"op": "remove", "path": "/portgroup_uuid"}])
    baremetal.patch_node(node, [{"op": "remove", "path": "/chassis_uuid"}])
    baremetal.delete_port_group(group, ignore_missing=False)
    baremetal.delete_chassis(chassis, ignore_missing=False)
    return seen


def delete(urls: dict[str, str], node: str) -> bool:
    """Delete a node; tell whether it can still be found."""
    baremetal = connect(urls).baremetal
    baremetal.delete_node(node, ignore_missing=False)
    return baremetal.find_node(node) is not None


# The baremetal_introspection proxy.


def introspect(urls: dict[str, str], node: str, timeout: float = 30) -> dict[str, Any]:
    """Start, wait, and fetch the data both ways."""
    proxy = connect(urls).baremetal_introspection
    started = proxy.start_introspection(node)
    begun = seen(proxy.get_introspection(started.id), _INTROSPECTION)
    ended = proxy.wait_for_introspection(started, timeout=timeout)
    return {
        "begun": begun,
        "ended": seen(ended, _INTROSPECTION),
        "processed": proxy.get_introspection_data(ended),
        "unprocessed": proxy.get_introspection_data(ended, processed=False),
    }


def abort_introspection(urls: dict[str, str], node: str, timeout: float = 30) -> dict[str, Any]:
    """Abort what runs and wait for its end, which is an error."""
    proxy = connect(urls).baremetal_introspection
    running = proxy.get_introspection(node)
    proxy.abort_introspection(running, ignore_missing=False)
    return seen(proxy.wait_for_introspection(running, timeout=timeout, ignore_error=True), _INTROSPECTION)


def start_introspection(urls: dict[str, str], node: str, manage_boot: bool | None = None) -> None:
    connect(urls).baremetal_introspection.start_introspection(node, manage_boot=manage_boot)


def wait_for_introspection(urls: dict[str, str], node: str, timeout: float = 30) -> dict[str, Any]:
    proxy = connect(urls).baremetal_introspection
    return seen(proxy.wait_for_introspection(proxy.get_introspection(node), timeout=timeout), _INTROSPECTION)


def get_introspection(urls: dict[str, str], node: str) -> dict[str, Any]:
    return seen(connect(urls).baremetal_introspection.get_introspection(node), _INTROSPECTION)


def get_introspection_data(urls: dict[str, str], node: str, processed: bool = True) -> dict[str, Any]:
    data: dict[str, Any] = connect(urls).baremetal_introspection.get_introspection_data(node, processed=processed)
    return data


def list_introspections(urls: dict[str, str], **query: Any) -> list[dict[str, Any]]:
    return [seen(item, _INTROSPECTION) for item in connect(urls).baremetal_introspection.introspections(**query)]


def seen(resource: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the resource's attributes as plain data."""
    return {name: getattr(resource, name) for name in names}


# Rules.

_RULE = ("id", "description", "priority", "phase", "sensitive", "conditions", "actions")
_OLD_RULE = ("id", "description", "scope", "conditions", "actions")


def create_inspection_rule(urls: dict[str, str], **rule: Any) -> dict[str, Any]:
    return seen(connect(urls).baremetal.create_inspection_rule(**rule), _RULE)


def list_inspection_rules(urls: dict[str, str]) -> list[dict[str, Any]]:
    return [seen(rule, _RULE) for rule in connect(urls).baremetal.inspection_rules()]


def update_inspection_rule(urls: dict[str, str], rule: str, **changes: Any) -> dict[str, Any]:
    return seen(connect(urls).baremetal.update_inspection_rule(rule, **changes), _RULE)


def delete_inspection_rule(urls: dict[str, str], rule: str) -> None:
    connect(urls).baremetal.delete_inspection_rule(rule, ignore_missing=False)


def create_introspection_rule(urls: dict[str, str], **rule: Any) -> dict[str, Any]:
    return seen(connect(urls).baremetal_introspection.create_introspection_rule(**rule), _OLD_RULE)


def list_introspection_rules(urls: dict[str, str]) -> list[dict[str, Any]]:
    return [seen(rule, _OLD_RULE) for rule in connect(urls).baremetal_introspection.introspection_rules()]


def delete_introspection_rule(urls: dict[str, str], rule: str) -> None:
    connect(urls).baremetal_introspection.delete_introspection_rule(rule, ignore_missing=False)


def vmedia(urls: dict[str, str], node: str, device: str | None, image: str) -> None:
    """Attach an image as ``device``, or, without one, detach what can be."""
    baremetal = connect(urls).baremetal
    if device is not None:
        baremetal.attach_vmedia_to_node(node, device, image)
    else:
        baremetal.detach_vmedia_from_node(node, ["cdrom", "floppy"])
