"""The words of a report: the properties of Redfish resources that it may contain, and names that identify nothing.

Source: DMTF's schemas (DSP8010), and what vendors call systems, managers, slots, drives and NICs.
"""

from __future__ import annotations

from typing import Final


def _all(kind: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)


# Property -> the kind of its value; see ``redaction`` for what remains of each.
KINDS: Final[dict[str, str]] = (
    _all("path", "@odata.id Members@odata.nextLink target @Redfish.ActionInfo RelatedProperties")
    | _all("type", "@odata.type")
    | _all("message", "MessageId code")
    | _all("argument", "MessageArgs")
    | _all(
        "token",
        "PowerState State Health HealthRollup SystemType ManagerType ChassisType ProcessorType ProcessorArchitecture "
        "InstructionSet MediaType MediaTypes Protocol ConnectedVia TransferProtocolType TransferMethod LinkStatus "
        "BootSourceOverrideEnabled BootSourceOverrideTarget BootSourceOverrideMode LastState ResetType Severity "
        "MessageSeverity SupportedApplyTimes AllowableValues DataType DurableNameFormat AddressOrigin",
    )
    | _all("text", "RedfishVersion Vendor Product Manufacturer Model FirmwareVersion BiosVersion Version Revision")
    | _all("name", "Id Name MemberId")
    | _all(
        "number",
        "Members@odata.count Count TotalSystemMemoryGiB TotalCores TotalThreads MaxSpeedMHz SpeedMbps CapacityBytes "
        "SessionTimeout PredictedMediaLifeLeftPercent RotationSpeedRPM CapableSpeedGbs CoreCount "
        "LogicalProcessorCount MediaTypes@odata.count Drives@odata.count",
    )
    | _all(
        "flag", "Inserted WriteProtected ServiceEnabled Required InterfaceEnabled FailurePredicted VerifyCertificate"
    )
    | _all("serial", "SerialNumber AssetTag SKU DurableName HttpBootUri")
    | _all("mac", "MACAddress PermanentMACAddress")
    | _all("uuid", "UUID ServiceEntryPointUUID")
    | _all("host", "HostName FQDN UserName")
    | _all("address", "Address")
    | _all("image", "Image ImageName")
    | _all("etag", "@odata.etag")
    | _all(
        "object",
        "Status Boot Actions #ComputerSystem.Reset #VirtualMedia.InsertMedia #VirtualMedia.EjectMedia Links ManagedBy "
        "ManagerForServers Chassis Systems Managers SessionService Sessions UpdateService Members Drives Devices "
        "Identifiers StorageControllers Parameters @Redfish.Settings SettingsObject error @Message.ExtendedInfo "
        "MemorySummary ProcessorSummary Processors Memory EthernetInterfaces Storage SimpleStorage VirtualMedia Bios "
        "BootProgress LogServices NetworkAdapters NetworkInterfaces Power Thermal IPv4Addresses IPv6Addresses",
    )
)

# Values of enumerations that are not only letters.
TOKENS: Final = frozenset(_all("", "x86 x86-64 ARM-A32 ARM-A64 MIPS32 MIPS64 IA-64 RISC-V PowerISA U.2 M.2"))

# The words that names of parts consist of; numbers of up to three digits may follow each. There are none that people
# give to hosts, such as node, rack or server.
WORDS: Final = frozenset(
    _all(
        "",
        """
        redfish v odata metadata systems managers chassis sessionservice sessions updateservice firmwareinventory
        members actions settings sd self bios memory processors storage simplestorage drives volumes controllers
        virtualmedia ethernetinterfaces networkinterfaces networkadapters networkports ports logservices entries power
        thermal powersupplies sensors pciedevices bootoptions resetactioninfo computersystem reset insertmedia
        ejectmedia session collection rootservice interface interfaces system manager bmc idrac irmc ilo xcc embedded
        integrated internal external direct enclosure backplane bay slot socket cpu gpu dpu fpga dimm nic port
        partition disk drive raid ahci sata sas nvme pcie scsi boss hba controller rdoc ext remote cd dvd usb hd hdd
        ssd floppy removabledisk removable usbstick virtual physical logical volume hgx dgx baseboard motherboard riser
        mezz mezzanine ocp lom eth ens eno enp dedicated shared onboard bluefield processor ethernet network adapter
        fan psu media username password
        """,
    )
)
