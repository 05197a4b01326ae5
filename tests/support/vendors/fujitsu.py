"""Fujitsu iRMC S5 and S6."""

from __future__ import annotations

from typing import Final

from tests.support.vendors.personality import CD, Boot, Etags, Media, Parts, Personality, Power, Sessions, Slot

IRMC: Final = Personality(
    name="Fujitsu iRMC",
    manufacturer="FUJITSU",
    model="PRIMERGY RX2540 M5",
    sources=(
        "fujitsu/fujitsu-ansible-irmc-integration, module setnextboot: system 0, ETags that are numbers, If-Match "
        "with each write",
        "fujitsu/terraform-provider-irmc-redfish, example vmedia_import: media below the manager iRMC, the first is 0",
        "fujitsu/terraform-provider-irmc-redfish, resource power: the allowed resets; PowerCycle is the vendor's own",
        "DMTF/Redfish-Tacklebox#22: 428 for a write without If-Match",
        "Specification iRMC RESTful API, 2.2: the number of sessions is limited",
    ),
    system="0",
    manager="iRMC",
    chassis="0",
    redfish="1.9.0",
    base="Base.1.8",
    registry="FTS.1.0",
    media=Media(
        slots=(Slot("0", CD), Slot("1", ("USBStick",))), required=("TransferProtocolType",), empty_below="Systems"
    ),
    boot=Boot(targets=("None", "Pxe", "Floppy", "Cd", "Usb", "Hdd", "BiosSetup"), http_uri=False),
    power=Power(
        resets=("On", "ForceOn", "ForceOff", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PushPowerButton"),
        way=("PoweringOn",),
        settling=("page",),
    ),
    sessions=Sessions(limit=4, location="address"),
    etags=Etags(style="number", missing=428),
    parts=Parts(padding=" ", absent=True),
)

ALL: Final = (IRMC,)
