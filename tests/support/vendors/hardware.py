"""What is in each simulated machine, and how its BMC lists processors, NICs and drives: what a driver should find."""

from __future__ import annotations

from typing import Any, Final

from tests.support.vendors.personality import Personality

Documents = dict[str, dict[str, Any]]
ROOT: Final = "/redfish/v1"
UUID: Final = "4c4c4544-0042-3510-8054-b4c04f4a3132"
SERIAL: Final = "7ZK2MN3"
HOSTNAME: Final = "db-17.rack4.example.org"
MACS: Final = ("b0:26:28:c7:1a:01", "b0:26:28:c7:1a:02", "b0:26:28:c7:1a:03")
BMC_MAC: Final = "b0:26:28:c7:1a:f0"
BMC_ADDRESS: Final = "10.118.7.31"
# Serial numbers and sizes.
DISKS: Final = (("S45NNA0M100001", 960_197_124_096), ("S45NNA0M100002", 960_197_124_096), ("WFK0X7R2", 8 * 10**12))
THREADS: Final = 64
GIB: Final = 256


def add_hardware(found: Documents, system: str, manager: str, of: Personality) -> None:
    """Add the documents of all parts of the machine and its BMC."""
    _processors(found, system, of)
    _nics(found, system, manager, of)
    _storage(found, system, of)


def link(path: str) -> dict[str, str]:
    """Return a link to a resource."""
    return {"@odata.id": path}


def resource(kind: str, path: str, name: str, **more: Any) -> dict[str, Any]:
    """Return a resource with what all have, and ``more``."""
    return {"@odata.id": path, "@odata.type": f"#{kind}", "Id": name, "Name": name} | more


def collect(found: Documents, path: str, names: list[str], of: Personality) -> None:
    """Add a collection of members below ``path``, in pages if the service has them."""
    size = of.parts.page or len(names) or 1
    pages = [names[begin : begin + size] for begin in range(0, len(names), size)] or [[]]
    for number, page in enumerate(pages):
        at = path if not number else f"{path}?$skip={number * size}"
        document = resource("Collection.Collection", path, path.rpartition("/")[2])
        document |= {"Members": [link(f"{path}/{name}") for name in page], "Members@odata.count": len(names)}
        if number + 1 < len(pages):
            document["Members@odata.nextLink"] = f"{path}?$skip={(number + 1) * size}"
        found[at] = document


def _processors(found: Documents, system: str, of: Personality) -> None:
    names = ["CPU.Socket.1", "CPU.Socket.2"]
    for name in names:
        path = f"{system}/Processors/{name}"
        found[path] = resource(
            "Processor.v1_12_0.Processor",
            path,
            name,
            ProcessorType="CPU",
            InstructionSet="x86-64",
            Model="Xeon Gold 6338",
            MaxSpeedMHz=3200,
            TotalCores=THREADS // 4,
            TotalThreads=THREADS // 2,
            Status={"State": "Enabled", "Health": "OK"},
        )
    if of.parts.null_links:
        found[f"{system}/Processors/CPU.Socket.1"]["Links"] = None
    if of.parts.absent:
        names.append("CPU.Socket.3")
        path = f"{system}/Processors/CPU.Socket.3"
        found[path] = resource(
            "Processor.v1_12_0.Processor", path, names[-1], ProcessorType="CPU", Status={"State": "Absent"}
        )
    collect(found, f"{system}/Processors", names, of)


def macs_of(of: Personality) -> tuple[str, ...]:
    """Return the MACs that the BMC knows."""
    return MACS if of.parts.nics else ()


def _nics(found: Documents, system: str, manager: str, of: Personality) -> None:
    names = []
    for number, mac in enumerate(macs_of(of), 1):
        names.append(f"NIC.Slot.{number}")
        path = f"{system}/EthernetInterfaces/{names[-1]}"
        found[path] = _nic(path, names[-1], mac.upper(), SpeedMbps=25000, LinkStatus="LinkUp")
    if of.parts.null_mac:
        names.insert(1, "NIC.Slot.9")
        path = f"{system}/EthernetInterfaces/{names[1]}"
        found[path] = _nic(path, names[1], None, Status={"State": "Absent"})
    if of.parts.null_links and of.parts.nics:
        found[f"{system}/EthernetInterfaces/NIC.Slot.2"]["Links"] = None
    if of.parts.nics:
        collect(found, f"{system}/EthernetInterfaces", names, of)
    path = f"{manager}/EthernetInterfaces/1"
    found[path] = _nic(path, "1", BMC_MAC, IPv4Addresses=[{"Address": BMC_ADDRESS}], HostName="bmc-" + HOSTNAME)
    collect(found, f"{manager}/EthernetInterfaces", ["1"], of)


def _nic(path: str, name: str, mac: str | None, **more: Any) -> dict[str, Any]:
    kind = "EthernetInterface.v1_8_0.EthernetInterface"
    status = {"State": "Enabled", "Health": "OK"}
    return resource(kind, path, name, MACAddress=mac, PermanentMACAddress=mac, Status=status) | more


def _storage(found: Documents, system: str, of: Personality) -> None:
    if of.parts.simple_storage:
        devices: list[dict[str, Any]] = [
            {"Name": f"Disk {bay}", "Model": "MZ7LH960", "CapacityBytes": size, "Status": {"State": "Enabled"}}
            for bay, (_, size) in enumerate(DISKS)
        ]
        devices += [{"Name": "Disk 9", "Status": {"State": "Absent"}}] if of.parts.absent else []
        path = f"{system}/SimpleStorage/1"
        found[path] = resource("SimpleStorage.v1_3_0.SimpleStorage", path, "1", Devices=devices)
        collect(found, f"{system}/SimpleStorage", ["1"], of)
        return
    first, second = f"{system}/Storage/RAID.Slot.1", f"{system}/Storage/AHCI.Embedded.1"
    paths = []
    for bay, (serial, size) in enumerate(DISKS):
        path = f"{first if bay < 2 else second}/Drives/Disk.Bay.{bay}"
        paths.append(path)
        found[path] = resource(
            "Drive.v1_12_0.Drive",
            path,
            f"Disk.Bay.{bay}",
            Model="MZ7LH960",
            Manufacturer="Samsung",
            MediaType="SSD" if bay < 2 else "HDD",
            Protocol="SATA",
            SerialNumber=serial + of.parts.padding,
            CapacityBytes=size,
            Status={"State": "Enabled", "Health": "OK"},
        )
    empty = f"{second}/Drives/Disk.Bay.9"
    if of.parts.absent:
        found[empty] = resource(
            "Drive.v1_12_0.Drive", empty, "Disk.Bay.9", CapacityBytes=None, Status={"State": "Absent"}
        )
    shared = [paths[0]] if of.parts.shared_drives else []
    for storage, drives in ((first, paths[:2]), (second, [*shared, *paths[2:], *([empty] if of.parts.absent else [])])):
        found[storage] = resource(
            "Storage.v1_10_0.Storage",
            storage,
            storage.rpartition("/")[2],
            Drives=[link(one) for one in drives],
            StorageControllers=[{"MemberId": "0", "FirmwareVersion": "52.16.1-4405"}],
            Status={"State": "Enabled", "Health": "OK"},
        )
    collect(found, f"{system}/Storage", ["RAID.Slot.1", "AHCI.Embedded.1"], of)
