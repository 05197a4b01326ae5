"""What a driver does: power and boot device of one machine; and what some can do besides.

``Bmc`` is what every driver has. The other Protocols are optional: a driver that has their methods or attributes has
the ability, and there is nothing else to declare. How a driver is written, packaged and found:
docs/how-to/write-a-bmc-driver.md.

For all calls that ask a BMC:

* Errors: ``BmcError`` and no other. ``transient`` where asking again later may help; permanent else, and always for
  rejected credentials. ``reason`` is what operators see, ``BMC_UNREACHABLE`` where nothing answered at all: by that
  alone workers know a BMC that is silent, and leave it alone for a while. No message and no log has a secret in it.
* Time: a call ends within ``DriverOptions.command_timeout``, its own retries included; those of ``RamdiskBoot`` and
  ``OutOfBand`` within ``inventory_timeout``. Nobody interrupts it. A pause in it is a wait for ``DriverOptions.stop``.
* Idempotence: a worker may die at any moment, and another one repeats the call. All but ``Bmc.reboot`` lead to the
  same state however often they are made.
* Late commands: a worker may also be stopped for any time, and be replaced. What changes something is sent only after a
  look at ``remote.command_fence``, immediately before the bytes, as connections of ``remote.session`` do by themselves.
  Its ``TooLateError`` passes through: nothing was sent, and the worker finds out whether the call is still wanted.
* Threads: one object serves all threads of a process. Calls for different nodes come at the same time; for one BMC
  they come one after the other, as far as ``driver_info`` tells which one it is.
* The node is a copy, to be read. Nothing about a node is kept but what saves a login.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from ferroscope.core.model import Document, Node


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
    """What every driver has. ``properties``: what it reads in ``driver_info``, key -> description.

    Some keys mean the same for all drivers, whatever ``NAME`` is: ``NAME_address`` is where the BMC is, as a host, an
    IP address or a URL, ``NAME_port`` its port; ``NAME_node`` one of several BMCs that are there; with
    ``NAME_bridging`` the machine's own BMC is behind that one. Machines are looked up by them, and requests
    that need the same BMC wait for each other.
    """

    properties: Mapping[str, str]

    def validate(self, node: Node) -> str | None:
        """Return what is wrong with ``driver_info``, in a sentence, or None. Asks no BMC and no file, and never raises.

        The one call that an api makes: what only the others need is best imported by them.
        """

    def get_power(self, node: Node) -> Power:
        """Return the real power state; one that is changing counts as what it was."""

    def set_power(self, node: Node, power: Power) -> None:
        """Command the power state, which may be so already; it may follow later: read it to be sure.

        ``OFF`` is a hard one: it does not wait for the operating system.
        """

    def reboot(self, node: Node) -> None:
        """Reset a machine that is on, without switching it off in between; power on one that is off.

        The one call that is not idempotent: each boots the machine anew. It returns when the BMC has taken it.
        """

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` the next time, or always; ``BMC_REFUSED`` (permanent) for one that it does not know.

        In the boot mode that the node's capabilities ask for, see ``ferroscope.core.boot.wanted_boot_mode``.
        """

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
    """Optional: the driver boots the ramdisk itself, without PXE, as by virtual media.

    Its boot interface has the name ``DRIVER-virtual-media``, and is used wherever there is an image and the node asks
    for no other one.
    """

    def insert_ramdisk(self, node: Node, image: Image) -> str | None:
        """Insert ``image`` and let the next boot, and only that, come from it; return a remark, if any.

        The remark is for operators, where the machine boots but something is not as it was asked for.
        """

    def eject_ramdisk(self, node: Node, image: Image) -> bool:
        """Take ``image`` out again where it is inserted, and nothing else; return whether it was."""


@runtime_checkable
class ResetTime(Protocol):
    """Optional: the BMC may tell when it has last reset the machine.

    With it a worker knows whether a reboot that its predecessor commanded took effect; without it, it waits longer.
    """

    def last_reset(self, node: Node) -> str | None:
        """Return the time of the last reset or power-on, only to be compared with another one; None: not known."""


class OutOfBandNic(msgspec.Struct, frozen=True):
    """A NIC as the BMC knows it; ``mac`` in lower case."""

    mac: str
    name: str
    enabled: bool = True


@runtime_checkable
class OutOfBand(Protocol):
    """Optional: the driver knows the hardware without a ramdisk. Its inspect interface has the driver's name."""

    def nics(self, node: Node) -> Sequence[OutOfBandNic]:
        """Return the machine's NICs, as far as the BMC knows them."""

    def inventory(self, node: Node) -> Document:
        """Return an inventory in the ramdisk's shape; what the BMC does not know is left out."""


@runtime_checkable
class Discovers(Protocol):
    """Optional: ``driver_info`` of a discovered machine is not just ``DRIVER_address`` and its BMC's address."""

    def driver_info(self, address: str) -> Document:
        """Return what is known of a BMC with this IP address, as ``validate`` reads it. Never raises."""


@runtime_checkable
class Requirements(Protocol):
    """Optional: what else must be on a worker's host; ``ferroscope doctor`` tells what of it is not.

    ``packages``: Python packages that are imported with the first call only. ``programs``: commands.
    """

    packages: Sequence[str]
    programs: Sequence[str]


@runtime_checkable
class KeepsConnections(Protocol):
    """Optional: the driver has something to close when the process ends."""

    def close(self) -> None:
        """End what is open, and return soon. Called once, after the last call."""


@runtime_checkable
class Simulated(Protocol):
    """Optional: there are no machines behind this driver, so nobody expects that they reach this host's network."""

    simulated: bool
