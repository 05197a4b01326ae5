"""Where BMCs are, and how people write that down: what is true, and the entries of the inventory.

``Places`` resolves an entry as the network would, whatever the product thinks of its spelling.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ferroscope.remote.addresses import UnresolvedError

if TYPE_CHECKING:
    from tests.simulation.kubernetes.machines import Machine

Info = dict[str, Any]


class Places:
    """The BMCs of all clusters, by each of their addresses and names."""

    def __init__(self) -> None:
        self._at: dict[str, Machine] = {}
        self.entry_of: dict[str, Machine] = {}

    def add(self, machine: Machine) -> None:
        """Connect the BMC of this machine; its entry in the inventory has the UUID of the machine."""
        self.entry_of[machine.uuid] = machine
        for host in (v4_of(machine), v6_of(machine), name_of(machine)):
            self._at[host] = machine

    def resolve(self, host: str) -> list[str]:
        """Return the addresses of a BMC's name; ``UnresolvedError``."""
        machine = self._at.get(host.lower().rstrip("."))
        if machine is None:
            raise UnresolvedError(host)
        return [v4_of(machine), v6_of(machine)]

    def machine_at(self, info: Info) -> Machine | None:
        """Return the machine whose BMC gets what is sent to this entry's address."""
        return self._at.get(resolved(host_in(info)) or host_in(info).lower().rstrip("."))

    def addresses_of(self, info: Info) -> list[str]:
        """Return the addresses that the host of this entry has, as a worker that resolves it would store them."""
        machine = self.machine_at(info)
        literal = resolved(host_in(info))
        return [literal] if literal else [] if machine is None else [v4_of(machine), v6_of(machine)]


def v4_of(machine: Machine) -> str:
    return f"192.0.2.{100 + machine.number}"


def v6_of(machine: Machine) -> str:
    return f"2001:db8::{0x100 + machine.number:x}"


def name_of(machine: Machine) -> str:
    return f"bmc-{machine.number}.example.com"


def host_in(info: Info) -> str:
    """Return the host in an entry's address."""
    text = next(str(value) for key, value in info.items() if key.endswith("_address"))
    if text.count(":") > 1 and "//" not in text and not text.startswith("["):
        return text
    return urlsplit(text if "//" in text else f"//{text}").hostname or ""


def resolved(host: str) -> str:
    """Return the address that the C library makes of a literal one, "" for a name."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        mapped = found.ipv4_mapped if found.version == 6 else None
        return str(mapped or found)
    try:
        return socket.inet_ntoa(socket.inet_aton(host))  # octal, hexadecimal, and fewer than four parts
    except OSError:
        return ""


def redfish(address: str, **more: Any) -> Info:
    return {"redfish_address": address, **more}


def ipmi(address: str, **more: Any) -> Info:
    return {"ipmi_address": address, **more}


def usual(machine: Machine) -> Info:
    """Return an entry as most people write it."""
    return redfish(f"https://{v4_of(machine)}") if machine.bmc.redfish else ipmi(v4_of(machine))


def _octal(machine: Machine) -> str:
    return f"192.0.2.0{100 + machine.number:o}"


def _number(machine: Machine) -> str:
    return str(int(ipaddress.IPv4Address(v4_of(machine))))


def _long(machine: Machine) -> str:
    return f"[{ipaddress.IPv6Address(v6_of(machine)).exploded}]"


# The same BMC in two entries: how it is spelled in its own machine's, and how by mistake in that of another one.
SPELLINGS: Final[dict[str, Callable[[Machine], tuple[Info, Info]]]] = {
    "alike": lambda one: (redfish(f"https://{v4_of(one)}"), redfish(f"https://{v4_of(one)}")),
    "default port": lambda one: (redfish(f"https://{v4_of(one)}"), redfish(f"https://{v4_of(one)}:443")),
    "name and address": lambda one: (redfish(f"https://{v4_of(one)}"), redfish(f"https://{name_of(one)}")),
    "redfish and ipmi": lambda one: (redfish(f"https://{v4_of(one)}"), ipmi(v4_of(one), ipmi_port=623)),
    "IPv6 forms": lambda one: (redfish(f"https://[{v6_of(one)}]"), redfish(f"https://{_long(one)}:443/redfish/v1")),
    "ipmi port": lambda one: (ipmi(v4_of(one)), ipmi(v4_of(one), ipmi_port="623")),
    "case and dot": lambda one: (redfish(name_of(one)), redfish(f"HTTPS://{name_of(one).upper()}./")),
    "other scheme": lambda one: (redfish(f"https://{v4_of(one)}"), redfish(f"http://{v4_of(one)}")),
    "mapped": lambda one: (redfish(f"https://{v4_of(one)}"), redfish(f"https://[::ffff:{v4_of(one)}]")),
    "octal": lambda one: (redfish(f"https://{v4_of(one)}"), redfish(f"https://{_octal(one)}")),
    "one number": lambda one: (redfish(f"https://{v4_of(one)}"), redfish(f"https://{_number(one)}")),
    "both families": lambda one: (redfish(f"https://{v4_of(one)}"), redfish(f"https://[{v6_of(one)}]")),
}
