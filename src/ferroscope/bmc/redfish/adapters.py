"""The ports of network adapters, which a system may list beside its Ethernet interfaces, or instead of them.

Lenovo's XCC and others have the MACs of NICs in the adapters only, or of some NICs, below the chassis
(dsx-ai-factory/infra-controller#4436, #4952, lenovo/python-redfish-lenovo#368, bmc-toolbox/bmclib#443). Source: DMTF's
NetworkAdapter, NetworkDeviceFunction, Port, and NetworkPort, which Port has replaced (DSP8010). The XCC may have the
MAC of a port in a field of Lenovo's own only (dsx-ai-factory/libredfish#117).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from ferroscope.bmc.redfish.reader import Reader, is_absent, path_key, path_of
from ferroscope.core.model import Document
from ferroscope.hardware.parts import mapping

_MAX_CHASSIS: Final = 4
_MAX_ADAPTERS: Final = 64
_MAX_PORTS: Final = 64
# Where a function, a port, or one of the older schema says what it speaks.
_PROTOCOLS: Final = ("NetDevFuncType", "LinkNetworkTechnology", "ActiveLinkTechnology")
_MACS: Final = ("MACAddress", "PermanentMACAddress")
_OWN_MAC: Final = "PhysicalPortMacAddress"


def ports(reader: Reader, system: Document) -> Iterator[Document]:
    """Yield the functions of the system's adapters, and their ports, like Ethernet interfaces.

    ``Id`` begins with the adapter's: each adapter has a port 1.
    """
    for adapter in _adapters(reader, system):
        for port in itertools.chain(_functions(reader, adapter), _ports(reader, adapter)):
            yield {**port, "Id": f"{adapter.get('Id')}-{port.get('Id')}"}


def chassis(reader: Reader, system: Document) -> Iterator[Document]:
    """Yield what the system is in, which may hold other systems, too."""
    yield from reader.resources(mapping(system.get("Links")).get("Chassis"), _MAX_CHASSIS)


def protocol(port: Document) -> str:
    """Return what a function or a port speaks, as far as the BMC says it."""
    return next((str(value) for name in _PROTOCOLS if (value := port.get(name))), "")


def _adapters(reader: Reader, system: Document) -> Iterator[Document]:
    """Yield the adapters that the system itself names, else those of its chassis; each once, without empty slots."""
    own_links = [
        mapping(interface.get("Links")).get("NetworkAdapter")
        for interface in reader.members(system.get("NetworkInterfaces"), _MAX_ADAPTERS)
    ]
    links = [link for link in own_links if link] or [
        link for box in chassis(reader, system) for link in reader.links(box.get("NetworkAdapters"))
    ]
    unique = {path_key(path_of(link)) or id(link): link for link in links}
    yield from (adapter for adapter in reader.resources(list(unique.values()), _MAX_ADAPTERS) if not is_absent(adapter))


def _functions(reader: Reader, adapter: Document) -> Iterator[Document]:
    for function in reader.members(adapter.get("NetworkDeviceFunctions"), _MAX_PORTS):
        ethernet = mapping(function.get("Ethernet"))
        yield {**function, **{name: ethernet.get(name) for name in _MACS}}


def _ports(reader: Reader, adapter: Document) -> Iterator[Document]:
    for link in ("Ports", "NetworkPorts"):
        for port in reader.members(adapter.get(link), _MAX_PORTS):
            macs = (
                mapping(port.get("Ethernet")).get("AssociatedMACAddresses")
                or port.get("AssociatedNetworkAddresses")
                or [mac for own in mapping(port.get("Oem")).values() if (mac := mapping(own).get(_OWN_MAC))]
            )
            # The first one is the port's own, others are those of its partitions.
            first = next(iter(macs if isinstance(macs, list) else [macs]), None)
            yield {**port, "MACAddress": first, "SpeedMbps": _speed(port)}


def _speed(port: Document) -> Any:
    gbps = port.get("CurrentSpeedGbps")
    return gbps * 1000 if isinstance(gbps, int | float) else port.get("CurrentLinkSpeedMbps")
