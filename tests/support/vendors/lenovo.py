"""Lenovo XClarity Controller (XCC)."""

from __future__ import annotations

from typing import Final

from tests.support.vendors.personality import CD, Boot, Etags, Media, Parts, Personality, Power, Slot

_STICK: Final = (*CD, "USBStick")

XCC: Final = Personality(
    name="Lenovo XCC",
    manufacturer="Lenovo",
    model="ThinkSystem SR650",
    sources=(
        "lenovo/python-redfish-lenovo#21: RDOC drives are listed first and take no image; EXT drives take it by PATCH",
        "lenovo/python-redfish-lenovo#289, #257: media are below the system, too; an insertion is answered with 201",
        "FuturFusion/operations-center#1040: 412 although the ETag had just been read",
        "ansible-collections/community.general#11261: writes without the ETag are refused with 412",
        "Yogibaer75/Check_MK-Things#59: strong ETags, x86-64 as the instruction set, empty part numbers",
    ),
    redfish="1.15.0",
    base="Base.1.12",
    registry="ExtendedError.1.2",
    media=Media(
        slots=(
            Slot("RDOC1", _STICK, "none"),
            Slot("RDOC2", _STICK, "none"),
            Slot("EXT1", _STICK, "patch"),
            Slot("EXT2", _STICK, "patch"),
        )
    ),
    boot=Boot(targets=("None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "Diags", "UefiTarget", "UefiHttp")),
    power=Power(
        resets=("On", "Nmi", "GracefulShutdown", "GracefulRestart", "ForceOn", "ForceOff", "ForceRestart"),
        way=("PoweringOn",),
        settling=("503",),
    ),
    etags=Etags(style="strong", missing=412, stale=1),
    parts=Parts(absent=True, null_links=True),
)

ALL: Final = (XCC,)
