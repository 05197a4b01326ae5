"""GET /v1/nodes/{node}/firmware: the versions of firmware that inspections have found.

The BIOS is in every inventory; what else there is, ``hardware.parts`` knows. ``initial_version`` is from the older of
the oldest and the newest inventory that are kept, ``current_version`` from the newer. Nothing here updates firmware.
Source: the Bare Metal API reference.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.baremetal import inventory
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.errors import BadRequestError
from ferroscope.api.http.route import ApiContext, Call, Reply
from ferroscope.api.http.schemas import one_of
from ferroscope.core import json_safety
from ferroscope.hardware import parts

_DEFAULT: Final = ("component", "initial_version", "current_version", "last_version_flashed")
_IDENTITY: Final = ("vendor", "model", "serial_number")
_IDENTITY_SINCE: Final = 114
_FIELDS: Final = ("created_at", "updated_at", *_DEFAULT, *_IDENTITY)


class Component(msgspec.Struct, frozen=True):
    """A component of a node's firmware."""

    created_at: str | None
    updated_at: str | None
    component: str | UnsetType = UNSET
    initial_version: str | UnsetType | None = UNSET
    current_version: str | UnsetType | None = UNSET
    last_version_flashed: str | UnsetType | None = UNSET
    vendor: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    serial_number: str | UnsetType | None = UNSET


class Firmware(msgspec.Struct, frozen=True):
    """The components of a node's firmware."""

    firmware: list[Component]


class FirmwareQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}/firmware."""

    detail: bool | None = None
    fields: list[Annotated[str, one_of(*_FIELDS)]] | None = None


def list_firmware(context: ApiContext, call: Call[FirmwareQuery, None]) -> Reply:
    """List the firmware components of a node."""
    names = _chosen(call.query, call.minor)
    known = context.store.read(lambda tx: inventory.revisions(tx, tx.nodes.get(node_ident(call)).uuid))
    found: dict[str, list[tuple[inventory.RevisionView, dict[str, Any]]]] = {}
    for one in _ends(known):
        for name, part in _components(context, one.inspection).items():
            found.setdefault(name, []).append((one, part))
    components = []
    for name, seen in found.items():
        (oldest, initial), (newest, current) = seen[0], seen[-1]
        values: dict[str, Any] = {
            "component": name,
            "initial_version": initial["version"],
            "current_version": current["version"],
            "last_version_flashed": None,
            "vendor": current.get("vendor"),
            "model": current.get("model"),
            "serial_number": current.get("serial"),
        }
        changed = newest.finished_at if newest is not oldest else None
        shown = {name: value for name, value in values.items() if name in names}
        components.append(Component(oldest.finished_at, changed, **shown))
    return Reply(200, Firmware(firmware=components))


def _chosen(query: FirmwareQuery, minor: int) -> tuple[str, ...]:
    if query.fields is None:
        return _DEFAULT if minor < _IDENTITY_SINCE else (*_DEFAULT, *_IDENTITY)
    if query.detail:
        raise BadRequestError("detail and fields are mutually exclusive.")
    unknown = sorted(set(query.fields) - set(_FIELDS))
    if unknown:
        raise BadRequestError(f"Unknown field(s) of a firmware component: {', '.join(n[:80] for n in unknown[:8])}.")
    if minor < _IDENTITY_SINCE and set(query.fields) & set(_IDENTITY):
        raise BadRequestError(f"{', '.join(_IDENTITY)} require API version 1.{_IDENTITY_SINCE}.")
    return tuple(query.fields)


def _ends(known: list[inventory.RevisionView]) -> list[inventory.RevisionView]:
    return known if len(known) < 2 else [known[0], known[-1]]


def _components(context: ApiContext, inspection: str) -> dict[str, dict[str, Any]]:
    """Return the firmware that this inspection found, by the component: bios and bmc, or such as nic:NIC.1."""
    stored = context.archive.load(inspection, ("inventory", "plugin_data"))
    try:
        found, beside = (
            json_safety.decode(stored.get(part, b"{}"), json_safety.MAX_DERIVED)
            for part in ("inventory", "plugin_data")
        )
    except json_safety.TooManyContainersError:
        return {}
    vendor = parts.mapping(parts.mapping(parts.mapping(found).get("system_vendor")).get("firmware")).get("vendor")
    components: dict[str, dict[str, Any]] = {"bios": {"vendor": parts.text(vendor)}}
    for part in parts.parts(found, beside):
        if part.kind == "firmware":
            kind, name = part.fields["component"], part.fields.get("name")
            title = str(kind) if kind in ("bios", "bmc") or not name else f"{kind}:{name}"
            components[title] = components.get(title, {}) | part.fields
    return {name: one for name, one in components.items() if "version" in one}
