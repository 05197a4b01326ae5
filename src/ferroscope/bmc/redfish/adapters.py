"""The ports of network adapters, where a system lists no Ethernet interface with a MAC.

Lenovo's XCC and others have the MACs of NICs in the adapters only, below the chassis
(dsx-ai-factory/infra-controller#4436, lenovo/python-redfish-lenovo#368). Source: DMTF's NetworkAdapter,
NetworkDeviceFunction, Port, and NetworkPort, which Port has replaced (DSP8010).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ferroscope.bmc.redfish.reader import Reader, is_absent, path_of, same
from ferroscope.core.mac_addresses import normalized_mac
from ferroscope.core.model import Document
from ferroscope.hardware.parts import mapping

_MAX_CHASSIS: Final = 4
_MAX_ADAPTERS: Final = 64
_MAX_PORTS: Final = 64
_ETHERNET: Final = frozenset({"", "ethernet"})
_MACS: Final = ("MACAddress", "PermanentMACAddress")


def ports(reader: Reader, system: Document) -> Iterator[Document]:
    """Yield the Ethernet functions of the system's adapters, or their ports, like Ethernet interfaces.

    ``Id`` begins with the adapter's: each adapter has a port 1.
    """
    for adapter in _adapters(reader, system):
        found = list(_functions(reader, adapter)) or list(_ports(reader, adapter))
        for one in found:
            yield {**one, "Id": f"{adapter.get('Id')}-{one.get('Id')}"}


def _adapters(reader: Reader, system: Document) -> Iterator[Document]:
    """Yield the adapters that the system itself names, else those of its chassis; each once, without empty slots."""
    named = [
        mapping(one.get("Links")).get("NetworkAdapter")
        for one in reader.members(system.get("NetworkInterfaces"), _MAX_ADAPTERS)
    ]
    chassis = reader.each(mapping(system.get("Links")).get("Chassis"), _MAX_CHASSIS)
    links = [link for link in named if link] or [
        link for one in chassis for link in reader.links(one.get("NetworkAdapters"))
    ]
    unique = {same(path_of(link)) or id(link): link for link in links}
    yield from (one for one in reader.each(list(unique.values()), _MAX_ADAPTERS) if not is_absent(one))


def _functions(reader: Reader, adapter: Document) -> Iterator[Document]:
    for one in reader.members(adapter.get("NetworkDeviceFunctions"), _MAX_PORTS):
        ethernet = mapping(one.get("Ethernet"))
        if str(one.get("NetDevFuncType") or "").lower() in _ETHERNET and any(ethernet.get(name) for name in _MACS):
            yield {**one, **{name: ethernet.get(name) for name in _MACS}}


def _ports(reader: Reader, adapter: Document) -> Iterator[Document]:
    for link in ("Ports", "NetworkPorts"):
        for one in reader.members(adapter.get(link), _MAX_PORTS):
            listed = mapping(one.get("Ethernet")).get("AssociatedMACAddresses") or one.get("AssociatedNetworkAddresses")
            # The first one is the port's own, others are those of its partitions. What is longer is a WWN.
            first = next(iter(listed if isinstance(listed, list) else [listed]), None)
            if isinstance(first, str) and normalized_mac(first) is not None:
                yield {**one, "MACAddress": first, "SpeedMbps": _speed(one)}


def _speed(port: Document) -> Any:
    gbps = port.get("CurrentSpeedGbps")
    return gbps * 1000 if isinstance(gbps, int | float) else port.get("CurrentLinkSpeedMbps")
