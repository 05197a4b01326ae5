"""Brings devices of a DCIM in step with machines. It creates what is missing and changes the fields that it owns.

It owns a device's name, serial number and type, an interface's MAC address, and the part number, serial number and
manufacturer of the inventory items that it created, which are marked as discovered. It deletes nothing, and leaves
other objects alone and reports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from ferroscope.contrib.dcim.cables import CablePlan
from ferroscope.contrib.dcim.dialects import DcimDialect, DcimObject
from ferroscope.contrib.dcim.machines import DcimInterface, DcimMachine
from ferroscope.contrib.dcim.rest import DcimError, RestClient
from ferroscope.contrib.dcim.writer import DcimWriter, LeftAloneError, Report
from ferroscope_client.core.values import many

_MAX_MACHINES_AT_ONCE: Final = 40  # machines: their identifiers are in one URL, their parts in one body
_DEVICES: Final = "dcim/devices"
_INTERFACES: Final = "dcim/interfaces"
_ITEMS: Final = "dcim/inventory-items"


class DevicePlacement(msgspec.Struct, frozen=True):
    """Names of what must exist: where the devices are, the role of new ones, and their status."""

    name: str
    role: str
    status: str


class Sync:
    """One run. With ``dry_run``, nothing is written, and what would have been created has no identifier."""

    def __init__(
        self, client: RestClient, dialect: DcimDialect, place: DevicePlacement, *, dry_run: bool = False
    ) -> None:
        self._client, self._dialect, self._status = client, dialect, place.status
        self._writer = DcimWriter(client, dry_run=dry_run)
        self._place = self._only(dialect.places, place.name)
        self._role = self._only(dialect.roles, place.role)
        self._cabling = CablePlan(client, dialect, self._writer)
        self._makers: dict[str | None, Any] = {}
        for maker in client.list("dcim/manufacturers"):
            self._makers |= dict.fromkeys((dialect.key(maker["name"]), maker.get("slug")), maker["id"])
        self._types: dict[tuple[Any, str | None], Any] = {}
        for kind in client.list("dcim/device-types"):
            keys = dialect.key(kind["model"]), kind.get("slug")
            self._types |= {(kind["manufacturer"]["id"], key): kind["id"] for key in keys}
        self._by_name: dict[str, list[DcimObject]] = {}
        self._by_serial: dict[str, DcimObject] = {}
        for device in client.list(_DEVICES, **{dialect.in_place: self._place}):
            if device["name"]:
                self._by_name.setdefault(_key(device["name"]), []).append(device)
            if device["serial"]:
                self._by_serial[device["serial"]] = device
        self._names: set[str] = set()

    def run(self, machines: Iterable[DcimMachine], names: Iterable[str]) -> Report:
        """Return the changes, or with ``dry_run`` the planned ones, and the objects that were left alone;
        ``DcimError``.

        ``names`` are those of all nodes: a serial number, which a machine reports about itself, never makes one of them
        the device of another.
        """
        self._names = {_key(name) for name in names}
        rest = iter(machines)
        while batch := list(islice(rest, _MAX_MACHINES_AT_ONCE)):
            devices = self._devices(batch)
            idents = [ident for ident in devices.values() if ident is not None]
            self._interfaces(batch, devices, self._parts(_INTERFACES, idents))
            self._items(batch, devices, self._parts(_ITEMS, idents))
        self._cabling.finish()
        return self._writer.report

    def _only(self, path: str, name: str) -> Any:
        objects = list(self._client.list(path, name=name))
        if len(objects) != 1:
            raise DcimError(f"{many(len(objects), 'object')} of {path} have the name {name!r}; expected one")
        return objects[0]["id"]

    def _parts(self, path: str, devices: list[Any]) -> dict[Any, dict[str, DcimObject]]:
        """Return the parts of these devices by device and name; of two with one name, the discovered one."""
        parts: dict[Any, dict[str, DcimObject]] = {}
        if devices:
            for part in self._client.list(path, **{self._dialect.of_device: devices}):
                own = parts.setdefault(part["device"]["id"], {})
                if part["name"] not in own or part.get("discovered"):
                    own[part["name"]] = part
        return parts

    def _maker(self, name: str) -> Any:
        key = self._dialect.key(name)
        if key not in self._makers:
            body = self._dialect.type_fields(name, "name")
            self._makers[key] = self._writer.create_one("manufacturer", "dcim/manufacturers", name, body)
        return self._makers[key]

    def _type(self, machine: DcimMachine) -> Any:
        maker = self._maker(machine.manufacturer)
        key = (maker, self._dialect.key(machine.model))
        if key not in self._types:
            body = {"manufacturer": maker, **self._dialect.type_fields(machine.model, "model")}
            self._types[key] = self._writer.create_one("device type", "dcim/device-types", machine.model, body)
        return self._types[key]

    def _devices(self, machines: Sequence[DcimMachine]) -> dict[str, Any]:
        """Create and change the devices; return their identifiers by name of the machine."""
        devices: dict[str, Any] = {}
        new: list[tuple[str, DcimObject]] = []
        for machine in machines:
            try:
                kind = self._type(machine)
                owned = {"name": machine.name, "serial": machine.serial, "device_type": kind}
                if (device := self._find_device(machine, kind)) is None:
                    fields = {
                        "role": self._role,
                        self._dialect.place: self._place,
                        **self._dialect.status(self._status),
                    }
                    new.append((machine.name, owned | fields))
                else:
                    self._writer.update("device", _DEVICES, machine.name, device, owned)
                    devices[machine.name] = device["id"]
            except LeftAloneError as exc:
                self._writer.leave("device", machine.name, exc)
        for name, created in self._writer.create("device", _DEVICES, new):
            devices[name] = created["id"]
        return devices

    def _find_device(self, machine: DcimMachine, kind: Any) -> DcimObject | None:
        """Return the device of a machine, None if there is none; ``LeftAloneError`` if another one has its name."""
        namesakes = self._by_name.get(_key(machine.name), [])
        matching = [device for device in namesakes if machine.serial and device["serial"] == machine.serial]
        if len(namesakes) > 1 and len(matching) != 1:
            raise LeftAloneError("several-devices", f"{many(len(namesakes), 'device')} have this name")
        if (
            namesakes
            and not matching
            and namesakes[0]["role"]["id"] != self._role
            and namesakes[0]["device_type"]["id"] != kind
        ):
            raise LeftAloneError("other-device", "a device with another role, serial number and type has this name")
        return (matching or namesakes)[0] if namesakes else self._find_renamed(machine)

    def _find_renamed(self, machine: DcimMachine) -> DcimObject | None:
        """Return the device with the serial number of a machine whose node has got another name, or None."""
        device = self._by_serial.pop(machine.serial, None)  # once: machines may report the same number
        return None if device is None or _key(device["name"] or "") in self._names else device

    def _interfaces(
        self, machines: Sequence[DcimMachine], devices: dict[str, Any], present: dict[Any, dict[str, DcimObject]]
    ) -> None:
        interfaces: dict[str, tuple[DcimInterface, DcimObject]] = {}
        new: dict[str, tuple[DcimInterface, DcimObject]] = {}
        for machine, nic in _below(machines, devices, "interfaces"):
            label, ident = f"{machine.name} {nic.name}", devices[machine.name]
            if nic.name in present.get(ident, {}):
                interfaces[label] = (nic, present[ident][nic.name])
            else:
                body = {"device": ident, "name": nic.name, "type": "other", **self._dialect.interface_status()}
                new[label] = (nic, body)
        if self._dialect.macs is None:
            for label, (nic, interface) in interfaces.items():
                self._writer.try_update("interface", _INTERFACES, label, interface, {"mac_address": nic.mac})
            new = {label: (nic, body | {"mac_address": nic.mac}) for label, (nic, body) in new.items()}
        created = self._writer.create("interface", _INTERFACES, [(label, body) for label, (_, body) in new.items()])
        interfaces |= {label: (new[label][0], interface) for label, interface in created}
        if self._dialect.macs is not None:
            self._primary_macs(self._dialect.macs, interfaces)
        for label, (nic, interface) in interfaces.items():
            self._cabling.add(label, nic, interface)

    def _primary_macs(self, path: str, interfaces: dict[str, tuple[DcimInterface, DcimObject]]) -> None:
        """Give each interface its MAC address. A primary one that differs is changed: its NIC was replaced."""
        new: list[tuple[str, DcimObject]] = []
        for label, (nic, interface) in interfaces.items():
            primary, macs = interface.get("primary_mac_address"), interface.get("mac_addresses") or []
            matching = [mac for mac in macs if mac["mac_address"].lower() == nic.mac]
            if primary is not None and primary["mac_address"].lower() == nic.mac:
                continue
            if matching:
                wanted = {"primary_mac_address": matching[0]["id"]}
                self._writer.try_update("interface", _INTERFACES, label, interface, wanted)
            elif primary is not None:
                self._writer.try_update("MAC address", path, label, primary, {"mac_address": nic.mac})
            else:
                of = {"assigned_object_type": "dcim.interface", "assigned_object_id": interface["id"]}
                new.append((label, {"mac_address": nic.mac, **of}))
        created = self._writer.create("MAC address", path, new)
        pointers = [
            (label, {"id": interfaces[label][1]["id"], "primary_mac_address": mac["id"]}) for label, mac in created
        ]
        self._writer.complete("MAC address", _INTERFACES, pointers)

    def _items(
        self, machines: Sequence[DcimMachine], devices: dict[str, Any], present: dict[Any, dict[str, DcimObject]]
    ) -> None:
        new: list[tuple[str, DcimObject]] = []
        for machine, item in _below(machines, devices, "items"):
            label, ident = f"{machine.name} {item.name}", devices[machine.name]
            try:
                maker = self._maker(item.manufacturer) if item.manufacturer else None
            except LeftAloneError as exc:
                self._writer.leave("inventory item", label, exc)
                continue
            owned = {"part_id": item.part, "serial": item.serial, "manufacturer": maker}
            stored = present.get(ident, {}).get(item.name)
            if stored is None:
                new.append((label, {"device": ident, "name": item.name, "discovered": True, **owned}))
            elif stored["discovered"]:
                self._writer.try_update("inventory item", _ITEMS, label, stored, owned)
            elif self._writer.differences(stored, owned):
                reason = LeftAloneError("other-item", "it differs, and was not created by a sync")
                self._writer.leave("inventory item", label, reason)
        self._writer.create("inventory item", _ITEMS, new)
        for machine in machines:
            names = {item.name for item in machine.items}
            for name, stored in present.get(devices.get(machine.name), {}).items():
                if stored["discovered"] and name not in names:
                    gone = LeftAloneError("part-gone", "the last inspection did not find it")
                    self._writer.leave("inventory item", f"{machine.name} {name}", gone)


def _below(machines: Sequence[DcimMachine], devices: dict[str, Any], kind: str) -> Iterable[tuple[DcimMachine, Any]]:
    """Yield the interfaces or the items of the machines that have a device."""
    for machine in machines:
        if machine.name in devices:
            for part in getattr(machine, kind):
                yield machine, part


def _key(name: str) -> str:
    return " ".join(name.lower().split())
