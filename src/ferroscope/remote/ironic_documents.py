"""All that an Ironic knows of its nodes, for an import: nodes with all their fields, ports, inventories, rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ferroscope.contracts.remote import RegistryUnavailableError
from ferroscope.core.model import Document, Rule
from ferroscope.core.node import ATTRIBUTES, STORED
from ferroscope.core.values import is_uuid
from ferroscope.remote.ironic import IronicRegistry, _document

_INVENTORIES_SINCE: Final = 81
_RULES_SINCE: Final = 96
_CHILDREN_SINCE: Final = 83
_INSPECTED: Final = {"uuid": 1, "provision_state": 1, "inspection_started_at": 6, "inspection_finished_at": 6}
# Interfaces are chosen anew here; chassis are not imported.
FIELDS: Final = tuple(
    field
    for field in (*STORED, *ATTRIBUTES)
    if field.name in ("traits", "maintenance_reason")
    or (field.settable and not field.name.endswith("_interface") and field.name != "chassis_uuid")
)
_NODE_FIELDS: Final = {field.name: field.since or 1 for field in FIELDS} | _INSPECTED
_RULE_FIELDS: Final = dict.fromkeys(
    ("uuid", "description", "priority", "phase", "sensitive", "conditions", "actions"), _RULES_SINCE
)


class IronicDocuments(IronicRegistry):
    """Each method raises ``RegistryUnavailableError`` or ``RegistryRefusedError``; lists are read page by page."""

    def every_node(self) -> Iterator[Document]:
        """Yield all nodes, those with a parent too."""
        children = {"include_children": "true"} if self._newest() >= _CHILDREN_SINCE else {}
        return self._list("nodes", _NODE_FIELDS, **children)

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
        for one in self._list("inspection_rules", _RULE_FIELDS):
            if not is_uuid(str(one["uuid"])):  # a built-in rule
                continue
            try:
                yield Rule(
                    uuid=str(one["uuid"]),
                    description=one.get("description"),
                    priority=int(one.get("priority") or 0),
                    phase=str(one.get("phase") or "main"),
                    sensitive=bool(one.get("sensitive")),
                    conditions=list(one.get("conditions") or []),
                    actions=list(one.get("actions") or []),
                )
            except (TypeError, ValueError):
                raise RegistryUnavailableError("the response is not a list of inspection rules") from None
