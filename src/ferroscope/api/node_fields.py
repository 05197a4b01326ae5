"""Every field of a node's representation: since which microversion, its type, where it comes from.

This table is the representation, its schema, the list of what may be asked for, set and sorted
by. Source: the Bare Metal API reference; ``auto_discovered`` is from the specification that
merged the inspector into the Bare Metal service; ``inbox``, ``orphaned_at`` and ``hardware``, a summary of the
last inventory, are Ferroscope's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.documented import one_of
from ferroscope.api.links import Link, pair
from ferroscope.api.times import iso
from ferroscope.domain import masking
from ferroscope.domain.model import Document, Node

Getter = Callable[[Node, str], Any]


class Field(msgspec.Struct, frozen=True):
    """``get`` takes the node and the API's address; ``full_only``: shown in full representations alone."""

    name: str
    since: int
    type: Any
    get: Getter
    full_only: bool = False


def _stored(name: str, since: int, kind: Any) -> Field:
    return Field(name, since, kind, lambda node, _url: getattr(node, name))


def _opaque(name: str, since: int, kind: Any = str | None, default: Any = None) -> Field:
    return Field(name, since, kind, lambda node, _url: node.attributes.get(name, default))


def _fixed(name: str, since: int, kind: Any, value: Any) -> Field:
    return Field(name, since, kind, lambda _node, _url: value)


def _time(name: str, since: int = 1) -> Field:
    return Field(name, since, str | None, lambda node, _url: iso(getattr(node, name)))


def _masked(name: str, stored: str, since: int) -> Field:
    return Field(name, since, Document, lambda node, _url: masking.mask(getattr(node, stored)))


def _collection(name: str, since: int) -> Field:
    return Field(name, since, list[Link], lambda node, url: pair(url, f"nodes/{node.uuid}/{name}"), full_only=True)


def _driven(name: str) -> Field:
    """The interfaces by which this service itself speaks to a machine: the driver, unless set."""
    return Field(name, 31, str | None, lambda node, _url: node.attributes.get(name) or node.driver)


FIELDS: Final[tuple[Field, ...]] = (
    _fixed("allocation_uuid", 52, str | None, None),
    Field("auto_discovered", 84, bool, lambda node, _url: node.auto_discovered),
    _opaque("automated_clean", 47, bool | None),
    _opaque("bios_interface", 40),
    _opaque("boot_interface", 31),
    _fixed("boot_mode", 75, str | None, None),
    _fixed("chassis_uuid", 1, str | None, None),
    _fixed("clean_step", 7, Document, {}),
    _fixed("conductor", 49, str | None, None),
    _stored("conductor_group", 46, str),
    _fixed("console_enabled", 1, bool, False),
    _opaque("console_interface", 31),
    _time("created_at"),
    _opaque("deploy_interface", 31),
    _fixed("deploy_step", 44, Document, {}),
    _opaque("description", 51),
    _opaque("disable_power_off", 95, bool, False),
    _stored("driver", 1, str),
    _masked("driver_info", "driver_info", 1),
    _masked("driver_internal_info", "internal", 3),
    _stored("extra", 1, Document),
    _fixed("fault", 42, str | None, None),
    _opaque("firmware_interface", 86),
    _stored("hardware", 84, Document),
    _stored("inbox", 84, bool),
    Field("inspect_interface", 31, str | None, lambda node, _url: node.attributes.get("inspect_interface") or "agent"),
    _time("inspection_finished_at", 6),
    _time("inspection_started_at", 6),
    _masked("instance_info", "instance_info", 1),
    _stored("instance_uuid", 1, str | None),
    _stored("last_error", 1, str | None),
    _opaque("lessee", 65),
    Field("links", 1, list[Link], lambda node, url: pair(url, f"nodes/{node.uuid}")),
    _stored("maintenance", 1, bool),
    _opaque("maintenance_reason", 1),
    _driven("management_interface"),
    _stored("name", 5, str | None),
    _opaque("network_data", 66, Document, {}),
    _opaque("network_interface", 20),
    _time("orphaned_at", 84),
    _stored("owner", 50, str | None),
    _opaque("parent_node", 83),
    _collection("portgroups", 24),
    _collection("ports", 1),
    _driven("power_interface"),
    _stored("power_state", 1, str | None),
    _stored("properties", 1, Document),
    _opaque("protected", 48, bool, False),
    _opaque("protected_reason", 48),
    _stored("provision_state", 1, str | None),
    _time("provision_updated_at"),
    _fixed("raid_config", 12, Document, {}),
    _opaque("raid_interface", 31),
    _opaque("rescue_interface", 38),
    _fixed("reservation", 1, str | None, None),
    _stored("resource_class", 21, str | None),
    _opaque("retired", 61, bool, False),
    _opaque("retired_reason", 61),
    _fixed("secure_boot", 75, bool | None, None),
    _fixed("service_step", 87, Document, {}),
    _opaque("shard", 82),
    _collection("states", 14),
    _opaque("storage_interface", 33),
    _stored("target_power_state", 1, str | None),
    _stored("target_provision_state", 1, str | None),
    _fixed("target_raid_config", 12, Document, {}),
    _opaque("traits", 37, list[str], []),
    _time("updated_at"),
    _stored("uuid", 1, str),
    _opaque("vendor_interface", 31),
    _collection("volume", 32),
)

BY_NAME: Final[dict[str, Field]] = {field.name: field for field in FIELDS}
NodeField = Annotated[str, one_of(*(field.name for field in FIELDS if not field.full_only))]

# What may be ordered by, as the store calls it; "id" is the order of creation.
SORT_FIELDS: Final[dict[str, str]] = {
    "id": "created_at",
    **{
        name: name
        for name in (
            "auto_discovered",
            "conductor_group",
            "created_at",
            "driver",
            "inspection_finished_at",
            "inspection_started_at",
            "instance_uuid",
            "maintenance",
            "name",
            "owner",
            "power_state",
            "provision_state",
            "provision_updated_at",
            "resource_class",
            "target_power_state",
            "target_provision_state",
            "updated_at",
            "uuid",
        )
    },
}
NodeSortKey = Annotated[str, one_of(*SORT_FIELDS)]
