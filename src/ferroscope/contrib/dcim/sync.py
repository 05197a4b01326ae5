"""Brings devices of a DCIM in step with machines. It creates what is missing and changes the fields that it owns.

Those are a device's name, serial number and type, an interface's MAC address, and of the inventory items that it has
created, which are marked as discovered, part number, serial number and manufacturer. Nothing is deleted, and what
belongs to somebody else is left alone and reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from ferroscope.contrib.dcim.cables import Cabling
from ferroscope.contrib.dcim.dialects import Dialect, Found
from ferroscope.contrib.dcim.machines import Interface, Machine
from ferroscope.contrib.dcim.rest import DcimError, RestClient
from ferroscope.contrib.dcim.writer import LeftAloneError, Report, Writer
from ferroscope.core.values import many

_AT_ONCE: Final = 40  # machines: their identifiers are in one URL, their parts in one body
_DEVICES: Final = "dcim/devices"
_INTERFACES: Final = "dcim/interfaces"
_ITEMS: Final = "dcim/inventory-items"


class Place(msgspec.Struct, frozen=True):
    """Names of what must exist: where the devices are, the role of new ones, and their status."""

    name: str
    role: str
    status: str


class Sync:
    """One run. With ``dry_run``, nothing is written, and what would have been created has no identifier."""

    def __init__(self, client: RestClient, dialect: Dialect, place: Place, *, dry_run: bool = False) -> None:
        self._client, self._dialect, self._status = client, dialect, place.status
        self._writer = Writer(client, dry_run=dry_run)
        self._place = self._only(dialect.places, place.name)
        self._role = self._only(dialect.roles, place.role)
        self._cabling = Cabling(client, dialect, self._writer)
        self._makers: dict[str | None, Any] = {}
        for one in client.list("dcim/manufacturers"):
            self._makers |= dict.fromkeys((dialect.key(one["name"]), one.get("slug")), one["id"])
        self._types: dict[tuple[Any, str | None], Any] = {}
        for one in client.list("dcim/device-types"):
            keys = dialect.key(one["model"]), one.get("slug")
            self._types |= {(one["manufacturer"]["id"], key): one["id"] for key in keys}
        self._by_name: dict[str, list[Found]] = {}
        self._by_serial: dict[str, Found] = {}
        for one in client.list(_DEVICES, **{dialect.in_place: self._place}):
            if one["name"]:
                self._by_name.setdefault(_key(one["name"]), []).append(one)
            if one["serial"]:
                self._by_serial[one["serial"]] = one
        self._names: set[str] = set()

    def run(self, machines: Iterable[Machine], names: Iterable[str]) -> Report:
        """Return what was changed, or with ``dry_run`` what would be, and what was left alone; ``DcimError``.

        ``names`` are those of all nodes: a serial number, which a machine reports about itself, never makes one of them
        the device of another.
        """
        self._names = {_key(name) for name in names}
        rest = iter(machines)
        while some := list(islice(rest, _AT_ONCE)):
            devices = self._devices(some)
            known = [ident for ident in devices.values() if ident is not None]
            self._interfaces(some, devices, self._parts(_INTERFACES, known))
            self._items(some, devices, self._parts(_ITEMS, known))
        self._cabling.finish()
        return self._writer.report

    def _only(self, path: str, name: str) -> Any:
        found = list(self._client.list(path, name=name))
        if len(found) != 1:
            raise DcimError(f"{many(len(found), 'object')} of {path} have the name {name!r}; expected one")
        return found[0]["id"]

    def _parts(self, path: str, devices: list[Any]) -> dict[Any, dict[str, Found]]:
        """Return by device and name what belongs to these devices; of two of a name, that which was discovered."""
        found: dict[Any, dict[str, Found]] = {}
        if devices:
            for one in self._client.list(path, **{self._dialect.of_device: devices}):
                own = found.setdefault(one["device"]["id"], {})
                if one["name"] not in own or one.get("discovered"):
                    own[one["name"]] = one
        return found

    def _maker(self, name: str) -> Any:
        key = self._dialect.key(name)
        if key not in self._makers:
            body = self._dialect.type_fields(name, "name")
            self._makers[key] = self._writer.create_one("manufacturer", "dcim/manufacturers", name, body)
        return self._makers[key]

    def _type(self, machine: Machine) -> Any:
        maker = self._maker(machine.manufacturer)
        key = (maker, self._dialect.key(machine.model))
        if key not in self._types:
            body = {"manufacturer": maker, **self._dialect.type_fields(machine.model, "model")}
            self._types[key] = self._writer.create_one("device type", "dcim/device-types", machine.model, body)
        return self._types[key]

    def _devices(self, machines: Sequence[Machine]) -> dict[str, Any]:
        """Create and change the devices; return by name of the machine the identifiers of those that it has."""
        devices: dict[str, Any] = {}
        new: list[tuple[str, Found]] = []
        for machine in machines:
            try:
                kind = self._type(machine)
                owned = {"name": machine.name, "serial": machine.serial, "device_type": kind}
                if (found := self._known(machine, kind)) is None:
                    given = {"role": self._role, self._dialect.place: self._place, **self._dialect.status(self._status)}
                    new.append((machine.name, owned | given))
                else:
                    self._writer.update("device", _DEVICES, machine.name, found, owned)
                    devices[machine.name] = found["id"]
            except LeftAloneError as exc:
                self._writer.leave("device", machine.name, exc)
        for name, created in self._writer.create("device", _DEVICES, new):
            devices[name] = created["id"]
        return devices

    def _known(self, machine: Machine, kind: Any) -> Found | None:
        """Return the device of a machine, None if there is none; ``LeftAloneError`` if another one has its name."""
        named = self._by_name.get(_key(machine.name), [])
        same = [one for one in named if machine.serial and one["serial"] == machine.serial]
        if len(named) > 1 and len(same) != 1:
            raise LeftAloneError("several-devices", f"{many(len(named), 'device')} have this name")
        if named and not same and named[0]["role"]["id"] != self._role and named[0]["device_type"]["id"] != kind:
            raise LeftAloneError("other-device", "a device with another role, serial number and type has this name")
        return (same or named)[0] if named else self._renamed(machine)

    def _renamed(self, machine: Machine) -> Found | None:
        """Return the device with the serial number of a machine whose node has got another name, or None."""
        found = self._by_serial.pop(machine.serial, None)  # once: machines may report the same number
        return None if found is None or _key(found["name"] or "") in self._names else found

    def _interfaces(
        self, machines: Sequence[Machine], devices: dict[str, Any], found: dict[Any, dict[str, Found]]
    ) -> None:
        known: dict[str, tuple[Interface, Found]] = {}
        new: dict[str, tuple[Interface, Found]] = {}
        for machine, nic in _below(machines, devices, "interfaces"):
            label, ident = f"{machine.name} {nic.name}", devices[machine.name]
            if nic.name in found.get(ident, {}):
                known[label] = (nic, found[ident][nic.name])
            else:
                body = {"device": ident, "name": nic.name, "type": "other", **self._dialect.interface_status()}
                new[label] = (nic, body)
        if self._dialect.macs is None:
            for label, (nic, one) in known.items():
                self._writer.try_update("interface", _INTERFACES, label, one, {"mac_address": nic.mac})
            new = {label: (nic, body | {"mac_address": nic.mac}) for label, (nic, body) in new.items()}
        created = self._writer.create("interface", _INTERFACES, [(label, body) for label, (_, body) in new.items()])
        known |= {label: (new[label][0], one) for label, one in created}
        if self._dialect.macs is not None:
            self._primary_macs(self._dialect.macs, known)
        for label, (nic, one) in known.items():
            self._cabling.add(label, nic, one)

    def _primary_macs(self, path: str, interfaces: dict[str, tuple[Interface, Found]]) -> None:
        """Give each interface its MAC address. A primary one that differs is changed: its NIC was replaced."""
        new: list[tuple[str, Found]] = []
        for label, (nic, one) in interfaces.items():
            primary, others = one.get("primary_mac_address"), one.get("mac_addresses") or []
            present = [other for other in others if other["mac_address"].lower() == nic.mac]
            if primary is not None and primary["mac_address"].lower() == nic.mac:
                continue
            if present:
                wanted = {"primary_mac_address": present[0]["id"]}
                self._writer.try_update("interface", _INTERFACES, label, one, wanted)
            elif primary is not None:
                self._writer.try_update("MAC address", path, label, primary, {"mac_address": nic.mac})
            else:
                of = {"assigned_object_type": "dcim.interface", "assigned_object_id": one["id"]}
                new.append((label, {"mac_address": nic.mac, **of}))
        created = self._writer.create("MAC address", path, new)
        pointers = [
            (label, {"id": interfaces[label][1]["id"], "primary_mac_address": mac["id"]}) for label, mac in created
        ]
        self._writer.complete("MAC address", _INTERFACES, pointers)

    def _items(self, machines: Sequence[Machine], devices: dict[str, Any], found: dict[Any, dict[str, Found]]) -> None:
        new: list[tuple[str, Found]] = []
        for machine, item in _below(machines, devices, "items"):
            label, ident = f"{machine.name} {item.name}", devices[machine.name]
            try:
                maker = self._maker(item.manufacturer) if item.manufacturer else None
            except LeftAloneError as exc:
                self._writer.leave("inventory item", label, exc)
                continue
            owned = {"part_id": item.part, "serial": item.serial, "manufacturer": maker}
            one = found.get(ident, {}).get(item.name)
            if one is None:
                new.append((label, {"device": ident, "name": item.name, "discovered": True, **owned}))
            elif one["discovered"]:
                self._writer.try_update("inventory item", _ITEMS, label, one, owned)
            elif self._writer.differences(one, owned):
                other = LeftAloneError("other-item", "it differs, and was not created by a sync")
                self._writer.leave("inventory item", label, other)
        self._writer.create("inventory item", _ITEMS, new)
        for machine in machines:
            present = {item.name for item in machine.items}
            for name, one in found.get(devices.get(machine.name), {}).items():
                if one["discovered"] and name not in present:
                    gone = LeftAloneError("part-gone", "the last inspection did not find it")
                    self._writer.leave("inventory item", f"{machine.name} {name}", gone)


def _below(machines: Sequence[Machine], devices: dict[str, Any], kind: str) -> Iterable[tuple[Machine, Any]]:
    """Yield the interfaces or the items of the machines that have a device."""
    for machine in machines:
        if machine.name in devices:
            for one in getattr(machine, kind):
                yield machine, one


def _key(name: str) -> str:
    return " ".join(name.lower().split())
