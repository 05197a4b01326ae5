"""What callers may set on a node: the body of POST, and what JSON patches may touch.

Types and lengths are checked here, so that nothing reaches a database that it cannot hold.
Fields that nothing interprets are kept in the node's ``attributes``, under their own names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ferroscope.api import scalars
from ferroscope.api.documented import Uuid
from ferroscope.api.errors import BadRequestError, NotAcceptableError
from ferroscope.api.node_fields import BY_NAME
from ferroscope.api.patch import Operation
from ferroscope.domain import bmc_access, masking
from ferroscope.domain.model import Document, Node
from ferroscope.first_use import ready

Text = Annotated[str, Meta(max_length=255)] | None | UnsetType
Flag = bool | str | None | UnsetType
Object = Document | None | UnsetType


class NodeSettable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Every field of a node that a caller may set; ``driver`` is the only one that is needed."""

    driver: Annotated[str, Meta(min_length=1, max_length=255)]
    name: Text = UNSET
    driver_info: Object = UNSET
    properties: Object = UNSET
    extra: Object = UNSET
    instance_info: Object = UNSET
    instance_uuid: Uuid | UnsetType | None = UNSET
    maintenance: Flag = UNSET
    resource_class: Annotated[str, Meta(max_length=80)] | UnsetType | None = UNSET
    conductor_group: Text = UNSET
    owner: Text = UNSET
    chassis_uuid: str | UnsetType | None = UNSET
    automated_clean: Flag = UNSET
    bios_interface: Text = UNSET
    boot_interface: Text = UNSET
    console_interface: Text = UNSET
    deploy_interface: Text = UNSET
    description: Annotated[str, Meta(max_length=4096)] | UnsetType | None = UNSET
    disable_power_off: Flag = UNSET
    firmware_interface: Text = UNSET
    inspect_interface: Text = UNSET
    lessee: Text = UNSET
    management_interface: Text = UNSET
    network_data: Object = UNSET
    network_interface: Text = UNSET
    parent_node: Text = UNSET
    power_interface: Text = UNSET
    protected: Flag = UNSET
    protected_reason: Text = UNSET
    raid_interface: Text = UNSET
    rescue_interface: Text = UNSET
    retired: Flag = UNSET
    retired_reason: Text = UNSET
    shard: Text = UNSET
    storage_interface: Text = UNSET
    vendor_interface: Text = UNSET


class NodeCreate(NodeSettable, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/nodes."""

    uuid: Uuid | UnsetType | None = UNSET


ready(NodeSettable)
PATCHABLE: Final = NodeSettable.__struct_fields__

_FLAGS: Final = frozenset({"automated_clean", "disable_power_off", "protected", "retired"})
_DOCUMENTS: Final = frozenset({"driver_info", "properties", "extra", "instance_info"})
# Shown with masks in place of secrets.
_MASKED: Final = frozenset({"driver_info", "instance_info"})
_COLUMNS: Final = frozenset(
    {"driver", "name", "instance_uuid", "maintenance", "resource_class", "conductor_group", "owner"} | _DOCUMENTS
)
_OPAQUE: Final = frozenset(PATCHABLE) - _COLUMNS - {"chassis_uuid"}


def settable(node: Node) -> Document:
    """Return the node as a JSON patch sees it: every settable field, with nothing masked."""
    values = {name: getattr(node, name) if name in _COLUMNS else node.attributes.get(name) for name in PATCHABLE}
    return values | {"network_data": node.attributes.get("network_data", {})}


def changes(body: NodeSettable, node: Node | None, drivers: Collection[str]) -> dict[str, Any]:
    """Return the fields of ``Node`` that ``body`` sets; raise ``BadRequestError`` for what cannot be."""
    given = {name: value for name in PATCHABLE if (value := getattr(body, name)) is not UNSET}
    if given.pop("chassis_uuid", None) is not None:
        raise BadRequestError("chassis_uuid cannot be set: this service manages no chassis.")
    changed: dict[str, Any] = {name: given[name] for name in _COLUMNS & given.keys()}
    for name in _DOCUMENTS & changed.keys():
        changed[name] = changed[name] or {}
    for name in _MASKED & changed.keys():
        changed[name] = _unmasked(name, changed[name], node)
    _check_driver(changed, node, drivers)
    _check_scalars(changed, node)
    attributes = dict(node.attributes) if node is not None else {}
    attributes.update({name: _opaque(name, given[name]) for name in _OPAQUE & given.keys()})
    # What ends takes its reason along, as in the reference's service.
    for flag in ("maintenance", "protected", "retired"):
        if flag in given and not changed.get(flag, attributes.get(flag)):
            attributes.pop(f"{flag}_reason", None)
    changed["attributes"] = {name: value for name, value in attributes.items() if value not in (None, {})}
    return changed


def _unmasked(name: str, given: Document, node: Node | None) -> Document:
    """Return the document with the secrets that are stored where the caller gives back their masks."""
    try:
        return masking.unmask(given, getattr(node, name) if node is not None else {})
    except KeyError as exc:
        raise BadRequestError(
            f"{name}/{exc.args[0]} is {masking.MASK}, which stands for a stored secret, and none is stored; give it."
        ) from None


def check_secrets(before: Node, after: Node, operations: Iterable[Operation]) -> None:
    """Refuse a change that would send a stored secret to another BMC; what the caller gives in the same call may go.

    An operator who says where the BMC is, or gives its secrets, vouches for it.
    """
    given = _given(before, operations)
    changed, kept = bmc_access.exposed(before, after, given)
    if kept:
        names, places = ", ".join(kept), ", ".join(changed)
        raise BadRequestError(
            f"With another {places}, the stored {names} would go to whoever is there. "
            f"Give {names} in the same call, or remove what the new BMC does not need."
        )
    if bmc_access.unconfirmed(after) and (changed or given):
        bmc_access.confirm(after, by_operator=True)


def _given(before: Node, operations: Iterable[Operation]) -> set[str]:
    """Return the fields of driver_info whose secrets are in the call itself, not as what masks stand for."""
    found: set[str] = set()
    for one in operations:
        field, _, rest = one.path.lstrip("/").partition("/")
        if field != "driver_info" or one.op == "remove":
            continue
        values = one.value if not rest and isinstance(one.value, dict) else {}
        if rest and "/" not in rest:  # a part of a secret is not the secret
            values = {rest.replace("~1", "/").replace("~0", "~"): one.value}
        shown = masking.mask(before.driver_info)
        found.update(name for name in bmc_access.secrets(values) if values[name] != shown.get(name))
    return found


def check_versions(names: Collection[str], body: NodeSettable, minor: int) -> None:
    """Refuse with 406 what is set but newer than the call's microversion."""
    for name in names:
        empty = {None, "", UNSET} if name == "conductor_group" else {None, UNSET}
        value = getattr(body, name)
        if BY_NAME[name].since > minor and (isinstance(value, dict) or value not in empty):
            raise NotAcceptableError(f"The field {name} needs API version 1.{BY_NAME[name].since}.")


def _check_driver(changed: dict[str, Any], node: Node | None, drivers: Collection[str]) -> None:
    driver = changed.get("driver")
    if driver not in drivers and (node is None or driver != node.driver):
        offered = ", ".join(sorted(drivers)) or "none"
        raise BadRequestError(f"The driver {scalars.shown(driver)} is not enabled here; enabled: {offered}.")


def _check_scalars(changed: dict[str, Any], node: Node | None) -> None:
    if changed.get("name") is not None and (node is None or changed["name"] != node.name):
        changed["name"] = scalars.name("name", changed["name"])
    if changed.get("instance_uuid") is not None:
        changed["instance_uuid"] = scalars.uuid("instance_uuid", changed["instance_uuid"])
    if "maintenance" in changed:
        changed["maintenance"] = scalars.boolean("maintenance", changed["maintenance"] or False)
    if "conductor_group" in changed:
        changed["conductor_group"] = scalars.conductor_group(changed["conductor_group"] or "")


def _opaque(name: str, value: Any) -> Any:
    if name in _FLAGS and value is not None:
        return scalars.boolean(name, value)
    return value
