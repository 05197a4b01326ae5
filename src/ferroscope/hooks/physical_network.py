"""``physical-network``: sets ``physical_network`` of a port from its NIC's IP address in the ramdisk.

The first network in ``[inspector] physical_network_cidr_map`` that contains the IPv4 address is used, else the first
that contains the IPv6 address. An existing value is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document, Port
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookSetupError, HookTask, InspectionHook

_Mapping = tuple[IPv4Network | IPv6Network, str]


class PhysicalNetworkHook(InspectionHook):
    """Sets `physical_network` of the node's ports by `physical_network_cidr_map`.

    For other mappings, derive from this class and override ``physical_network``.
    """

    dependencies = ("validate-interfaces",)

    def __init__(self) -> None:
        self._networks: tuple[_Mapping, ...] = ()

    def configure(self, settings: InspectorSettings) -> None:
        self._networks = tuple(_parse_mapping(text) for text in settings.physical_network_cidr_map)

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        ports = helpers.current(task)
        for nic in helpers.valid_nics(inventory, plugin_data):
            port = ports.get(nic.mac)
            if port is None:
                continue
            network = self.physical_network(port, nic.name, nic.record, plugin_data)
            if network is None or port.physical_network == network:
                continue
            ports[nic.mac] = changed = msgspec.structs.replace(port, physical_network=network)
            helpers.save(task, changed)

    def physical_network(self, port: Port, interface: str, record: Document, plugin_data: Document) -> str | None:
        """Return the port's network, None to leave it unchanged.

        ``interface`` is the NIC's name in the ramdisk, ``record`` its record in the inventory. ``HookError``.
        """
        for address in _addresses(record):
            for network, name in self._networks:
                if address in network:
                    return name
        return None


def _addresses(record: Document) -> Iterator[IPv4Address | IPv6Address]:
    for key in ("ipv4_address", "ipv6_address"):
        value = record.get(key)
        if isinstance(value, str):
            try:
                yield ip_address(value)
            except ValueError:
                continue


def _parse_mapping(text: str) -> _Mapping:
    cidr, _, name = text.strip().rpartition(":")
    problem = "no physical network after a colon" if not cidr or not name else ""
    try:
        if not problem:
            return ip_network(cidr.strip()), name.strip()
    except ValueError as exc:
        problem = str(exc)
    raise HookSetupError(
        f"invalid item {text!r} in [inspector] physical_network_cidr_map ({problem});"
        " expected, for example, 192.0.2.0/24:net_a,2001:db8::/64:net_b"
    )
