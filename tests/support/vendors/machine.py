"""The simulated machine behind a BMC: power, boot override and virtual drives; what it booted from is remembered.

Time is counted in what the BMC is asked: a reset takes effect when the system was read often enough.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec

from tests.support.vendors.personality import Personality, Slot

DISK: Final = "disk"
NETWORK: Final = "network"
_OFF: Final = frozenset({"ForceOff", "GracefulShutdown"})
_RESTARTS: Final = frozenset({"ForceRestart", "GracefulRestart", "PowerCycle"})


class RefusedError(Exception):
    """The BMC refuses: status, message ID, and the arguments of the message."""

    def __init__(self, status: int, message: str, *arguments: str) -> None:
        super().__init__(message)
        self.status, self.message, self.arguments = status, message, arguments


class Drive(msgspec.Struct):
    """A virtual drive and what is in it; ``shown`` is how the BMC spells that."""

    slot: Slot
    image: str = ""
    shown: str = ""


class Machine:
    """Thread-safe. ``resets`` and ``boots`` are in order; a boot is ``DISK``, ``NETWORK``, a target or an image."""

    def __init__(self, personality: Personality) -> None:
        self.personality = personality
        self.power: str | None = "Off"
        self.drives = {slot.id: Drive(slot) for slot in personality.media.slots}
        self.override: dict[str, Any] = {
            "BootSourceOverrideEnabled": "Disabled",
            "BootSourceOverrideTarget": "None",
            "BootSourceOverrideMode": "UEFI",
        } | ({"HttpBootUri": "http://left.example/over.efi"} if personality.boot.http_uri else {})
        self.pending: dict[str, Any] = dict(self.override)  # of the settings resource, until the next boot
        self.resets: list[str] = []
        self.boots: list[str] = []
        self.reported: str | None = None  # the last PowerState
        self.ignores_resets = False  # they are accepted, and nothing happens
        self.switched = 0  # how often the chassis was powered on
        self.loses_images = False  # insertions are accepted, and nothing is inserted
        self._lock = threading.RLock()
        self._settling: list[str] = []
        self._way: list[str | None] = []
        self._effect: str | None = None
        self._post = 0

    def settle(self) -> str | None:
        """Return how the next read of the system is answered instead of with the system, None if it is not."""
        with self._lock:
            return self._settling.pop(0) if self._settling else None

    def look(self) -> str | None:
        """Return ``PowerState`` as it is said now; a reset is nearer to its effect afterwards."""
        with self._lock:
            if self._way:
                self.reported = self._way.pop(0)
            else:
                self._take_effect()
                self.reported = self.power
            return self.reported

    def reset(self, kind: str) -> None:
        """Command a reset; ``RefusedError``."""
        power = self.personality.power
        with self._lock:
            if kind not in power.resets:
                raise RefusedError(400, "{base}.ActionParameterNotSupported", kind, "ResetType")
            self._way.clear()
            self._take_effect()
            idle = self.power == "Off" and (kind in _OFF or kind in _RESTARTS)
            if power.same_state and (idle or (self.power == "On" and kind in ("On", "ForceOn"))):
                raise RefusedError(power.same_state, power.same_state_message, "Power is " + str(self.power).lower())
            self.resets.append(kind)
            if idle or (self.power == "On" and kind in ("On", "ForceOn")):
                return
            if self.ignores_resets:
                return
            self._effect = kind
            self._settling = list(power.settling)
            self._way = list(power.way) if kind not in _OFF else []

    def _take_effect(self) -> None:
        kind, self._effect = self._effect, None
        if kind is None:
            return
        if kind in _OFF or (kind == "PushPowerButton" and self.power == "On"):
            self.power = "Off"
            return
        self.switched += self.power != "On"
        self.power = "On"
        self._boot()

    def _boot(self) -> None:
        boot = self.personality.boot
        self._post = boot.post
        if boot.settings:
            self.override |= {name: value for name, value in self.pending.items() if name in self.override}
        target = self.override["BootSourceOverrideTarget"]
        enabled = self.override["BootSourceOverrideEnabled"]
        self.boots.append(self._source(target) if enabled != "Disabled" else DISK)
        if enabled == "Once":
            for place in (self.override, self.pending):
                place |= {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}

    def _source(self, target: str) -> str:
        if target == "Pxe":
            return NETWORK
        if target not in ("Cd", "UsbCd"):
            return DISK if target in ("None", "Hdd") else target
        media = self.personality.media
        inserted = (
            drive.image
            for name, drive in self.drives.items()
            if drive.image.endswith(".iso") and (not media.bootable or name in media.bootable)
        )
        return next(inserted, DISK) if target == self.personality.boot.cd else DISK

    def write_boot(self, given: dict[str, Any], *, to_settings: bool) -> None:
        """Write the boot override; ``RefusedError``."""
        boot = self.personality.boot
        with self._lock:
            if bool(boot.settings) != to_settings:
                raise RefusedError(400, "{base}.PropertyNotWritable", "Boot")
            if self._post:
                self._post -= 1
                raise RefusedError(400, boot.post_message, "BootSourceOverrideTarget")
            self._check(given)
            (self.pending if to_settings else self.override).update(given)

    def _check(self, given: dict[str, Any]) -> None:
        boot = self.personality.boot
        for name, value in given.items():
            if name not in self.override:
                raise RefusedError(400, "{base}.PropertyUnknown", name)
            if name == "BootSourceOverrideMode" and boot.mode == "read-only":
                raise RefusedError(400, "{base}.PropertyNotWritable", name)
            allowed = {"BootSourceOverrideTarget": boot.targets, "BootSourceOverrideEnabled": boot.enabled}.get(name)
            if allowed is not None and value not in allowed:
                raise RefusedError(400, "{base}.PropertyValueNotInList", str(value), name)
        if boot.mode == "required" and "BootSourceOverrideMode" not in given:
            raise RefusedError(400, "{base}.PropertyMissing", "BootSourceOverrideMode")

    def insert(self, name: str, given: dict[str, Any], *, by: str) -> None:
        """Insert an image into a drive, or eject it by writing null; ``RefusedError``."""
        media, drive = self.personality.media, self.drives[name]
        if drive.slot.insert != by:
            raise RefusedError(405, "{base}.OperationNotAllowed")
        if by == "patch" and given.get("Image") is None:
            self.eject(name)
            return
        if media.schemes and given.get("Image") and given["Image"].partition(":")[0] not in media.schemes:
            raise RefusedError(400, "{base}.ResourceAtUriInUnknownFormat", given["Image"])
        for one in media.required:
            if not given.get(one):
                raise RefusedError(400, "{base}.ActionParameterMissing", "VirtualMedia.InsertMedia", one)
        for one in media.refused:
            if one in given:
                raise RefusedError(400, "{base}.ActionParameterUnknown", "VirtualMedia.InsertMedia", one)
        if by == "patch" and not given.get("Inserted"):
            return  # the image is noted and stays outside
        if self.loses_images:
            return
        if drive.image:
            raise RefusedError(400, "{base}.ResourceInUse")
        drive.image, drive.shown = given["Image"], self._spelled(given["Image"])

    def eject(self, name: str) -> None:
        """Eject what is in a drive."""
        drive = self.drives[name]
        drive.image = ""
        if not self.personality.media.kept:
            drive.shown = ""

    def _spelled(self, url: str) -> str:
        shown = self.personality.media.shown
        if shown == "path":
            return "/" + url.partition("://")[2].partition("/")[2]
        return {"lower case": url.lower(), "trailing slash": url + "/"}.get(shown, url)
