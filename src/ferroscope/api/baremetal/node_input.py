"""The settable fields of a node: the body of POST, and validation of JSON patches.

Types and lengths are checked here, so that nothing reaches a database that it cannot store. Fields that the service
does not interpret are stored in the node's ``attributes``, under their own names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ferroscope.api.baremetal.drivers import check_interfaces
from ferroscope.api.baremetal.node_fields import BY_NAME
from ferroscope.api.errors import BadRequestError, NotAcceptableError, StateConflictError
from ferroscope.api.http import decoding
from ferroscope.api.http.json_patch import Operation
from ferroscope.api.http.schemas import Uuid
from ferroscope.contracts.bmc import Bmc
from ferroscope.core import bmc_access
from ferroscope.core.secrets import ENCRYPTED, encrypted_values
from ferroscope_client.core import bmc_place
from ferroscope_client.core.driver_names import not_enabled
from ferroscope_client.core.host_spelling import refusal_of_urls
from ferroscope_client.core.json_safety import ready
from ferroscope_client.core.node import SETTABLE, Document, Node, NodeField, TextForm
from ferroscope_client.core.states import Provision
from ferroscope_client.core.values import MASK, mask, unmask


def _kind(field: NodeField) -> Any:
    """Return the type that the decoder accepts for a field; booleans in words and spellings are handled below."""
    if field.required:
        return Annotated[str, Meta(min_length=1, max_length=field.length)]
    if field.plain is bool:
        return bool | str | None | UnsetType
    if field.form is TextForm.UUID:
        return Uuid | UnsetType | None
    kind = Annotated[str, Meta(max_length=field.length)] if field.plain is str else field.plain
    return kind | None | UnsetType


def _fields() -> Iterator[tuple[str, Any] | tuple[str, Any, Any]]:
    for field in SETTABLE.values():
        yield (field.name, _kind(field)) if field.required else (field.name, _kind(field), UNSET)


if TYPE_CHECKING:

    class _Fields(msgspec.Struct, kw_only=True):
        """A stand-in for type checkers: the struct is created dynamically below."""

else:
    _Fields = msgspec.defstruct("_Fields", _fields(), kw_only=True)


class NodeSettable(_Fields, kw_only=True, forbid_unknown_fields=True):
    """The settable fields of a node; only ``driver`` is required."""


class NodeCreate(NodeSettable, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/nodes."""

    uuid: Uuid | UnsetType | None = UNSET


ready(NodeSettable)
PATCHABLE: Final = NodeSettable.__struct_fields__

# Flags with a reason beside them.
_REASONED: Final = tuple(name for name in SETTABLE if f"{name}_reason" in BY_NAME)


def settable(node: Node) -> Document:
    """Return the document that a JSON patch is applied to: every settable field, nothing masked."""
    values: Document = dict.fromkeys(PATCHABLE)
    for name, field in SETTABLE.items():
        missing = field.default if field.plain is Document else None
        values[name] = getattr(node, name) if field.stored else node.attributes.get(name, missing)
    return values


def changes(body: NodeSettable, node: Node | None, drivers: Mapping[str, Bmc]) -> dict[str, Any]:
    """Return the fields of ``Node`` that ``body`` sets.

    ``BadRequestError`` for invalid values, ``StateConflictError`` if the node's state does not allow them.
    """
    body_fields = {name: value for name in PATCHABLE if (value := getattr(body, name)) is not UNSET}
    _check_driver(body_fields, node, drivers)
    values = {name: _value(SETTABLE[name], value, node) for name, value in body_fields.items()}
    _check_hosts(values, node)
    _check_counts(values.get("properties") or {}, node)
    changed = {name: value for name, value in values.items() if SETTABLE[name].stored}
    attributes = dict(node.attributes) if node is not None else {}
    attributes.update({name: value for name, value in values.items() if not SETTABLE[name].stored})
    # Clearing a flag clears its reason, as in Ironic.
    for flag in _REASONED:
        if flag in body_fields and not values[flag]:
            attributes.pop(f"{flag}_reason", None)
    if node is not None:
        _check_flags(node, attributes)
        _name_instance(node, changed, attributes)
    elif unexpected := sorted({"protected", "protected_reason"} & set(body_fields)):
        raise BadRequestError(
            f"Schema error for node: Additional properties are not allowed ('{unexpected[0]}' was unexpected)"
        )
    check_interfaces(attributes, node, changed.get("driver") or (node.driver if node else ""), drivers)
    if attributes.get("instance_name") == "":
        raise BadRequestError("instance_name must not be empty; to remove it, set it to null.")
    changed["attributes"] = {name: value for name, value in attributes.items() if value not in (None, {})}
    return changed


def _check_hosts(values: Mapping[str, Any], node: Node | None) -> None:
    """Refuse new addresses and URLs that different programs read as different addresses."""
    for name in ("driver_info", "instance_info"):
        stored = {} if node is None else getattr(node, name)
        new = {key: value for key, value in (values.get(name) or {}).items() if value != stored.get(key)}
        if why := bmc_place.refusal(new) if name == "driver_info" else refusal_of_urls(new):
            raise BadRequestError(f"Invalid {name}: {why}.")


_COUNTS: Final = ("cpus", "local_gb", "memory_mb")


def _check_counts(properties: Document, node: Node | None) -> None:
    """Refuse new properties that Ironic's schedulers read as numbers but that are not numbers."""
    stored = {} if node is None else node.properties
    wrong = [
        f"{name}={decoding.shown_value(properties[name])}"
        for name in _COUNTS
        if properties.get(name) not in (None, stored.get(name)) and not _is_count(properties[name])
    ]
    if wrong:
        raise BadRequestError(f"These properties must be non-negative integers: {', '.join(wrong)}.")


def _is_count(value: object) -> bool:
    try:
        return isinstance(value, int | float | str) and int(value) >= 0
    except (ValueError, OverflowError):
        return False


def _check_flags(node: Node, attributes: Document) -> None:
    """Check the flags that depend on the node's state, and their reasons; in the words of the Bare Metal service."""
    state = node.provision_state
    if attributes.get("protected") and not node.attributes.get("protected"):
        raise StateConflictError(
            f"Node {node.uuid} can only be made protected in provision states 'active' or 'rescue', the current state "
            f"is '{state}'"
        )
    if attributes.get("retired") and not node.attributes.get("retired") and state is Provision.AVAILABLE:
        raise StateConflictError(
            f"Node {node.uuid} can not have 'retired' set in provision state 'available', the current state is "
            f"'{state}'"
        )
    for flag in ("protected", "retired"):
        reason = attributes.get(f"{flag}_reason")
        if reason and reason != node.attributes.get(f"{flag}_reason") and not attributes.get(flag):
            raise BadRequestError(f"The {flag}_reason field can only be set when {flag} is True")


def _name_instance(node: Node, changed: Document, attributes: Document) -> None:
    """Take the instance's name from ``instance_info``, where older clients set it, unless it has one."""
    info = changed.get("instance_info")
    name = info.get("display_name") if info != node.instance_info and isinstance(info, dict) else None
    if isinstance(name, str) and name and not attributes.get("instance_name"):
        attributes["instance_name"] = name[: SETTABLE["instance_name"].length]


def _value(field: NodeField, requested: Any, node: Node | None) -> Any:
    """Return the value to store; ``BadRequestError``."""
    value = requested if field.nullable else requested or field.default
    if value is None:
        return None
    if field.masked:
        return _unmask_document(field.name, value, node)
    if field.plain is bool:
        return decoding.boolean(field.name, value)
    match field.form:
        case TextForm.UUID:
            return decoding.uuid(field.name, value)
        case TextForm.GROUP:
            return decoding.group(field.name, value)
        case TextForm.LABELS:
            return decoding.labels(field.name, value)
        case TextForm.NAME if node is None or value != getattr(node, field.name):
            return decoding.name(field.name, value)
    return value


def _unmask_document(name: str, document: Document, node: Node | None) -> Document:
    """Return the document with stored secrets in place of masks that the caller sends back."""
    try:
        stored = getattr(node, name) if node is not None else {}
        unmasked = unmask(document, stored)
    except KeyError as exc:
        raise BadRequestError(
            f"{name}/{exc.args[0]} is {MASK}, the mask of a stored secret, but no secret is stored; set its value."
        ) from None
    if set(encrypted_values(unmasked)) - set(encrypted_values(stored)):  # it cannot have been encrypted for this node
        raise BadRequestError(f"{name} must not contain {ENCRYPTED}; set the secret itself.")
    return unmasked


def check_secrets(before: Node, after: Node, operations: Iterable[Operation]) -> None:
    """Reject a change that would send stored secrets to another BMC, unless the caller sets them in the same call.

    An operator who sets the BMC's address or its secrets confirms it.
    """
    sent_fields = _sent_secret_fields(before, operations)
    changed, kept = bmc_access.exposed_fields(before, after, sent_fields)
    if kept:
        names, places = ", ".join(kept), ", ".join(changed)
        raise BadRequestError(
            f"Changing {places} could send the stored {names} to a different machine. "
            f"Set {names} in the same request, or remove what is no longer needed."
        )
    if bmc_access.is_unconfirmed(after) and (changed or sent_fields):
        bmc_access.confirm(after, by_operator=True)


def _sent_secret_fields(before: Node, operations: Iterable[Operation]) -> set[str]:
    """Return the fields of driver_info whose secrets are in the request itself, not as masks of stored ones."""
    sent_fields: set[str] = set()
    for operation in operations:
        field, _, rest = operation.path.lstrip("/").partition("/")
        if field != "driver_info" or operation.op == "remove":
            continue
        values = operation.value if not rest and isinstance(operation.value, dict) else {}
        if rest and "/" not in rest:  # part of a secret is not the secret
            values = {rest.replace("~1", "/").replace("~0", "~"): operation.value}
        shown = mask(before.driver_info)
        sent_fields.update(name for name in bmc_access.secrets(values) if values[name] != shown.get(name))
    return sent_fields


def check_versions(names: Collection[str], body: NodeSettable, minor: int) -> None:
    """Raise 406 for fields that are set but newer than the microversion."""
    for name in names:
        empty = {None, "", UNSET} if name == "conductor_group" else {None, UNSET}
        value = getattr(body, name)
        if BY_NAME[name].since > minor and (isinstance(value, dict) or value not in empty):
            raise NotAcceptableError(f"The field {name} requires API version 1.{BY_NAME[name].since}.")


def _check_driver(body_fields: dict[str, Any], node: Node | None, drivers: Collection[str]) -> None:
    driver = body_fields.get("driver")
    if driver not in drivers and (node is None or driver != node.driver):
        raise BadRequestError(f"No valid host was found. Reason: {not_enabled(driver, drivers)}.")
