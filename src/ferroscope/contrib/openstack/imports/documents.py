"""All data of an Ironic for an import: chassis, nodes with all fields, ports and port groups, inventories, rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ferroscope.contracts.remote import IronicUnavailableError
from ferroscope.contrib.openstack.client import _PORT_FIELDS, BareMetalClient, _document
from ferroscope.core.model import Chassis, Document, Portgroup, Rule
from ferroscope_client.core import mac_addresses
from ferroscope_client.core.node import ATTRIBUTES, STORED
from ferroscope_client.core.values import is_uuid

_INVENTORIES_SINCE: Final = 81
_RULES_SINCE: Final = 96
_CHILDREN_SINCE: Final = 83
_INSPECTED: Final = {"uuid": 1, "provision_state": 1, "inspection_started_at": 6, "inspection_finished_at": 6}
# Interfaces are chosen again here. Ironic 39 fails on ``chassis_uuid`` in a list of fields, and has labels in
# ``extra``.
_NOT_ASKED: Final = ("chassis_uuid", "labels")
FIELDS: Final = tuple(
    field
    for field in (*STORED, *ATTRIBUTES)
    if field.name in ("traits", "maintenance_reason")
    or (field.settable and not field.name.endswith("_interface") and field.name not in _NOT_ASKED)
)
_NODE_FIELDS: Final = {field.name: field.since or 1 for field in FIELDS} | _INSPECTED
_CHASSIS_FIELDS: Final = dict.fromkeys(("uuid", "description", "extra"), 1)
_PORTGROUP_FIELDS: Final = {
    "uuid": 23,
    "address": 23,
    "name": 23,
    "mode": 26,
    "properties": 26,
    "standalone_ports_supported": 23,
    "extra": 23,
    "physical_network": 102,
    "category": 103,
}
_RULE_FIELDS: Final = dict.fromkeys(
    ("uuid", "description", "priority", "phase", "sensitive", "conditions", "actions"), _RULES_SINCE
)


class IronicDocuments(BareMetalClient):
    """Each method raises ``IronicUnavailableError`` or ``IronicRefusedError``; lists are read page by page."""

    def chassis(self) -> Iterator[Chassis]:
        """Yield all chassis."""
        for chassis in self._list("chassis", _CHASSIS_FIELDS):
            yield Chassis(
                uuid=str(chassis["uuid"]), description=chassis.get("description"), extra=chassis.get("extra") or {}
            )

    def nodes_in(self, chassis: str) -> Iterator[str]:
        """Yield the UUIDs of the nodes of a chassis."""
        return (str(node["uuid"]) for node in self._list("nodes", {"uuid": 1}, chassis_uuid=chassis))

    def every_node(self) -> Iterator[Document]:
        """Yield all nodes, those with a parent too."""
        children = {"include_children": "true"} if self._newest() >= _CHILDREN_SINCE else {}
        return self._list("nodes", _NODE_FIELDS, **children)

    def ports_of(self, uuid: str) -> Sequence[Document]:
        """Return the node's ports, with ``portgroup_uuid``."""
        return list(self._list("ports", _PORT_FIELDS | {"portgroup_uuid": 24}, node=uuid))

    def portgroups_of(self, uuid: str) -> Sequence[Portgroup]:
        """Return the node's port groups."""
        return [
            Portgroup(
                uuid=str(group["uuid"]),
                node=uuid,
                address=mac_addresses.normalized_mac(group.get("address")),
                name=group.get("name"),
                mode=str(group.get("mode") or "active-backup"),
                properties=group.get("properties") or {},
                standalone_ports_supported=group.get("standalone_ports_supported") is not False,
                physical_network=group.get("physical_network"),
                category=group.get("category"),
                extra=group.get("extra") or {},
            )
            for group in self._list("portgroups", _PORTGROUP_FIELDS, node=uuid)
        ]

    def inventory_of(self, uuid: str) -> Document | None:
        """Return ``inventory`` and ``plugin_data`` of the node; None if there are none."""
        if self._newest() < _INVENTORIES_SINCE:
            return None
        answer = self._call("GET", f"/v1/nodes/{uuid}/inventory", missing=(404,))
        return None if answer.status == 404 else _document(answer)

    def rules(self) -> Iterator[Rule]:
        """Yield all inspection rules; those that are sensitive have no actions, which Ironic does not show."""
        if self._newest() < _RULES_SINCE:
            return
        for rule in self._list("inspection_rules", _RULE_FIELDS):
            if not is_uuid(str(rule["uuid"])):  # a built-in rule
                continue
            try:
                yield Rule(
                    uuid=str(rule["uuid"]),
                    description=rule.get("description"),
                    priority=int(rule.get("priority") or 0),
                    phase=str(rule.get("phase") or "main"),
                    sensitive=bool(rule.get("sensitive")),
                    conditions=list(rule.get("conditions") or []),
                    actions=list(rule.get("actions") or []),
                )
            except (TypeError, ValueError):
                raise IronicUnavailableError("the response is not a list of inspection rules") from None
