"""The representation of a port, and its settable fields. Source: the Bare Metal API reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ferroscope.api.errors import BadRequestError, NotAcceptableError
from ferroscope.api.http import decoding
from ferroscope.api.http.schemas import ApiLink, Mac, Uuid, iso, one_of, pair
from ferroscope.core.model import Document, Port
from ferroscope_client.core import mac_addresses
from ferroscope_client.core.json_safety import ready


class PortField(msgspec.Struct, frozen=True):
    """A field of a port's representation; see ``node_fields.Field``."""

    name: str
    since: int
    type: Any
    get: Callable[[Port, str], Any]


def _attribute(name: str, default: Any = None) -> Callable[[Port, str], Any]:
    return lambda port, _url: port.attributes.get(name, default)


FIELDS: Final[tuple[PortField, ...]] = (
    PortField("address", 1, str, lambda port, _url: port.address),
    PortField("available_for_dynamic_portgroup", 111, bool, _attribute("available_for_dynamic_portgroup", True)),
    PortField("category", 101, str | None, _attribute("category")),
    PortField("created_at", 1, str | None, lambda port, _url: iso(port.created_at)),
    PortField("description", 97, str | None, _attribute("description")),
    PortField("extra", 1, Document, lambda port, _url: port.extra),
    PortField("internal_info", 18, Document, lambda port, _url: port.internal),
    PortField("is_smartnic", 53, bool, lambda port, _url: port.attributes.get("is_smartnic", False)),
    PortField("links", 1, list[ApiLink], lambda port, url: pair(url, f"ports/{port.uuid}")),
    PortField("local_link_connection", 19, Document, lambda port, _url: port.local_link_connection),
    PortField("name", 88, str | None, lambda port, _url: port.name),
    PortField("node_uuid", 1, str, lambda port, _url: port.node),
    PortField("physical_network", 34, str | None, lambda port, _url: port.physical_network),
    PortField("portgroup_uuid", 24, str | None, lambda port, _url: port.portgroup),
    PortField("pxe_enabled", 19, bool, lambda port, _url: port.pxe_enabled),
    PortField("updated_at", 1, str | None, lambda port, _url: iso(port.updated_at)),
    PortField("uuid", 1, str, lambda port, _url: port.uuid),
    PortField("vendor", 100, str | None, _attribute("vendor")),
)
BY_NAME: Final = {field.name: field for field in FIELDS}
PortFieldName = Annotated[str, one_of(*BY_NAME)]
DEFAULT_FIELDS: Final = ("uuid", "address")

SORT_FIELDS: Final = {
    "id": "created_at",
    "node_uuid": "node",
    "node_id": "node",
    "portgroup_id": "portgroup",
    "is_smartnic": "is_smartnic",
    **{
        name: name
        for name in ("address", "created_at", "name", "physical_network", "pxe_enabled", "updated_at", "uuid")
    },
}

PortSortKey = Annotated[str, one_of(*SORT_FIELDS)]

PortView = msgspec.defstruct(
    "PortView",
    [(field.name, field.type | msgspec.UnsetType, msgspec.UNSET) for field in FIELDS],
    namespace={"__doc__": "A port, with the requested fields that the microversion supports."},
    module=__name__,
)


class PortList(msgspec.Struct, frozen=True):
    """A page of ports; ``next`` is the URL of the next page."""

    ports: list[PortView]  # type: ignore[valid-type]  # made from the table above
    next: str | msgspec.UnsetType = msgspec.UNSET


def render(port: Port, fields: tuple[PortField, ...], url: str) -> dict[str, Any]:
    """Return the port with these fields."""
    return {field.name: field.get(port, url) for field in fields}


def select(minor: int, names: Sequence[str] | None) -> tuple[PortField, ...]:
    """Return the fields to show, None for all; 400 for unknown fields, 406 for newer ones."""
    return _select(minor, None if names is None else tuple(names))


@lru_cache(maxsize=128)
def _select(minor: int, names: tuple[str, ...] | None) -> tuple[PortField, ...]:
    if names is None:
        return tuple(field for field in FIELDS if field.since <= minor)
    unknown = sorted(set(names) - set(BY_NAME))
    if unknown:
        raise BadRequestError(f"Unknown field(s) of a port: {', '.join(name[:80] for name in unknown[:8])}.")
    check_known(names, minor)
    return tuple(field for field in FIELDS if field.name in {*names, "links"})


def check_known(names: Sequence[str], minor: int) -> None:
    """Raise 406 for fields that are newer than the microversion."""
    for name in names:
        if name in BY_NAME and BY_NAME[name].since > minor:
            raise NotAcceptableError(f"The field {name} requires API version 1.{BY_NAME[name].since}.")


# The settable fields of a port: the body of POST, and validation of JSON patches.

Flag = bool | str | None | UnsetType
_Text = Annotated[str, Meta(max_length=255)] | UnsetType | None


class LocalLink(
    msgspec.Struct,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"vtep_logical_switch": "vtep-logical-switch", "vtep_physical_switch": "vtep-physical-switch"},
):
    """The switch port that the NIC is connected to."""

    port_id: str | UnsetType = UNSET
    switch_id: str | UnsetType = UNSET
    switch_info: str | UnsetType = UNSET
    hostname: str | UnsetType = UNSET
    network_type: Literal["managed", "unmanaged"] | UnsetType = UNSET
    vtep_logical_switch: str | UnsetType = UNSET
    vtep_physical_switch: str | UnsetType = UNSET


class PortSettable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settable fields of a port."""

    address: Mac
    node_uuid: Uuid | UnsetType = UNSET
    node_ident: Annotated[str, Meta(max_length=255)] | UnsetType = UNSET
    available_for_dynamic_portgroup: Flag = UNSET
    category: _Text = UNSET
    description: _Text = UNSET
    extra: Document | UnsetType | None = UNSET
    is_smartnic: Flag = UNSET
    local_link_connection: LocalLink | UnsetType | None = UNSET
    name: Annotated[str, Meta(max_length=255)] | UnsetType | None = UNSET
    physical_network: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType | None = UNSET
    portgroup_uuid: Uuid | UnsetType | None = UNSET
    pxe_enabled: Flag = UNSET
    vendor: _Text = UNSET


class PortCreate(PortSettable, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/ports; the node is given by ``node_uuid``, or by ``node_ident`` (UUID or name)."""

    uuid: Uuid | UnsetType | None = UNSET


ready(PortSettable)
PATCHABLE: Final = PortSettable.__struct_fields__
_FLAGS: Final = {"is_smartnic": False, "available_for_dynamic_portgroup": True}
_TEXTS: Final = ("category", "description", "vendor")
_NODE_IDENT_SINCE: Final = 94
_NETWORK_TYPE_SINCE: Final = 64
_VTEP_SINCE: Final = 90
_VTEP_UNTIL: Final = 105


def settable(port: Port) -> Document:
    """Return the document that a JSON patch is applied to."""
    return {
        "address": port.address,
        "node_uuid": port.node,
        "node_ident": port.node,
        **{name: port.attributes.get(name) for name in _TEXTS},
        "available_for_dynamic_portgroup": port.attributes.get("available_for_dynamic_portgroup", True),
        "extra": port.extra,
        "is_smartnic": port.attributes.get("is_smartnic", False),
        "local_link_connection": port.local_link_connection,
        "name": port.name,
        "physical_network": port.physical_network,
        "portgroup_uuid": port.portgroup,
        "pxe_enabled": port.pxe_enabled,
    }


def changes(body: PortSettable, port: Port | None) -> dict[str, Any]:
    """Return the fields of ``Port`` that ``body`` sets, except its node."""
    changed: dict[str, Any] = {"address": decoding.mac("address", body.address)}
    if body.extra is not UNSET:
        changed["extra"] = body.extra or {}
    if body.local_link_connection is not UNSET:
        link = msgspec.to_builtins(body.local_link_connection or LocalLink())
        if port is None or link != port.local_link_connection:
            link = _normalize_switch_id(link)
        changed["local_link_connection"] = link
    if body.name is not UNSET:
        changed["name"] = body.name
    if body.portgroup_uuid is not UNSET:
        group_uuid = body.portgroup_uuid
        changed["portgroup"] = group_uuid if group_uuid is None else decoding.uuid("portgroup_uuid", group_uuid)
    if body.physical_network is not UNSET:
        changed["physical_network"] = body.physical_network
    if body.pxe_enabled is not UNSET:
        changed["pxe_enabled"] = decoding.boolean("pxe_enabled", True if body.pxe_enabled is None else body.pxe_enabled)
    attributes = dict(port.attributes) if port is not None else {}
    for name, default in _FLAGS.items():
        flag = getattr(body, name)
        if flag is not UNSET:
            attributes[name] = decoding.boolean(name, default if flag is None else flag)
    attributes |= {name: text for name in _TEXTS if (text := getattr(body, name)) is not UNSET}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    if port is None or attributes != port.attributes:
        changed["attributes"] = attributes
    return changed


_DATAPATH_ID: Final = re.compile("0x[0-9a-f]{16}", re.IGNORECASE)


def _normalize_switch_id(link: Document) -> Document:
    """Return the link with its ``switch_id`` as Ironic stores it; ``BadRequestError`` if Ironic refuses it."""
    switch_id = link.get("switch_id")
    if switch_id is None:
        return link
    mac = mac_addresses.normalized_mac(switch_id)
    if mac is None and not _DATAPATH_ID.fullmatch(switch_id):
        raise BadRequestError(
            f"Expected a MAC address or OpenFlow datapath ID but received "
            f"{decoding.shown_value(switch_id)} as switch_id."
        )
    return link | {"switch_id": mac or switch_id.lower()}


def check_versions(names: Collection[str], body: PortSettable, minor: int) -> None:
    """Raise 406 for fields that are set but newer than the microversion."""
    for name in names:
        since = _NODE_IDENT_SINCE if name == "node_ident" else BY_NAME[name].since
        if since > minor and getattr(body, name) is not UNSET:
            raise NotAcceptableError(f"The field {name} requires API version 1.{since}.")
    link = body.local_link_connection
    if isinstance(link, LocalLink):
        _check_link(link, minor)


def _check_link(link: LocalLink, minor: int) -> None:
    if link.network_type is not UNSET and minor < _NETWORK_TYPE_SINCE:
        raise NotAcceptableError(f"network_type requires API version 1.{_NETWORK_TYPE_SINCE}.")
    virtual = (link.vtep_logical_switch, link.vtep_physical_switch)
    if virtual != (UNSET, UNSET) and minor >= _VTEP_UNTIL:
        raise NotAcceptableError(f"VTEP switches are not supported since API version 1.{_VTEP_UNTIL}.")
    if virtual != (UNSET, UNSET) and minor < _VTEP_SINCE:
        raise NotAcceptableError(f"VTEP switches require API version 1.{_VTEP_SINCE}.")
    names = {name for name in LocalLink.__struct_fields__ if getattr(link, name) is not UNSET}
    complete = (
        not names
        or {"port_id", "switch_id"} <= names
        or {"port_id", "hostname"} <= names
        or {"port_id", "vtep_logical_switch", "vtep_physical_switch"} <= names
        or link.network_type == "unmanaged"
    )
    if not complete:
        raise BadRequestError(
            "Incomplete local_link_connection: it requires port_id and switch_id (for a smart NIC, port_id and "
            "hostname), or network_type unmanaged."
        )
