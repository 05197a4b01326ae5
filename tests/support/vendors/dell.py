"""Dell iDRAC 9 and 10."""

from __future__ import annotations

from typing import Final

from tests.support.vendors.personality import (
    CD,
    Accounts,
    Boot,
    Etags,
    Media,
    Parts,
    Personality,
    Power,
    Sessions,
    Slot,
)

_SYSTEM: Final = "System.Embedded.1"
_MANAGER: Final = "iDRAC.Embedded.1"
_TARGETS: Final = ("None", "Pxe", "Floppy", "Cd", "Hdd", "BiosSetup", "Utilities", "UefiTarget", "SDCard", "UefiHttp")
# stmcginnis/gofish#75 and bb-Ricardo/check_redfish#89: 503 with RAC0218 when all sessions are taken.
_FULL: Final = "{own}.RAC0218"

IDRAC9: Final = Personality(
    name="Dell iDRAC 9",
    manufacturer="Dell Inc.",
    model="PowerEdge R650",
    sources=(
        "dell/iDRAC-Redfish-Scripting#58: a removable disk is listed before the CD drive, both below the manager",
        "dell/iDRAC-Redfish-Scripting#59: InsertMedia takes the image alone",
        "ansible-collections/community.general#3423: the boot target Cd boots the virtual drive on current firmware",
        "metal3-io/baremetal-operator#493: persistent overrides are refused; dell/terraform-provider-redfish#138: they "
        "last for one boot",
        "quadsproject/quads#311: the allowed resets have no GracefulRestart",
        "stmcginnis/gofish#75, bb-Ricardo/check_redfish#89: 503 with RAC0218 when all sessions are taken",
        "dell/iDRAC-Redfish-Scripting#385: accounts are below the manager; #126: a new password is rejected at first",
        "iDRAC9 Redfish API Guide: collections are delivered in pages (here of 2 members, there of 50)",
    ),
    system=_SYSTEM,
    manager=_MANAGER,
    chassis=_SYSTEM,
    redfish="1.11.0",
    base="Base.1.8",
    registry="IDRAC.2.4",
    media=Media(slots=(Slot("RemovableDisk", ("USBStick",)), Slot("CD", CD))),
    boot=Boot(targets=_TARGETS, http_uri=True, enabled=("Disabled", "Once")),
    power=Power(
        resets=("On", "ForceOff", "ForceRestart", "GracefulShutdown", "PushPowerButton", "Nmi"),
        settling=("503",),
        same_state=409,
        same_state_message="{own}.PSU501",
    ),
    sessions=Sessions(limit=8, message=_FULL),
    etags=Etags(style="weak"),
    accounts=Accounts(slots=16, below="Managers", lockout=3, late=1),
    parts=Parts(page=2, absent=True),
)

IDRAC10: Final = Personality(
    name="Dell iDRAC 10",
    manufacturer="Dell Inc.",
    model="PowerEdge R670",
    sources=(
        "ansible-collections/community.general#11297: Boot of the system is read-only; it is written in its settings",
        "stmcginnis/gofish#511: writes of the settings need the ETag",
        "dell/iDRAC-Redfish-Scripting#324: the system lists no boot targets; drive 2 is listed first, drive 1 boots",
        "dell/terraform-provider-redfish#331, #329: media are below the system; 204 does not mean inserted",
        "sushy 5.13 release notes: HttpBootUri is gone, and a write of it is refused",
        "ironcore-dev/metal-operator#1015: ETags are checked (412)",
    ),
    system=_SYSTEM,
    manager=_MANAGER,
    chassis=_SYSTEM,
    redfish="1.20.1",
    base="Base.1.18",
    registry="IDRAC.2.9",
    media=Media(slots=(Slot("2", (*CD, "USBStick")), Slot("1", (*CD, "USBStick"))), below="Systems", bootable=("1",)),
    boot=Boot(targets=_TARGETS, listed=False, settings="Settings"),
    power=Power(
        resets=("On", "ForceOff", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PushPowerButton", "Nmi"),
        settling=("503", "503"),
        retry_after=2,
        same_state=409,
        same_state_message="{own}.PSU501",
    ),
    sessions=Sessions(limit=8, message=_FULL),
    etags=Etags(style="strong", missing=412),
    parts=Parts(page=2, absent=True),
)

ALL: Final = (IDRAC9, IDRAC10)
