"""Power and boot device of one machine, whatever speaks to its BMC; and what some BMCs can do besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from ferroscope.domain.model import Document, Node


class Power(StrEnum):
    """Power states, as the Bare Metal API spells them."""

    ON = "power on"
    OFF = "power off"


class BootDevice(StrEnum):
    """Boot devices, as the Bare Metal API spells them."""

    PXE = "pxe"
    DISK = "disk"
    CDROM = "cdrom"
    BIOS = "bios"
    SAFE = "safe"
    WANBOOT = "wanboot"


class Bmc(Protocol):
    """All calls raise ``BmcError``; each has a hard deadline of its own; all but ``reboot`` are idempotent.

    No call may block for longer than the driver's time-out, and none may log credentials.
    ``properties`` says what the driver reads in ``driver_info``: key -> description.
    """

    properties: Mapping[str, str]

    def validate(self, node: Node) -> str | None:
        """Return what is wrong with ``driver_info``, in a sentence, or None. Asks no BMC."""

    def get_power(self, node: Node) -> Power:
        """Return the real power state."""

    def set_power(self, node: Node, power: Power) -> None:
        """Command the power state; it may follow later: read it to be sure."""

    def reboot(self, node: Node) -> None:
        """Reset a machine that is on, without switching it off in between; power on one that is off.

        The one call that is not idempotent: each boots the machine anew.
        """

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` the next time, or always."""

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        """Return device and persistence; None where it is not known."""


class Image(msgspec.Struct, frozen=True):
    """What to boot a ramdisk from: URLs that the BMC fetches.

    ``iso`` is the bootable image; ``parameters`` a small disk with the agent's parameters, "" for none.
    """

    iso: str
    parameters: str = ""


@runtime_checkable
class RamdiskBoot(Protocol):
    """A driver that boots the ramdisk itself, without PXE. Errors and deadlines as of ``Bmc``."""

    def insert_ramdisk(self, node: Node, image: Image) -> str | None:
        """Insert ``image`` and let the next boot, and only that, come from it; return a remark, if any."""

    def eject_ramdisk(self, node: Node, image: Image) -> bool:
        """Take ``image`` out again where it is inserted, and nothing else; return whether it was."""


@runtime_checkable
class ResetTime(Protocol):
    """A driver whose BMC may tell when it has last reset the machine. Errors and deadlines as of ``Bmc``."""

    def last_reset(self, node: Node) -> str | None:
        """Return the time of the last reset or power-on, only to be compared with another one; None: not known."""


class OutOfBandNic(msgspec.Struct, frozen=True):
    """A NIC as the BMC knows it; ``mac`` in lower case."""

    mac: str
    name: str
    enabled: bool = True


@runtime_checkable
class OutOfBand(Protocol):
    """A driver that knows the hardware without a ramdisk. Errors as of ``Bmc``; a deadline of its own."""

    def nics(self, node: Node) -> Sequence[OutOfBandNic]:
        """Return the machine's NICs, as far as the BMC knows them."""

    def inventory(self, node: Node) -> Document:
        """Return an inventory in the ramdisk's shape; what the BMC does not know is left out."""
