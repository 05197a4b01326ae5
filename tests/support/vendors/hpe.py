"""HPE iLO 5 and 6."""

from __future__ import annotations

from typing import Final

from tests.support.vendors.personality import Boot, Etags, Media, Parts, Personality, Power, Sessions

_RESETS: Final = ("On", "ForceOff", "GracefulShutdown", "ForceRestart", "Nmi", "PushPowerButton", "GracefulRestart")
_POST: Final = "{own}.UnableToModifyDuringSystemPOST"
_COMMON: Final = (
    "ironcore-dev/metal-operator#997: the boot override is refused with 400 while the machine starts",
    "ansible-collections/community.general#3509: BootSourceOverrideMode cannot be written",
    "metal3-io/metal3-docs#581: the boot mode cannot be changed over Redfish",
    "goldyfruit/ansible-ilo#1, apache/cloudstack#12921: 400 InvalidOperationForSystemState for a reset of a machine "
    "that is off",
    "HPE server management portal, Redfish authentication: the Location of a session is a URL with the iLO's name; "
    "error responses: the code is iLO.0.10.ExtendedInfo, the message IDs are in @Message.ExtendedInfo",
    "sushy release notes: EjectMedia needs an empty JSON object as its body",
    "HewlettPackard/python-redfish-utility#1: drive 1 is a floppy and USB stick, drive 2 a CD and DVD, of manager 1",
)

ILO5: Final = Personality(
    name="HPE iLO 5",
    manufacturer="HPE",
    model="ProLiant DL325 Gen10",
    sources=(*_COMMON, "bb-Ricardo/check_redfish#128: NVMe drives are listed by two storages"),
    redfish="1.6.0",
    base="Base.1.4",
    registry="iLO.2.37",
    error_code="iLO.0.10.ExtendedInfo",
    slash=True,
    media=Media(bare_eject=False),
    boot=Boot(mode="read-only", post=2, post_message=_POST),
    power=Power(
        resets=_RESETS,
        settling=("empty",),
        same_state=400,
        same_state_message="{own}.InvalidOperationForSystemState",
    ),
    sessions=Sessions(limit=13, location="name"),
    etags=Etags(style="weak"),
    parts=Parts(shared_drives=True, null_mac=True),
)

ILO6: Final = Personality(
    name="HPE iLO 6",
    manufacturer="HPE",
    model="ProLiant DL325 Gen11",
    sources=(
        *_COMMON,
        "bb-Ricardo/check_redfish#170: ResourceNotReadyRetry, or 404, for storage after a reset",
        "ironcore-dev/metal-operator#594: the manager has no PowerState (firmware 1.70)",
    ),
    redfish="1.13.0",
    base="Base.1.12",
    registry="iLO.2.30",
    error_code="iLO.0.10.ExtendedInfo",
    slash=True,
    media=Media(bare_eject=False),
    boot=Boot(mode="read-only", post=1, post_message=_POST),
    power=Power(
        resets=_RESETS,
        settling=("not ready", "404"),
        same_state=400,
        same_state_message="{own}.InvalidOperationForSystemState",
    ),
    sessions=Sessions(limit=13, location="name"),
    etags=Etags(style="weak"),
    parts=Parts(manager_power=False, absent=True, null_mac=True),
)

ALL: Final = (ILO5, ILO6)
