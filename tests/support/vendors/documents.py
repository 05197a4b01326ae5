"""What a BMC says of its machine: the Redfish documents of a personality, by path."""

from __future__ import annotations

from typing import Any

from tests.support.vendors.hardware import (
    GIB,
    HOSTNAME,
    ROOT,
    SERIAL,
    UUID,
    Documents,
    add_hardware,
    collect,
    link,
    resource,
)
from tests.support.vendors.machine import Drive, Machine
from tests.support.vendors.personality import Personality


def documents(machine: Machine, power: str | None) -> Documents:
    """Return all documents; ``power`` is what the system says of its power state."""
    of = machine.personality
    system, manager, chassis = (
        f"{ROOT}/Systems/{of.system}",
        f"{ROOT}/Managers/{of.manager}",
        f"{ROOT}/Chassis/{of.chassis}",
    )
    found: Documents = {
        ROOT: resource(
            "ServiceRoot.v1_5_0.ServiceRoot",
            ROOT,
            "RootService",
            RedfishVersion=of.redfish,
            UUID=UUID,
            Vendor=of.manufacturer,
            Systems=link(f"{ROOT}/Systems"),
            Managers=link(f"{ROOT}/Managers"),
            Chassis=link(f"{ROOT}/Chassis"),
            SessionService=link(f"{ROOT}/SessionService"),
            Links={"Sessions": link(f"{ROOT}/SessionService/Sessions")},
        ),
        f"{ROOT}/SessionService": resource(
            "SessionService.v1_1_8.SessionService",
            f"{ROOT}/SessionService",
            "SessionService",
            ServiceEnabled=True,
            SessionTimeout=1800,
            Sessions=link(f"{ROOT}/SessionService/Sessions"),
        ),
    }
    collect(found, f"{ROOT}/Systems", [*of.other_systems, of.system], of)
    collect(found, f"{ROOT}/Managers", [of.manager], of)
    collect(found, f"{ROOT}/Chassis", [of.chassis], of)
    for name in of.other_systems:
        path = f"{ROOT}/Systems/{name}"
        found[path] = resource("ComputerSystem.v1_17_0.ComputerSystem", path, name, PowerState="On", Links={})
    found[system] = _system(machine, power, system, manager, chassis)
    if of.boot.settings:
        path = f"{system}/{of.boot.settings}"
        found[path] = resource(
            "ComputerSystem.v1_17_0.ComputerSystem", path, of.boot.settings, Boot=_boot(machine, machine.pending)
        )
    if of.power.by_action_info:
        parameter = {"Name": "ResetType", "Required": True, "AllowableValues": list(of.power.resets)}
        path = f"{system}/ResetActionInfo"
        found[path] = resource("ActionInfo.v1_1_2.ActionInfo", path, "ResetActionInfo", Parameters=[parameter])
    found[manager] = _manager(of, system, manager, chassis)
    found[chassis] = resource("Chassis.v1_14_0.Chassis", chassis, of.chassis, ChassisType="RackMount")
    add_hardware(found, system, manager, of)
    _media(found, machine, system, manager)
    for what in of.parts.broken:
        name, _, whose = what.partition(" of the ")
        del found[f"{manager if whose == 'manager' else system}/{name}"]
    return found


def _system(machine: Machine, power: str | None, system: str, manager: str, chassis: str) -> dict[str, Any]:
    of = machine.personality
    reset: dict[str, Any] = {"target": f"{system}/Actions/ComputerSystem.Reset"}
    if of.power.by_action_info:
        reset["@Redfish.ActionInfo"] = f"{system}/ResetActionInfo"
    else:
        reset["ResetType@Redfish.AllowableValues"] = list(of.power.resets)
    document = resource(
        "ComputerSystem.v1_17_0.ComputerSystem",
        system,
        of.system,
        SystemType="Physical",
        Manufacturer=of.manufacturer,
        Model=of.model,
        SerialNumber=SERIAL + of.parts.padding,
        UUID=UUID,
        HostName=HOSTNAME,
        PowerState=power,
        Status={"State": "Enabled", "Health": "OK"},
        MemorySummary={"TotalSystemMemoryGiB": GIB, "Status": {"Health": "OK"}},
        ProcessorSummary={"Count": 2, "Model": "Xeon", "Status": {"Health": "OK"}},
        Boot=_boot(machine, machine.override),
        Actions={"#ComputerSystem.Reset": reset},
        Processors=link(f"{system}/Processors"),
        Links={"Chassis": [link(chassis)], "ManagedBy": [link(manager)]},
    )
    document["SimpleStorage" if of.parts.simple_storage else "Storage"] = link(
        f"{system}/{'SimpleStorage' if of.parts.simple_storage else 'Storage'}"
    )
    if of.parts.nics:
        document["EthernetInterfaces"] = link(f"{system}/EthernetInterfaces")
    if of.parts.bios:
        document["BiosVersion"] = "2.19.1"
    if of.power.absent and power is None:
        del document["PowerState"]
    if of.boot.settings:
        document["@Redfish.Settings"] = {
            "@odata.type": "#Settings.v1_3_0.Settings",
            "SettingsObject": link(f"{system}/{of.boot.settings}"),
            "SupportedApplyTimes": ["OnReset"],
        }
    if "Systems" in (of.media.below, of.media.empty_below):
        document["VirtualMedia"] = link(f"{system}/VirtualMedia")
    if of.power.dated:
        document["LastResetTime"] = _time(machine.switched)
        if machine.boots:
            document["BootProgress"] = {"LastState": "OSRunning", "LastStateTime": _time(len(machine.boots))}
    return document


def _time(count: int) -> str:
    return f"2026-11-01T10:{count:02}:00+00:00"


def _boot(machine: Machine, override: dict[str, Any]) -> dict[str, Any]:
    boot = machine.personality.boot
    shown = dict(override)
    if boot.listed:
        shown["BootSourceOverrideTarget@Redfish.AllowableValues"] = list(boot.targets)
        shown["BootSourceOverrideEnabled@Redfish.AllowableValues"] = list(boot.enabled)
    return shown


def _manager(of: Personality, system: str, manager: str, chassis: str) -> dict[str, Any]:
    document = resource(
        "Manager.v1_11_0.Manager",
        manager,
        of.manager,
        ManagerType="BMC",
        FirmwareVersion="6.10.30.00",
        PowerState="On" if of.parts.manager_power else None,
        EthernetInterfaces=link(f"{manager}/EthernetInterfaces"),
        Links={"ManagerForServers": [link(system)], "ManagerForChassis": [link(chassis)]},
    )
    if "Managers" in (of.media.below, of.media.empty_below):
        document["VirtualMedia"] = link(f"{manager}/VirtualMedia")
    return document


def _media(found: Documents, machine: Machine, system: str, manager: str) -> None:
    of = machine.personality
    places = {"Systems": system, "Managers": manager}
    below = f"{places[of.media.below]}/VirtualMedia"
    for drive in machine.drives.values():
        path = f"{below}/{drive.slot.id}"
        found[path] = _drive(drive, path, of.media.connected)
    collect(found, below, list(machine.drives), of)
    if of.media.empty_below:
        collect(found, f"{places[of.media.empty_below]}/VirtualMedia", [], of)


def _drive(drive: Drive, path: str, connected: str) -> dict[str, Any]:
    document = resource(
        "VirtualMedia.v1_5_0.VirtualMedia",
        path,
        drive.slot.id,
        MediaTypes=list(drive.slot.types),
        Image=drive.shown or None,
        ImageName=drive.shown.rpartition("/")[2] or None,
        Inserted=bool(drive.image),
        ConnectedVia=connected if drive.image else "NotConnected",
        WriteProtected=True,
    )
    if drive.slot.insert == "action":
        document["Actions"] = {
            f"#VirtualMedia.{verb}Media": {"target": f"{path}/Actions/VirtualMedia.{verb}Media"}
            for verb in ("Insert", "Eject")
        }
    return document
