"""``validate-interfaces``: determines which interfaces are NICs that may become ports.

It writes three keys of ``plugin_data``: ``all_interfaces`` and ``valid_interfaces`` (interface name -> the inventory's
record, with ``mac_address`` normalized, ``pxe_enabled``, and ``ipv6_address`` without its scope), and ``macs`` of the
valid ones. Ports are not changed here. Source: the Bare Metal service's hook of this name. Differences: MACs are
normalized, an invalid boot interface counts as unknown, and without ``boot.pxe_interface`` in the inventory the boot
interface is the ramdisk's ``boot_interface``, as in ironic-inspector.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from ferroscope.core.lookup import MAX_INTERFACES
from ferroscope.core.model import Document
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.helpers import listing, part, printable, warn
from ferroscope_client.core import mac_addresses
from ferroscope_client.core.mac_addresses import IgnoredMacs
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import many

_MAX_NAME: Final = 255

Interfaces = dict[str, Document]


class ValidateInterfacesHook(InspectionHook):
    """Rejects an inventory in which ``[inspector] add_ports`` selects no interface."""

    def preprocess(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        boot_mac = _boot_mac(task, inventory, plugin_data)
        interfaces, malformed = _all_interfaces(inventory, boot_mac)
        valid, unsuitable = _valid_interfaces(interfaces, task.settings.add_ports, task.settings.ignored, boot_mac)
        if malformed:
            warn(task, "validate-interfaces", f"ignored interfaces: {listing(malformed)}")
        if not valid:
            why = listing((*malformed, *unsuitable)) or "the list is empty"
            raise HookError(
                Reason.INVALID_INVENTORY,
                f"no network interface matches [inspector] add_ports = {task.settings.add_ports}: {why}",
            )
        plugin_data["all_interfaces"] = interfaces
        plugin_data["valid_interfaces"] = valid
        plugin_data["macs"] = list(dict.fromkeys(iface["mac_address"] for iface in valid.values()))


def _boot_mac(task: HookTask, inventory: Document, plugin_data: Document) -> str | None:
    """Return the MAC of the interface that booted, or None if the data does not have it."""
    reported = {
        "boot.pxe_interface": part(inventory, "boot").get("pxe_interface"),
        "boot_interface": plugin_data.get("boot_interface"),
    }
    for name, value in reported.items():
        if not value:
            continue
        if mac := mac_addresses.boot_mac(value):
            return mac
        warn(task, "validate-interfaces", f"{name} is not a MAC address, so it is ignored: {printable(value)}")
    return None


def _all_interfaces(inventory: Document, boot_mac: str | None) -> tuple[Interfaces, list[str]]:
    """Return the interfaces with a name and a MAC, and descriptions of malformed ones."""
    records = inventory.get("interfaces")
    if not isinstance(records, list):
        raise HookError(Reason.INVALID_INVENTORY, "the inventory has no list of interfaces")
    if len(records) > MAX_INTERFACES:
        raise HookError(
            Reason.INVALID_INVENTORY,
            f"the inventory has {many(len(records), 'interface')}; at most {MAX_INTERFACES} are accepted",
        )
    interfaces: Interfaces = {}
    malformed = []
    for index, record in enumerate(records):
        problem = _problem(record)
        if problem is not None:
            malformed.append(f"number {index} ({problem})")
            continue
        raw_mac = record.get("mac_address")
        mac = mac_addresses.written_mac(raw_mac)
        if not raw_mac or mac in mac_addresses.PLACEHOLDER_MACS:
            continue  # a device without a link layer, such as "lo"
        name = record["name"]
        if mac is None:
            malformed.append(f"{printable(name)} (invalid MAC address {printable(raw_mac)})")
            continue
        if name in interfaces:
            malformed.append(f"{printable(name)} (duplicate name; the last one is used)")
        interfaces[name] = {
            **record,
            "mac_address": mac,
            "pxe_enabled": mac == boot_mac,
            "ipv6_address": _without_scope(record.get("ipv6_address")),
        }
    return interfaces, malformed


def _problem(record: object) -> str | None:
    if not isinstance(record, dict):
        return "not an object"
    name = record.get("name")
    if not isinstance(name, str) or not name:
        return "no name"
    return f"its name has more than {_MAX_NAME} characters" if len(name) > _MAX_NAME else None


def _without_scope(address: object) -> str | None:
    return address.partition("%")[0] if isinstance(address, str) else None


def _valid_interfaces(
    interfaces: Interfaces, add_ports: str, ignored: IgnoredMacs, boot_mac: str | None
) -> tuple[Interfaces, list[str]]:
    """Return the interfaces that ``add_ports`` selects, and why the others were not selected."""
    boot_known = boot_mac is not None and boot_mac not in ignored
    valid: Interfaces = {}
    unsuitable = []
    for name, iface in interfaces.items():
        address = _address(iface)
        if name == "lo" or (address is not None and address.is_loopback):
            unsuitable.append(f"{printable(name)} (local)")
        elif mac_addresses.identifying_mac(iface["mac_address"]) is None:
            unsuitable.append(f"{printable(name)} (its MAC address is a multicast address)")
        elif iface["mac_address"] in ignored:
            unsuitable.append(f"{printable(name)} (its MAC address is in [inspector] ignored_macs)")
        elif add_ports == "pxe" and boot_known and not iface["pxe_enabled"]:
            unsuitable.append(f"{printable(name)} (did not boot)")
        elif add_ports == "active" and address is None:
            unsuitable.append(f"{printable(name)} (no IP address)")
        else:
            valid[name] = iface.copy()
    return valid, unsuitable


def _address(iface: Document) -> IPv4Address | IPv6Address | None:
    """Return the interface's IP address, preferably IPv4."""
    for key in ("ipv4_address", "ipv6_address"):
        value = iface.get(key)
        if value and isinstance(value, str):
            try:
                return ip_address(value)
            except ValueError:
                continue
    return None
