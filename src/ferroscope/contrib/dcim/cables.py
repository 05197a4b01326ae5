"""Cables that LLDP shows, between interfaces of a DCIM. Only free ends are connected; others are reported."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ferroscope.contrib.dcim.dialects import Dialect, Found
from ferroscope.contrib.dcim.machines import Interface
from ferroscope.contrib.dcim.rest import RestClient
from ferroscope.contrib.dcim.writer import LeftAloneError, Writer
from ferroscope.core.mac_addresses import normalized_mac

_CABLE = "cable"


class Cabling:
    """The cables of one run, which are created together at its end: a switch may itself be one of the machines."""

    def __init__(self, client: RestClient, dialect: Dialect, writer: Writer) -> None:
        self._client, self._dialect, self._writer = client, dialect, writer
        self._wanted: list[tuple[str, Interface, Found]] = []
        self._switches: dict[str, dict[str, Found]] = {}

    def add(self, label: str, nic: Interface, found: Found) -> None:
        """Have the interface connected with what LLDP says is at its other end."""
        if nic.switch and nic.port:
            self._wanted.append((label, nic, found))

    def finish(self) -> None:
        """Create the cables that are missing."""
        new: list[tuple[str, Found]] = []
        for label, nic, one in self._wanted:
            name = f"{label} - {nic.switch} {nic.port}"
            try:
                other = self._port(nic.switch or "", nic.port or "")
                if not _is_connected(one, other):
                    new.append((name, self._dialect.cable(one["id"], other["id"])))
                    other["cable"] = one["cable"] = {"id": name}  # so that no second one is planned
            except LeftAloneError as exc:
                self._writer.leave(_CABLE, name, exc)
        self._writer.create(_CABLE, "dcim/cables", new)

    def _port(self, switch: str, port: str) -> Found:
        """Return the interface of a switch; ``LeftAloneError`` unless there is exactly one."""
        if switch not in self._switches:
            self._switches[switch] = self._ports(switch)
        ports = self._switches[switch]
        # Junos names the unit of a port, but a cable is in the port.
        found = ports.get(port) or ports.get(port.removesuffix(".0"))
        if found is None:
            raise LeftAloneError("unknown-port", f"there is no device {switch} with an interface {port}")
        return found

    def _ports(self, switch: str) -> dict[str, Found]:
        devices: list[Any] = [device["id"] for device in self._client.list("dcim/devices", name=switch)]
        if len(devices) != 1:
            return {}
        interfaces = list(self._client.list("dcim/interfaces", **{self._dialect.of_device: devices}))
        # A switch that names a port by its MAC address; logical interfaces may share one.
        macs = [normalized_mac(interface.get("mac_address")) for interface in interfaces]
        times = Counter(macs)
        own = {
            mac: interface
            for mac, interface in zip(macs, interfaces, strict=True)
            if mac is not None and times[mac] == 1
        }
        return own | {interface["name"]: interface for interface in interfaces}


def _is_connected(one: Found, other: Found) -> bool:
    """Whether the cable between them is there already; ``LeftAloneError`` if an end has another one."""
    cables = [(end.get(_CABLE) or {}).get("id") for end in (one, other)]
    if cables[0] != cables[1]:
        end = "the machine's interface" if cables[0] is not None else "the switch's port"
        raise LeftAloneError("connected-elsewhere", f"{end} has another cable")
    return cables[0] is not None
