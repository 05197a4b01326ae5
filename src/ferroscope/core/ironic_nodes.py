"""Nodes and ports of an attached Ironic: our copy of its documents, and changes to be applied there. Pure.

Ironic owns these nodes. Hooks, rules and lookups work on our copy. What they change is recorded as *changes*: each is a
path and, unless it is removed, its new value: ``[["properties", "memory_mb"], 4096]``. Applied to the present document,
they become a JSON patch of the differences only. So applying them again changes nothing, and values that others write
there are kept. Source: the Bare Metal API reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from ferroscope.core.model import Document, Node, Port
from ferroscope_client.core import labels, mac_addresses, values
from ferroscope_client.core.node import ATTRIBUTES, STORED, NodeField
from ferroscope_client.core.states import ACTIVE, INSPECTABLE, Provision, State

ATTACHED: Final = "registry"
"""The key of a node's ``internal`` document with what only Ironic knows. Nodes that have it belong to Ironic."""
# Ironic's own inspection may wait for ours.
_INSPECTABLE: Final = INSPECTABLE | {Provision.INSPECTING, Provision.INSPECT_WAIT}

_COPIED: Final = frozenset(
    {
        "conductor_group", "description", "disable_power_off", "driver", "driver_info", "extra", "instance_uuid",
        "lessee", "maintenance", "maintenance_reason", "name", "owner", "parent_node", "power_state", "properties",
        "protected", "protected_reason", "resource_class", "retired", "retired_reason", "shard", "target_power_state",
        "traits",
    }
)  # fmt: skip
_STORED: Final = tuple(field for field in STORED if field.name in _COPIED)
_ATTRIBUTES: Final = tuple(field for field in ATTRIBUTES if field.name in _COPIED)
# The class of a field's values, found once: all nodes are compared with Ironic's in each period.
_KINDS: Final = {field.name: getattr(field.plain, "__origin__", field.plain) for field in (*STORED, *ATTRIBUTES)}
# Of a port, stored with its attributes.
_PORT_TEXTS: Final = ("category", "description", "vendor")
# Fields that Ironic reports and we only observe. They are never written there.
_OBSERVED: Final = frozenset({"power_state", "target_power_state"})
# Stands for a secret in ``driver_info``, which stays in Ironic: see ``core.bmc_access``.
_KEPT_THERE: Final = "kept by Ironic"
_ENCRYPTED: Final = frozenset(field.name for field in STORED if field.encrypted)
_CAPABILITIES: Final = "capabilities"
_TRAITS: Final = "traits"
# The keys that Ironic accepts in the path of a patch.
_PATCHABLE: Final = re.compile(r"[\w-]+\Z", re.ASCII)

AttributeChange = list[Any]


# Our copy


def provision_state(node: Node) -> str:
    """Return the provision state in Ironic, as last seen."""
    return str(node.internal[ATTACHED].get("provision_state"))


def is_in_use(state: str) -> bool:
    """Whether a node with this provision state in Ironic is used by others, so that its machine is left alone."""
    return state not in _INSPECTABLE and state != Provision.VERIFYING


def refusal(node: Node) -> str | None:
    """Return why an attached node must not be inspected now, or None."""
    state = provision_state(node)
    if state not in _INSPECTABLE:
        return (
            f"cannot inspect a node that is {state} in Ironic; it must be in one of: {', '.join(sorted(_INSPECTABLE))}"
        )
    if node.maintenance:
        reason = node.attributes.get("maintenance_reason")
        why = f" ({reason})" if reason else ""
        return f"cannot inspect node {node.uuid}: it is in maintenance in Ironic{why}; take it out of maintenance there"
    return None


def shown_state(node: Node, state: str) -> str:
    """Return the provision state that our API shows for a node that is ``state`` in Ironic."""
    if node.state in ACTIVE:
        return node.provision_state
    if node.state is State.ERROR and state in _INSPECTABLE:
        return Provision.INSPECT_FAILED
    return Provision(state) if state in frozenset(Provision) else state


def copy_node(document: Document, stored: Node | None) -> Node:
    """Return the node as in Ironic's ``document``; our own fields come from ``stored``."""
    node = stored or Node(uuid=str(document["uuid"]), driver="", internal={ATTACHED: {}})
    state = str(document.get("provision_state") or Provision.ENROLL)[:16]
    changes: dict[str, Any] = {field.name: fitting(field, document.get(field.name)) for field in _STORED}
    changes["labels"] = labels.valid_labels(changes["extra"].get("labels"))
    changes["driver_info"] = {
        key: _KEPT_THERE if value == values.MASK or values.is_secret(key) else value
        for key, value in changes["driver_info"].items()
    }
    attributes = {name: value for name, value in node.attributes.items() if name not in _COPIED}
    for field in _ATTRIBUTES:
        value = fitting(field, document.get(field.name))
        if value != field.default:
            attributes[field.name] = sorted(value) if field.name == _TRAITS else value
    internal = node.internal | {ATTACHED: {"provision_state": state}}
    provision: Any = shown_state(node, state)
    return msgspec.structs.replace(
        node, **changes, attributes=attributes, internal=internal, provision_state=provision, orphaned_at=None
    )


def fitting(field: NodeField, value: Any) -> Any:
    """Return the value if it has the field's type and length, otherwise its default."""
    fits = isinstance(value, _KINDS[field.name]) and (
        field.length is None or not isinstance(value, str) or len(value) <= field.length
    )
    return value if fits else field.default


def port(document: Document) -> Port | None:
    """Return the port; None if it has no valid MAC."""
    address = mac_addresses.normalized_mac(document.get("address"))
    if address is None:
        return None
    name, network = document.get("name"), document.get("physical_network")
    return Port(
        uuid=str(document["uuid"]),
        node=str(document.get("node_uuid")),
        address=address,
        name=name if isinstance(name, str) else None,
        pxe_enabled=document.get("pxe_enabled") is not False,
        physical_network=network if isinstance(network, str) else None,
        local_link_connection=document.get("local_link_connection") or {},
        extra=document.get("extra") or {},
        attributes={key: text for key in _PORT_TEXTS if isinstance(text := document.get(key), str)},
    )


def updated_port(stored: Port, in_ironic: Port) -> Port:
    """Return the port as in Ironic, with what only we know about it."""
    ours = {key: value for key, value in stored.attributes.items() if key not in _PORT_TEXTS}
    return msgspec.structs.replace(
        in_ironic, internal=stored.internal, attributes=ours | in_ironic.attributes, created_at=stored.created_at
    )


def same_port(first: Port, second: Port) -> bool:
    """Whether both are the same, apart from what only we know about a port."""
    return port_document(first) == port_document(second)


def port_document(own_port: Port) -> Document:
    """Return the port for a request that creates it."""
    document = {
        "uuid": own_port.uuid,
        "node_uuid": own_port.node,
        "address": own_port.address,
        "pxe_enabled": own_port.pxe_enabled,
        "extra": own_port.extra,
        "local_link_connection": own_port.local_link_connection,
    }
    return document | {
        name: value
        for name, value in (
            ("physical_network", own_port.physical_network),
            ("name", own_port.name),
            *((key, own_port.attributes.get(key)) for key in _PORT_TEXTS),
        )
        if value is not None
    }


# Changes


def changes(before: Node, after: Node) -> list[AttributeChange]:
    """Return what a task changed in the node, in a form for the queue, without values that may be secret."""
    differences: list[AttributeChange] = []
    for field in STORED:
        old, new = getattr(before, field.name), getattr(after, field.name)
        if field.settable and field.name not in _OBSERVED and old != new:
            differences += _in_document(field.name, old, new) if isinstance(new, dict) else [[[field.name], new]]
    for field in ATTRIBUTES:
        old, new = (node.attributes.get(field.name, field.default) for node in (before, after))
        if old == new:
            continue
        if field.name == _TRAITS:
            differences += [[[_TRAITS, trait], True] for trait in sorted({*new} - {*old})]
            differences += [[[_TRAITS, trait]] for trait in sorted({*old} - {*new})]
        else:
            differences += _in_document(field.name, old, new) if isinstance(new, dict) else [[[field.name], new]]
    return differences


def port_changes(before: Port, after: Port) -> list[AttributeChange]:
    """Return what a task changed in the port."""
    old, new = port_document(before), port_document(after)
    differences: list[AttributeChange] = []
    for name in ("address", "name", "physical_network", "pxe_enabled"):
        if old.get(name) != new.get(name):
            differences.append([[name], new.get(name)])
    for name in ("extra", "local_link_connection"):
        differences += _in_document(name, old[name], new[name])
    return differences


def _in_document(name: str, old: Document, new: Document) -> list[AttributeChange]:
    differences: list[AttributeChange] = []
    for key in dict.fromkeys((*old, *new)):
        if key in old and key in new and old[key] == new[key]:
            continue
        if (name, key) == ("properties", _CAPABILITIES):
            before, after = _capabilities(old.get(key)), _capabilities(new.get(key))
            paths = {capability: [name, key, capability] for capability in dict.fromkeys((*before, *after))}
            differences += [
                [path, after[capability]] if capability in after else [path]
                for capability, path in paths.items()
                if before.get(capability) != after.get(capability)
            ]
        elif key not in new:
            differences.append([[name, key]])
        else:
            differences.append([[name, key], None if name in _ENCRYPTED else new[key]])
    return differences


def with_secrets(wanted_changes: Iterable[AttributeChange], node: Node) -> list[AttributeChange]:
    """Return the changes with the values of encrypted documents, which are only stored in the node."""
    return [
        [path, getattr(node, path[0]).get(path[1])]
        if new_value and len(path) == 2 and path[0] in _ENCRYPTED
        else [path, *new_value]
        for path, *new_value in wanted_changes
    ]


def patch(wanted: Iterable[AttributeChange], present: Document) -> list[Document]:
    """Return the JSON patch for ``present`` that makes the wanted changes, without those that are made already.

    Ironic's patches cannot name every key of a document. If such a key changes, the whole document is replaced.
    """
    operations: list[Document] = []
    documents: dict[str, Document] = {}
    for path, *new_value in wanted:
        name = path[0]
        if name == _TRAITS:
            continue
        if len(path) == 1:
            if present.get(name) != new_value[0]:
                operations.append(_remove(name) if new_value[0] is None else _set("replace", name, new_value[0]))
            continue
        document = documents.setdefault(name, dict(present.get(name) or {}))
        if len(path) == 3:
            before = _capabilities(document.get(path[1]))
            after = {capability: value for capability, value in before.items() if new_value or capability != path[2]}
            after |= {path[2]: new_value[0]} if new_value else {}
            if after != before:
                document[path[1]] = ",".join(f"{capability}:{value}" for capability, value in after.items())
        elif new_value:
            document[path[1]] = new_value[0]
        else:
            document.pop(path[1], None)
    for name, document in documents.items():
        operations += _document_patch(name, present.get(name) or {}, document)
    return operations


def _document_patch(name: str, old: Document, new: Document) -> list[Document]:
    differing = [key for key in dict.fromkeys((*old, *new)) if key not in old or key not in new or old[key] != new[key]]
    if not all(_PATCHABLE.match(key) for key in differing):
        return [_set("replace", name, new)]
    return [_set("add", f"{name}/{key}", new[key]) if key in new else _remove(f"{name}/{key}") for key in differing]


def traits(wanted: Iterable[AttributeChange], present: Sequence[str]) -> list[str] | None:
    """Return all traits that the node is to have; None if it has them already."""
    trait_set = set(present)
    for path, *new_value in wanted:
        if path[0] == _TRAITS:
            (trait_set.add if new_value else trait_set.discard)(path[1])
    return None if trait_set == set(present) else sorted(trait_set)


def _set(operation: str, path: str, value: Any) -> Document:
    return {"op": operation, "path": f"/{path}", "value": value}


def _remove(path: str) -> Document:
    return {"op": "remove", "path": f"/{path}"}


def _capabilities(stored: Any) -> dict[str, str]:
    """Return capabilities by name, from either form."""
    if isinstance(stored, dict):
        return {str(name): str(value) for name, value in stored.items()}
    pairs = (pair.partition(":") for pair in stored.split(",")) if isinstance(stored, str) else ()
    return {name.strip(): value.strip() for name, colon, value in pairs if colon and name.strip()}
