"""What the Redfish service of a vendor is like, as data: names, demands, and where it leaves the standard.

Everything that takes time on hardware is counted in requests here. A personality that says nothing of a field behaves
as DMTF's specification (DSP0266) and schemas (DSP8010) have it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RESETS = ("On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn", "PushPowerButton")
TARGETS = ("None", "Pxe", "Hdd", "Cd", "Usb", "BiosSetup", "UefiHttp")


class Slot(msgspec.Struct, frozen=True):
    """A virtual drive. ``insert``: by the action, by writing the resource, or not at all over HTTP."""

    id: str
    types: tuple[str, ...]
    insert: Literal["action", "patch", "none"] = "action"


CD = ("CD", "DVD")
USB = ("Floppy", "USBStick")


class Media(msgspec.Struct, frozen=True, kw_only=True):
    """Virtual media. ``empty_below``: there is a collection here too, without members."""

    slots: tuple[Slot, ...] = (Slot("1", USB), Slot("2", CD))
    below: Literal["Systems", "Managers"] = "Managers"
    empty_below: Literal["", "Systems", "Managers"] = ""
    required: tuple[str, ...] = ()  # parameters without which InsertMedia is refused
    refused: tuple[str, ...] = ()  # parameters with which it is refused
    shown: Literal["as given", "lower case", "path", "trailing slash"] = "as given"
    bare_eject: bool = True  # EjectMedia is accepted without a body
    kept: bool = False  # the image is still shown after it was ejected
    bootable: tuple[str, ...] = ()  # the only drives that a machine boots from, if not all
    schemes: tuple[str, ...] = ()  # of the only URLs that are taken, if not all
    connected: str = "URI"  # what ConnectedVia says of an image


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """The boot override. ``settings``: the resource below the system where it is written, "" for the system itself."""

    targets: tuple[str, ...] = TARGETS
    listed: bool = True  # the allowed targets are listed in the system
    cd: str = "Cd"  # the target that boots from a virtual CD drive
    mode: Literal["writable", "read-only", "required"] = "writable"
    settings: str = ""
    http_uri: bool = False  # HttpBootUri is known; otherwise a write of it is refused
    enabled: tuple[str, ...] = ("Disabled", "Once", "Continuous")  # how long an override may last
    post: int = 0  # as many writes are refused while the machine starts, after each boot
    post_message: str = ""


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """Resets. ``way``: what ``PowerState`` says after one until it took effect, one for each read of the system.

    ``settling``: what the first reads of the system after a reset are answered with, before that.
    """

    resets: tuple[str, ...] = RESETS
    by_action_info: bool = False  # the allowed resets are in a resource of their own
    way: tuple[str | None, ...] = ()
    absent: bool = False  # PowerState is left out instead of null
    settling: tuple[Literal["empty", "404", "503", "page", "not ready", "partial"], ...] = ()
    missing: int = 0  # as many resets are answered with 404 first, as by a service that starts anew
    retry_after: int | None = None
    dated: bool = False  # LastResetTime, which is that of the chassis, and BootProgress with the time of its last step
    same_state: int = 0  # the status for a command for the state that the machine is in; 0: accepted
    same_state_message: str = ""


def waits(power: Power) -> int:
    """Return how often the system has to be read until it is answered with at least a part of it."""
    return sum(one != "partial" for one in power.settling)


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """``location``: of a new session, as a path, or with the name or address that the BMC has for itself."""

    limit: int = 16
    status: int = 503  # for one more
    message: str = "{base}.SessionLimitExceeded"
    location: Literal["path", "name", "address"] = "path"


class Etags(msgspec.Struct, frozen=True, kw_only=True):
    """``missing``: the status of a write without ``If-Match``, 0 if it is not required."""

    style: Literal["none", "strong", "weak", "number"] = "none"
    missing: int = 0
    stale: int = 0  # as many writes are refused although the ETag was right when it was read


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """Accounts and changes of their passwords. ``slots``: as many are listed, most without a name; 0: by name."""

    slots: int = 0
    below: Literal["AccountService", "Managers"] = "AccountService"
    least: int = 8
    most: int = 20
    told: bool = True  # these limits are in the account service
    lockout: int = 0  # as many wrong passwords in a row lock an account, 0: it is never locked
    status: int = 200  # of a change
    action: bool = False  # it is changed by an action only
    echoes: bool = False  # a refusal repeats the password
    verbose: int = 0  # after as many other characters
    late: int = 0  # as many logins are rejected until a change is known
    kept: int = 0  # the characters of a password that count, 0: all
    ignored: bool = False  # a change is accepted, and nothing changes
    demanded: bool = False  # nothing else is possible until the first change


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What is unusual about the inventory."""

    page: int = 0  # the members on a page of a collection, 0: all on one
    shared_drives: bool = False  # a drive is linked from two storages
    absent: bool = False  # empty bays, sockets and NICs are listed
    null_links: bool = False  # a part says "Links": null
    null_mac: bool = False  # a NIC without a MAC address
    padding: str = ""  # after serial numbers
    broken: tuple[str, ...] = ()  # collections that are linked and answer 404
    simple_storage: bool = False  # drives are in SimpleStorage alone
    manager_power: bool = True  # managers say their own PowerState
    nics: bool = True  # the system has Ethernet interfaces
    bios: bool = True  # the system has BiosVersion


class Personality(msgspec.Struct, frozen=True, kw_only=True):
    """``sources``: of the facts, as OWNER/REPOSITORY#NUMBER or the title of a document."""

    name: str
    manufacturer: str
    model: str
    sources: tuple[str, ...]
    system: str = "1"
    other_systems: tuple[str, ...] = ()  # listed before it
    manager: str = "1"
    chassis: str = "1"
    redfish: str = "1.15.0"
    base: str = "Base.1.12"  # the message registry
    registry: str = ""  # of the vendor, for messages that are its own
    error_code: str = ""  # of every error; by default that of its message
    slash: bool = False  # paths end in a slash
    media: Media = Media()
    boot: Boot = Boot()
    power: Power = Power()
    sessions: Sessions = Sessions()
    etags: Etags = Etags()
    accounts: Accounts = Accounts()
    parts: Parts = Parts()

    def message(self, text: str) -> str:
        """Return the ID of a message, with this service's versions of the registries."""
        return text.format(base=self.base, own=self.registry)
