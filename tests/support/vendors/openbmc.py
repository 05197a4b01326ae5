"""OpenBMC's bmcweb, as it comes without a vendor."""

from __future__ import annotations

from typing import Final

from tests.support.vendors.personality import CD, Boot, Etags, Media, Parts, Personality, Power, Sessions, Slot

OPENBMC: Final = Personality(
    name="OpenBMC",
    manufacturer="OpenBMC",
    model="Romulus",
    sources=(
        "openbmc/bmcweb#266: the names of system and boot targets; the allowed resets are in ResetActionInfo",
        "ibm-openbmc/bmcweb#522: the allowed resets",
        "ibm-openbmc/dev#3079: PowerState is PoweringOn while the host starts",
        "openshift/openstack-ironic#392: drives for the browser alone have no InsertMedia (405) and come first; "
        "InsertMedia needs TransferProtocolType, which the error names in its arguments alone",
        "ibm-openbmc/dev#3429: LastResetTime is that of the chassis, which a restart of the host does not change",
        "openbmc/docs, designs/redfish-boot-progress: BootProgress has the time of its last step",
        "xcat2/xcat-core#3965, #4264: 503 while services start",
    ),
    system="system",
    manager="bmc",
    chassis="chassis",
    redfish="1.17.0",
    base="Base.1.13.0",
    registry="OpenBMC.0.4",
    media=Media(
        slots=(Slot("Slot_0", CD, "none"), Slot("Slot_1", (*CD, "USBStick")), Slot("Slot_2", (*CD, "USBStick"))),
        required=("TransferProtocolType",),
        bare_eject=False,
    ),
    boot=Boot(targets=("None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb")),
    power=Power(
        resets=("On", "ForceOff", "ForceOn", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PowerCycle"),
        by_action_info=True,
        way=("PoweringOn", "PoweringOn"),
        settling=("503", "503"),
        dated=True,
    ),
    sessions=Sessions(limit=64),
    etags=Etags(style="strong"),
    parts=Parts(broken=("EthernetInterfaces of the manager",), absent=True),
)

ALL: Final = (OPENBMC,)
