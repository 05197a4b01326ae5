"""Supermicro X11, X12 and X13."""

from __future__ import annotations

from typing import Final

from tests.support.vendors.personality import CD, Boot, Etags, Media, Parts, Personality, Power, Slot

_RESETS: Final = (
    "On",
    "ForceOff",
    "GracefulShutdown",
    "GracefulRestart",
    "ForceRestart",
    "Nmi",
    "ForceOn",
    "PowerCycle",
)
_TARGETS: Final = ("None", "Pxe", "Floppy", "Cd", "Usb", "Hdd", "BiosSetup", "UsbCd", "UefiBootNext", "UefiHttp")
_COMMON: Final = (
    "ansible-collections/community.general#6969, #7470, #12537: the image is shown after it was ejected, and in "
    "another spelling than it was given",
    "sushy release notes: only the target UsbCd boots from virtual media; both are listed",
    "Supermicro Redfish User Guide: the allowed resets",
)

X11: Final = Personality(
    name="Supermicro X11",
    manufacturer="Supermicro",
    model="SYS-1029P",
    sources=(
        *_COMMON,
        "sushy release notes: InsertMedia is refused with Inserted or WriteProtected",
        "ansible-collections/community.general#11542: a boot override without its mode is refused",
    ),
    redfish="1.0.1",
    base="Base.1.4",
    registry="SMC.1.0",
    media=Media(
        slots=(Slot("CD1", CD),),
        refused=("Inserted", "WriteProtected"),
        shown="path",
        kept=True,
        bare_eject=False,
    ),
    boot=Boot(targets=_TARGETS, cd="UsbCd", mode="required"),
    power=Power(resets=_RESETS, way=(None, None), settling=("empty",)),
    parts=Parts(simple_storage=True, absent=True),
)

X12: Final = Personality(
    name="Supermicro X12",
    manufacturer="Supermicro",
    model="SYS-120U-TNR",
    sources=(*_COMMON, "sushy release notes: InsertMedia is refused with Inserted or WriteProtected"),
    redfish="1.8.0",
    base="Base.1.10",
    registry="SMC.1.0",
    media=Media(
        slots=(Slot("VirtualMedia1", CD), Slot("VirtualMedia2", ("Floppy", "USBStick"))),
        refused=("Inserted", "WriteProtected"),
        shown="lower case",
        kept=True,
    ),
    boot=Boot(targets=_TARGETS, cd="UsbCd"),
    power=Power(resets=_RESETS, way=(None,), settling=("503",), retry_after=3),
    etags=Etags(style="strong"),
    parts=Parts(absent=True),
)

X13: Final = Personality(
    name="Supermicro X13",
    manufacturer="Supermicro",
    model="SYS-121H-TNR",
    sources=(
        *_COMMON,
        "theforeman/smart-proxy#930: writes without If-Match are refused by some services, here with 428",
    ),
    redfish="1.14.0",
    base="Base.1.14",
    registry="SMC.1.0",
    media=Media(
        slots=(Slot("VirtualMedia1", CD), Slot("VirtualMedia2", ("Floppy", "USBStick"))),
        shown="trailing slash",
        kept=True,
        empty_below="Systems",
    ),
    boot=Boot(targets=_TARGETS, cd="UsbCd", http_uri=True),
    power=Power(resets=_RESETS, way=("PoweringOn",), settling=("404",)),
    etags=Etags(style="strong", missing=428),
    parts=Parts(absent=True, null_mac=True),
)

ALL: Final = (X11, X12, X13)
