"""NVIDIA HGX and DGX: the host and the baseboard with the GPUs are two systems of one service."""

from __future__ import annotations

from typing import Final

from tests.support.vendors.personality import CD, Boot, Etags, Media, Parts, Personality, Power, Sessions, Slot

HGX: Final = Personality(
    name="NVIDIA HGX (GB200)",
    manufacturer="NVIDIA",
    model="GB200 NVL",
    sources=(
        "dsx-ai-factory/libredfish#124: the baseboard HGX_Baseboard_0 is listed before the host System_0",
        "NVIDIA BlueField BMC, Boot Configuration: boot overrides are written to Settings of the system",
        "DMTF/Redfish-Mockup-Server#43: collections with Members@odata.nextLink",
        "kubevirtbmc/kubevirtbmc#70: a part with Links: null",
    ),
    system="System_0",
    other_systems=("HGX_Baseboard_0",),
    manager="BMC_0",
    chassis="BMC_0",
    redfish="1.17.0",
    base="Base.1.18.1",
    registry="OpenBMC.0.4",
    media=Media(
        slots=(Slot("USB1", (*CD, "USBStick")), Slot("USB2", (*CD, "USBStick"))), required=("TransferProtocolType",)
    ),
    boot=Boot(settings="Settings", http_uri=True),
    power=Power(
        resets=("On", "ForceOff", "ForceOn", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PowerCycle"),
        by_action_info=True,
        way=("PoweringOn",),
        settling=("503",),
    ),
    sessions=Sessions(limit=64),
    etags=Etags(style="strong"),
    parts=Parts(page=2, null_links=True, null_mac=True),
)

DGX: Final = Personality(
    name="NVIDIA DGX (H100)",
    manufacturer="NVIDIA",
    model="DGXH100",
    sources=(
        "DGX H100/H200 User Guide, Redfish APIs Support: AMI's service, with the systems DGX and HGX_Baseboard_0",
        "pubs.lenovo.com/tsm, Boot Object (the same service): Boot is written to SD, its future state",
        "stmcginnis/gofish#171: 428 with Ami.1.0.PreconditionHeaderMissing for a write without If-Match",
        "sushy release notes (bug 2071945): InsertMedia needs UserName and Password",
    ),
    system="DGX",
    other_systems=("HGX_Baseboard_0",),
    manager="BMC",
    chassis="DGX",
    redfish="1.11.0",
    base="Base.1.8",
    registry="Ami.1.0",
    media=Media(slots=(Slot("CD1", CD), Slot("HD1", ("USBStick",))), required=("UserName", "Password")),
    boot=Boot(settings="SD"),
    power=Power(
        resets=("On", "ForceOff", "GracefulShutdown", "ForceRestart", "PowerCycle"), settling=("503",), retry_after=1
    ),
    etags=Etags(style="weak", missing=428),
    parts=Parts(absent=True),
)

ALL: Final = (HGX, DGX)
