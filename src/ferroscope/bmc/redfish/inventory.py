"""The hardware inventory of a Redfish service, in the format of ironic-python-agent's.

Unknown values are left out, never guessed. Parts are read one by one: an empty bay is left out, a part with two links
counts once, and ``unread`` names each part that cannot be read, with the reason.

A system may list NICs as Ethernet interfaces, or as functions and ports of its adapters, or some here and some there:
Lenovo's XCC and others have MACs in the adapters only, below the chassis (dsx-ai-factory/infra-controller#4436, #4952,
lenovo/python-redfish-lenovo#368, bmc-toolbox/bmclib#443). Source: DMTF's NetworkAdapter, NetworkDeviceFunction, Port,
and NetworkPort, which Port has replaced (DSP8010). The XCC may have the MAC of a port in Lenovo's own field only
(dsx-ai-factory/libredfish#117).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from ferroscope.bmc.redfish.resources import Reader, is_absent, is_gone, path_key, path_of
from ferroscope.bmc.redfish.system import System
from ferroscope.contracts.bmc import OutOfBandNic
from ferroscope.core.model import Document
from ferroscope_client.core import mac_addresses
from ferroscope_client.core.host_spelling import parse_address
from ferroscope_client.core.values import one_line
from ferroscope_client.hardware.readings import mapping, mappings, number, text

_BYTES_PER_GIB: Final = 1024**3
_BYTES_PER_MIB: Final = 1024**2
_ARCHITECTURES: Final = {
    "x86": "i686",
    "x86-64": "x86_64",
    "arm-a32": "armv7l",
    "arm-a64": "aarch64",
    "power isa": "ppc64le",
    "powerisa": "ppc64le",
    "risc-v": "riscv64",
}
_MODES: Final = {"uefi": "uefi", "legacy": "bios"}
# More than any machine has; further entries are ignored.
_MAX_PARTS: Final = 1024
_MAX_TEXT_CHARACTERS: Final = 255
_MAX_CHASSIS: Final = 4
_MAX_ADAPTERS: Final = 64
_MAX_PORTS: Final = 64
# The protocol of a function, of a port, and of a port by the older schema.
_PROTOCOLS: Final = ("NetDevFuncType", "LinkNetworkTechnology", "ActiveLinkTechnology")
_MACS: Final = ("MACAddress", "PermanentMACAddress")


def read_nics(system: System) -> list[OutOfBandNic]:
    """Return the NICs with a MAC, in the service's order, each MAC once."""
    return [_nic(mac, nic) for mac, nic in _ethernet(system.reader(), system.document)]


def read_inventory(system: System) -> Document:
    """Return everything that the service reports about ``system``."""
    reader = system.reader()
    resource = reader.get(system.path) or system.document
    parts: Document = {
        "interfaces": [_interface(mac, nic) for mac, nic in _ethernet(reader, resource)],
        "cpu": _cpu(reader, resource),
        "memory": _memory(reader, resource),
        "disks": _disks(reader, resource),
        "system_vendor": _vendor(resource),
        "boot": _boot(resource),
        "hostname": _text(resource.get("HostName")),
        "bmc_mac": _bmc_mac(reader, resource),
    } | _bmc_address(system)
    missing = [] if reader.complete else ["the BMC has more parts than could be read in time"]
    parts["unread"] = [*reader.failures, *missing]
    return {name: part for name, part in parts.items() if part not in (None, "", {}) and (part or name != "unread")}


def _ethernet(reader: Reader, resource: Document) -> list[tuple[str, Document]]:
    """Return MAC and resource of each NIC that is there: a BMC may list some here, and some there."""
    pairs: list[tuple[str, Document]] = []
    seen: set[str] = set()  # MACs and names
    nics = list(reader.members(resource.get("EthernetInterfaces"), _MAX_PARTS))
    for adapter in _adapters(reader, resource):
        for port in (*_functions(reader, adapter), *_ports(reader, adapter)):
            nics.append({**port, "Id": f"{adapter.get('Id')}-{port.get('Id')}"})  # each adapter has a port 1
    for nic in nics:
        macs, name = _macs(nic), str(nic.get("Id"))
        if macs and seen.isdisjoint(macs) and not is_absent(nic):
            # An adapter may have a function 1, and another port 1.
            pairs.append((macs[0], nic | {"Id": macs[0]} if name in seen else nic))
            seen.update(macs, [name])
    return pairs


def _adapters(reader: Reader, system: Document) -> list[Document]:
    """Return the adapters that the system itself names, else those of its chassis; each once, without empty slots."""
    links: list[Any] = []
    for interface in reader.members(system.get("NetworkInterfaces"), _MAX_ADAPTERS):
        links += filter(None, [mapping(interface.get("Links")).get("NetworkAdapter")])
    if not links:
        for chassis in _chassis(reader, system):
            links += reader.links(chassis.get("NetworkAdapters"))
    unique = {path_key(path_of(link)) or id(link): link for link in links}
    adapters = list(reader.resources(list(unique.values()), _MAX_ADAPTERS))
    return [adapter for adapter in adapters if not is_absent(adapter)]


def _chassis(reader: Reader, system: Document) -> Iterator[Document]:
    """Return the chassis that the system is in, which may hold other systems, too."""
    return reader.resources(mapping(system.get("Links")).get("Chassis"), _MAX_CHASSIS)


def _functions(reader: Reader, adapter: Document) -> Iterator[Document]:
    for function in reader.members(adapter.get("NetworkDeviceFunctions"), _MAX_PORTS):
        ethernet = mapping(function.get("Ethernet"))
        yield {**function, **{name: ethernet.get(name) for name in _MACS}}


def _ports(reader: Reader, adapter: Document) -> Iterator[Document]:
    for link in ("Ports", "NetworkPorts"):
        for port in reader.members(adapter.get(link), _MAX_PORTS):
            oem = (mapping(own).get("PhysicalPortMacAddress") for own in mapping(port.get("Oem")).values())
            macs = (
                mapping(port.get("Ethernet")).get("AssociatedMACAddresses")
                or port.get("AssociatedNetworkAddresses")
                or list(filter(None, oem))
            )
            # The first one is the port's own, others are those of its partitions.
            first = next(iter(macs if isinstance(macs, list) else [macs]), None)
            yield {**port, "MACAddress": first, "SpeedMbps": _speed(port)}


def _speed(port: Document) -> Any:
    gbps = port.get("CurrentSpeedGbps")
    return gbps * 1000 if isinstance(gbps, int | float) else port.get("CurrentLinkSpeedMbps")


def _nic(mac: str, nic: Document) -> OutOfBandNic:
    return OutOfBandNic(mac=mac, name=_text(nic.get("Id")) or mac, enabled=not is_gone(nic))


def _interface(mac: str, nic: Document) -> Document:
    fields = {"name": _nic(mac, nic).name, "mac_address": mac, "ipv4_address": None, "ipv6_address": None, "lldp": None}
    return fields | drop_unknown(speed_mbps=_number(nic.get("SpeedMbps")))


def _bmc_mac(reader: Reader, resource: Document) -> str | None:
    """Return the MAC of the first NIC of the BMC itself."""
    for manager in reader.resources(mapping(resource.get("Links")).get("ManagedBy"), _MAX_PARTS):
        for nic in reader.members(manager.get("EthernetInterfaces"), _MAX_PARTS):
            if (macs := _macs(nic)) and not is_gone(nic):
                return macs[0]
    return None


def _macs(nic: Document) -> list[str]:
    """Return the normalized MACs of a NIC, without zeros, which ports without a link may show."""
    protocol = next((str(value) for name in _PROTOCOLS if (value := nic.get(name))), "")
    return [mac for name in (*_MACS, "MacAddress") if (mac := mac_addresses.bmc_mac(_text(nic.get(name)), protocol))]


def _cpu(reader: Reader, resource: Document) -> Document:
    members = reader.members(resource.get("Processors"), _MAX_PARTS)
    cpus = [member for member in members if str(member.get("ProcessorType") or "CPU").upper() == "CPU"]
    processors = [cpu for cpu in cpus if not is_absent(cpu) and not _is_empty_socket(cpu)]
    if not processors:
        return _cpu_summary(mapping(resource.get("ProcessorSummary")))
    first = processors[0]
    speed = _number(first.get("MaxSpeedMHz"))
    return drop_unknown(
        count=sum(_number(cpu.get("TotalThreads")) or _number(cpu.get("TotalCores")) or 1 for cpu in processors),
        architecture=_ARCHITECTURES.get(str(first.get("InstructionSet")).lower()),
        model_name=_text(first.get("Model")),
        frequency=str(speed) if speed else None,
        socket_count=len(processors),
    )


def _cpu_summary(summary: Document) -> Document:
    """Return what the system's summary says; its number of processors also counts those that are not CPUs."""
    cpu = drop_unknown(
        count=_number(summary.get("LogicalProcessorCount")) or _number(summary.get("CoreCount")),
        model_name=_text(summary.get("Model")),
        socket_count=_number(summary.get("Count")),
    )
    return cpu if "count" in cpu or "socket_count" in cpu else {}


def _is_empty_socket(processor: Document) -> bool:
    """Whether no property describes a processor; some BMCs list sockets without a state."""
    return not _has(processor, ("Model", "Manufacturer"), ("TotalCores", "TotalThreads", "MaxSpeedMHz"))


def _has(part: Document, texts: Iterable[str], numbers: Iterable[str]) -> bool:
    """Whether a part has one of these; a placeholder such as N/A does not count."""
    return any(text(part.get(name)) for name in texts) or any(_number(part.get(name)) for name in numbers)


def _memory(reader: Reader, resource: Document) -> Document:
    """Return the size that the system's summary says, else the sum of its modules."""
    size = _size(mapping(resource.get("MemorySummary")).get("TotalSystemMemoryGiB"), _BYTES_PER_GIB)
    if not size:
        modules = reader.members(resource.get("Memory"), _MAX_PARTS)
        size = sum(_size(module.get("CapacityMiB"), _BYTES_PER_MIB) for module in modules if not is_absent(module))
    return {"total": size, "physical_mb": size // _BYTES_PER_MIB} if size else {}


def _size(value: Any, unit: int) -> int:
    """Return the bytes of a size; 93.5 GiB are common, where the BIOS keeps some memory."""
    amount = number(value)
    return int(amount * unit) if amount is not None and 0 < amount < 2**40 else 0


def _disks(reader: Reader, resource: Document) -> list[Document]:
    storages = reader.members(resource.get("Storage"), _MAX_PARTS)
    return [_disk(drive) for drive in drives(reader, resource, storages)] or _simple_disks(reader, resource)


def drives(reader: Reader, system: Document, storages: Iterable[Document], limit: int = _MAX_PARTS) -> list[Document]:
    """Return the drives that are there: those of controllers, and those that only a chassis of this system lists."""
    attached = _unique_drives(reader, storages)
    serials = {drive.get("SerialNumber") for drive in attached} | {None}
    boxed = _unique_drives(reader, filter(_has_one_system, _chassis(reader, system)))
    return [*attached, *(drive for drive in boxed if not attached or drive.get("SerialNumber") not in serials)][:limit]


def _has_one_system(chassis: Document) -> bool:
    systems = mapping(chassis.get("Links")).get("ComputerSystems")
    return not isinstance(systems, list) or len(systems) < 2


def _unique_drives(reader: Reader, parents: Iterable[Document]) -> list[Document]:
    """Return each drive once: several controllers or shelves may lead to one."""
    unique: dict[Any, Document] = {}
    for parent in parents:
        for drive in reader.resources(reader.array(parent, "Drives"), _MAX_PARTS):
            if not is_absent(drive) and not _is_empty_bay(drive):
                unique.setdefault(_identity(drive), drive)
    return list(unique.values())


def _is_empty_bay(drive: Document) -> bool:
    """Whether no property describes a drive; some BMCs list bays without a state."""
    is_described = _has(drive, ("SerialNumber", "Model", "Manufacturer"), ("CapacityBytes",))
    return not is_described and _durable_name(drive) is None


def _identity(drive: Document) -> Any:
    """Return what identifies a drive below several paths: its serial number, with its WWN or place; else its path.

    The serial number alone is not enough: emulators, and some controllers, give the same one to all.
    """
    serial = text(drive.get("SerialNumber"))
    place = _durable_name(drive) or _text(drive.get("Id")) or _text(drive.get("Name"))
    return (_text(drive.get("Model")), serial, place) if serial else path_key(path_of(drive)) or id(drive)


def _durable_name(drive: Document) -> str | None:
    """Return the first WWN, EUI or the like of a drive."""
    names = (_text(identifier.get("DurableName")) for identifier in mappings(drive.get("Identifiers")))
    return next(filter(None, names), None)


def _disk(drive: Document) -> Document:
    return drop_unknown(
        name=_text(drive.get("Name")) or _text(drive.get("Id")),
        model=_text(drive.get("Model")),
        vendor=_text(drive.get("Manufacturer")),
        serial=_text(drive.get("SerialNumber")),
        size=_number(drive.get("CapacityBytes")),
        rotational={"HDD": True, "SSD": False}.get(str(drive.get("MediaType")).upper()),
        wwn=_durable_name(drive),
    )


def _simple_disks(reader: Reader, resource: Document) -> list[Document]:
    storages = reader.members(resource.get("SimpleStorage"), _MAX_PARTS)
    devices = [device for storage in storages for device in mappings(storage.get("Devices")) if not is_absent(device)]
    return [disk for device in devices if "size" in (disk := _disk(device))]


def _vendor(resource: Document) -> Document:
    names = {"manufacturer": "Manufacturer", "product_name": "Model", "serial_number": "SerialNumber"}
    vendor = drop_unknown(**{name: _text(resource.get(source)) for name, source in names.items()})
    if version := _text(resource.get("BiosVersion")):
        vendor["firmware"] = {"vendor": "", "version": version, "build_date": ""}
    return vendor


def _boot(resource: Document) -> Document:
    mode = _MODES.get(str(mapping(resource.get("Boot")).get("BootSourceOverrideMode")).lower())
    return {"current_boot_mode": mode} if mode else {}


def _bmc_address(system: System) -> Document:
    """Return the address that we use for the BMC, if it is an IP address."""
    address = parse_address(urlsplit(system._conn._url).hostname or "")
    return {} if address is None else {"bmc_v6address" if address.version == 6 else "bmc_address": str(address)}


def _text(value: Any) -> str | None:
    """Return a text without padding, None if there is none."""
    stripped = value.strip(" \t\r\n\0") if isinstance(value, str) else ""
    return one_line(stripped, _MAX_TEXT_CHARACTERS) if stripped else None


def _number(value: Any) -> int | None:
    """Return a positive integer, which may be a text, end with .0, or have an exponent."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    elif not isinstance(value, int):
        parsed = number(value)
        value = int(parsed) if parsed is not None and parsed.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else None


def drop_unknown(**fields: Any) -> Document:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "")}
