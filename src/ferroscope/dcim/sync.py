"""Brings devices of a Nautobot in step with machines. It creates what is missing and changes the fields that it owns.

Those are a device's name, serial number and type, an interface's MAC address, and an inventory item's part number,
serial number and manufacturer. Status, role and location are set when a device is created, and nothing is deleted.
Source: the REST API of Nautobot 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import msgspec

from ferroscope.dcim.machines import Item, Machine
from ferroscope.dcim.rest import DcimError, RestClient

_SOME: Final = 40
_Found = dict[str, Any]


class Change(msgspec.Struct, frozen=True):
    """``before`` None: the object is created."""

    kind: str
    name: str
    before: _Found | None
    after: _Found


class Sync:
    """One run. With ``dry_run``, nothing is written, and what would have been created has no identifier."""

    def __init__(
        self, client: RestClient, *, location: str, role: str, status: str = "Active", dry_run: bool = False
    ) -> None:
        self._client, self._dry_run = client, dry_run
        self._location = self._only("dcim/locations", location)
        self._role = self._only("extras/roles", role)
        self._status = status
        self.changes: list[Change] = []
        self._manufacturers = {_key(one["name"]): one["id"] for one in client.list("dcim/manufacturers")}
        self._types = {
            (one["manufacturer"]["id"], _key(one["model"])): one["id"] for one in client.list("dcim/device-types")
        }
        devices = list(client.list("dcim/devices", location=self._location))
        self._by_name = {_key(one["name"]): one for one in devices if one["name"]}
        self._by_serial = {one["serial"]: one for one in devices if one["serial"]}
        self._names: set[str] = set()

    def run(self, machines: Iterable[Machine], names: Iterable[str]) -> list[Change]:
        """Return what was changed, or with ``dry_run`` what would be; ``DcimError``.

        ``names`` are those of all nodes: a serial number, which a machine reports about itself, never makes one of them
        the device of another.
        """
        self._names = {_key(name) for name in names}
        rest = iter(machines)
        while some := list(islice(rest, _SOME)):
            devices = {one.name: self._device(one) for one in some}
            known = [ident for ident in devices.values() if ident is not None]
            interfaces, items = self._below("dcim/interfaces", known), self._below("dcim/inventory-items", known)
            for one in some:
                ident = devices[one.name]
                self._interfaces(one, ident, interfaces.get(ident, {}))
                for item in one.items:
                    self._item(one, ident, item, items.get(ident, {}))
            self._cables(some, devices)
        return self.changes

    def _only(self, path: str, name: str) -> Any:
        found = list(self._client.list(path, name=name))
        if len(found) != 1:
            raise DcimError(f"{len(found)} objects of {path} have the name {name!r}; expected one")
        return found[0]["id"]

    def _below(self, path: str, devices: list[Any]) -> dict[Any, dict[str, _Found]]:
        """Return by device and name what belongs to these devices."""
        found: dict[Any, dict[str, _Found]] = {}
        if devices:
            for one in self._client.list(path, device=devices):
                found.setdefault(one["device"]["id"], {})[one["name"]] = one
        return found

    def _create(self, kind: str, path: str, name: str, body: _Found) -> Any:
        self.changes.append(Change(kind, name, None, body))
        return None if self._dry_run else self._client.create(path, body)["id"]

    def _update(self, kind: str, path: str, name: str, found: _Found, wanted: _Found) -> None:
        different = {field: value for field, value in wanted.items() if _plain(found.get(field)) != _plain(value)}
        if different:
            before = {field: _plain(found.get(field)) for field in different}
            self.changes.append(Change(kind, name, before, different))
            if not self._dry_run:
                self._client.update(path, found["id"], different)

    def _manufacturer(self, name: str) -> Any:
        if _key(name) not in self._manufacturers:
            self._manufacturers[_key(name)] = self._create("manufacturer", "dcim/manufacturers", name, {"name": name})
        return self._manufacturers[_key(name)]

    def _type(self, machine: Machine) -> Any:
        maker = self._manufacturer(machine.manufacturer)
        key = (maker, _key(machine.model))
        if key not in self._types:
            body = {"manufacturer": maker, "model": machine.model}
            self._types[key] = self._create("device type", "dcim/device-types", machine.model, body)
        return self._types[key]

    def _device(self, machine: Machine) -> Any:
        kind = self._type(machine)
        found = self._by_name.get(_key(machine.name)) or self._renamed(machine)
        owned = {"name": machine.name, "serial": machine.serial, "device_type": kind}
        if found is None:
            body = owned | {"role": self._role, "location": self._location} | _status(self._status)
            return self._create("device", "dcim/devices", machine.name, body)
        self._update("device", "dcim/devices", machine.name, found, owned)
        return found["id"]

    def _renamed(self, machine: Machine) -> _Found | None:
        """Return the device with the serial number of a machine whose node has got another name, or None."""
        found = self._by_serial.pop(machine.serial, None)  # once: machines may report the same number
        return None if found is None or _key(found["name"] or "") in self._names else found

    def _interfaces(self, machine: Machine, device: Any, found: dict[str, _Found]) -> None:
        for nic in machine.interfaces:
            label, path = f"{machine.name} {nic.name}", "dcim/interfaces"
            if nic.name in found:
                self._update("interface", path, label, found[nic.name], {"mac_address": nic.mac})
            else:
                body = {"device": device, "name": nic.name, "type": "other", "mac_address": nic.mac}
                self._create("interface", path, label, body | _status("Active"))

    def _item(self, machine: Machine, device: Any, item: Item, found: dict[str, _Found]) -> None:
        label, path = f"{machine.name} {item.name}", "dcim/inventory-items"
        maker = self._manufacturer(item.manufacturer) if item.manufacturer else None
        owned = {"part_id": item.part, "serial": item.serial, "manufacturer": maker}
        if item.name in found:
            self._update("inventory item", path, label, found[item.name], owned)
        else:
            self._create("inventory item", path, label, {"device": device, "name": item.name, **owned})

    def _cables(self, machines: list[Machine], devices: dict[str, Any]) -> None:
        """Add cables where both interfaces exist and are free; what somebody has plugged elsewhere stays."""
        for machine in machines:
            wired = [nic for nic in machine.interfaces if nic.switch and nic.port]
            if not wired or devices[machine.name] is None:
                continue
            own = self._below("dcim/interfaces", [devices[machine.name]]).get(devices[machine.name], {})
            for nic in wired:
                one = own.get(nic.name)
                if one is None or one.get("cable"):
                    continue
                other = self._port(nic.switch or "", nic.port or "")
                if other is not None and not other.get("cable"):
                    name = f"{machine.name} {nic.name} - {nic.switch} {nic.port}"
                    self._create("cable", "dcim/cables", name, _cable(one["id"], other["id"]))

    def _port(self, switch: str, port: str) -> _Found | None:
        """Return the interface of a switch; None unless there is exactly one."""
        devices = [device["id"] for device in self._client.list("dcim/devices", name=switch)]
        if len(devices) != 1:
            return None
        found = list(self._client.list("dcim/interfaces", device=devices, name=port))
        return found[0] if len(found) == 1 else None


def _key(name: str) -> str:
    return " ".join(name.lower().split())


def _plain(value: Any) -> Any:
    """Return the value as it is compared: the identifier of an object; MAC addresses in lower case."""
    if isinstance(value, dict):
        return value.get("id")
    return value.lower() if isinstance(value, str) and value.count(":") == 5 else value or None


def _status(name: str) -> dict[str, Any]:
    return {"status": {"name": name}}


def _cable(one: str, other: str) -> dict[str, Any]:
    """Return the body of a cable between two interfaces."""
    ends = {
        "termination_a_type": "dcim.interface",
        "termination_a_id": one,
        "termination_b_type": "dcim.interface",
        "termination_b_id": other,
    }
    return ends | _status("Connected")
