"""Power and boot device of one machine, whatever speaks to its BMC."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from ferroscope.domain.model import Node


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
    """All calls raise ``BmcError``; each has a hard deadline of its own; all are idempotent.

    No call may block for longer than the driver's time-out, and none may log credentials.
    """

    def validate(self, node: Node) -> str | None:
        """Return what is wrong with ``driver_info``, in a sentence, or None. Asks no BMC."""

    def get_power(self, node: Node) -> Power:
        """Return the real power state."""

    def set_power(self, node: Node, power: Power) -> None:
        """Command the power state; it may follow later: read it to be sure."""

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` the next time, or always."""

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        """Return device and persistence; None where it is not known."""
