"""Cables that LLDP shows, between interfaces of a DCIM. Only free ends are connected; others are reported."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ferroscope.contrib.dcim.dialects import DcimDialect, DcimObject
from ferroscope.contrib.dcim.machines import DcimInterface
from ferroscope.contrib.dcim.rest import RestClient
from ferroscope.contrib.dcim.writer import DcimWriter, LeftAloneError
from ferroscope_client.core.mac_addresses import normalized_mac

_CABLE = "cable"


class CablePlan:
    """The cables of one run, which are created together at its end: a switch may itself be one of the machines."""

    def __init__(self, client: RestClient, dialect: DcimDialect, writer: DcimWriter) -> None:
        self._client, self._dialect, self._writer = client, dialect, writer
        self._wanted: list[tuple[str, DcimInterface, DcimObject]] = []
        self._switches: dict[str, dict[str, DcimObject]] = {}

    def add(self, label: str, nic: DcimInterface, interface: DcimObject) -> None:
        """Plan the cable from the interface to the other end that LLDP reports."""
        if nic.switch and nic.port:
            self._wanted.append((label, nic, interface))

    def finish(self) -> None:
        """Create the missing cables."""
        new: list[tuple[str, DcimObject]] = []
        for label, nic, end in self._wanted:
            name = f"{label} - {nic.switch} {nic.port}"
            try:
                port = self._port(nic.switch or "", nic.port or "")
                if not _is_connected(end, port):
                    new.append((name, self._dialect.cable(end["id"], port["id"])))
                    port["cable"] = end["cable"] = {"id": name}  # so that no second one is planned
            except LeftAloneError as exc:
                self._writer.leave(_CABLE, name, exc)
        self._writer.create(_CABLE, "dcim/cables", new)

    def _port(self, switch: str, port: str) -> DcimObject:
        """Return the interface of a switch; ``LeftAloneError`` unless there is exactly one."""
        if switch not in self._switches:
            self._switches[switch] = self._ports(switch)
        ports = self._switches[switch]
        # Junos names the unit of a port, but a cable is in the port.
        interface = ports.get(port) or ports.get(port.removesuffix(".0"))
        if interface is None:
            raise LeftAloneError("unknown-port", f"no device {switch} has an interface {port}")
        return interface

    def _ports(self, switch: str) -> dict[str, DcimObject]:
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


def _is_connected(near: DcimObject, far: DcimObject) -> bool:
    """Whether the cable between them is there already; ``LeftAloneError`` if an end has another one."""
    cables = [(interface.get(_CABLE) or {}).get("id") for interface in (near, far)]
    if cables[0] != cables[1]:
        which = "the machine's interface" if cables[0] is not None else "the switch's port"
        raise LeftAloneError("connected-elsewhere", f"{which} has another cable")
    return cables[0] is not None
