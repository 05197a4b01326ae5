"""OpenBMC's bmcweb, as it comes without a vendor."""

from __future__ import annotations

from typing import Final

from tests.support.vendors.personality import CD, Boot, Etags, Media, Parts, Personality, Power, Sessions, Slot

OPENBMC: Final = Personality(
    name="OpenBMC",
    manufacturer="OpenBMC",
    model="Romulus",
    sources=(
        "openbmc/bmcweb, compiled and run as it is (Base.1.19, with its option for virtual media), with stand-ins "
        "for the services on D-Bus: images by https and smb only; no TransferProtocolType is needed, and an ejection "
        "needs no body; HTTP 500 with a resource in part; 404 to a reset while the service of the host is away, and no "
        "PowerState; no Ethernet interfaces and no BIOS version of the system; the allowed resets; strong ETags",
        "openbmc/bmcweb#266: the names of system and boot targets; the allowed resets are in ResetActionInfo",
        "ibm-openbmc/bmcweb#522: the allowed resets",
        "ibm-openbmc/dev#3079: PowerState is PoweringOn while the host starts",
        "openshift/openstack-ironic#392: drives for the browser alone have no InsertMedia (405) and come first",
        "ibm-openbmc/dev#3429: LastResetTime is that of the chassis, which a restart of the host does not change",
        "openbmc/docs, designs/redfish-boot-progress: BootProgress has the time of its last step",
        "xcat2/xcat-core#3965, #4264: 503 while services start",
    ),
    system="system",
    manager="bmc",
    chassis="chassis",
    redfish="1.17.0",
    base="Base.1.19.0",
    registry="OpenBMC.0.4",
    media=Media(
        slots=(
            Slot("Slot_0", ("CD", "USBStick"), "none"),
            Slot("Slot_1", (*CD, "USBStick")),
            Slot("Slot_2", (*CD, "USBStick")),
        ),
        schemes=("https", "smb"),
        connected="Applet",
    ),
    boot=Boot(targets=("None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb")),
    power=Power(
        resets=(
            "On",
            "ForceOff",
            "ForceOn",
            "ForceRestart",
            "GracefulRestart",
            "GracefulShutdown",
            "PowerCycle",
            "Nmi",
        ),
        by_action_info=True,
        way=(None, "PoweringOn"),
        absent=True,
        settling=("503", "partial"),
        missing=1,
        dated=True,
    ),
    sessions=Sessions(limit=64),
    etags=Etags(style="strong"),
    parts=Parts(broken=("EthernetInterfaces of the manager",), absent=True, nics=False, bios=False),
)

ALL: Final = (OPENBMC,)
