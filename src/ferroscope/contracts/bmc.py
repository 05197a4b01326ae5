"""BMC drivers: power and boot device of a machine, and optional capabilities.

Every driver implements ``Bmc``. The other Protocols are optional: a driver has a capability if it has its methods or
attributes, without any declaration. How to write, package and install a driver: docs/how-to/write-a-bmc-driver.md.

For all calls that access a BMC:

* Errors: only ``BmcError``. It is ``transient`` if a later retry may succeed, never for rejected credentials. Operators
  see ``reason``. The reasons in ``core.reasons.UNAVAILABLE`` mean that the BMC can do nothing at present: only then do
  workers stop calling it for a while. Messages and logs must not contain secrets.
* Time: a call returns within ``DriverOptions.command_timeout``, including its own retries. Calls of ``RamdiskBoot``,
  ``OutOfBand`` and ``ReportsHealth``, and calls that make progress, have ``inventory_timeout``. Nothing interrupts a
  call. A driver pauses by waiting for ``DriverOptions.stop``.
* Refusals: ``BMC_REFUSED``, ``BMC_CREDENTIALS`` and ``BMC_PRIVILEGES`` mean that the BMC has not done what was asked.
* Idempotence: a worker may die at any moment, and another one repeats the call. Except for ``Bmc.reboot``, repeated
  calls lead to the same state.
* Late commands: a worker may be suspended for any time, and be replaced meanwhile. A command that changes something
  must check ``remote.command_fence`` immediately before it sends its bytes; connections of ``remote.session`` do so.
  Let its ``TooLateError`` pass: nothing was sent, and the worker checks whether to repeat the call.
* Threads: one object serves all threads of a process. Calls for different nodes are concurrent; calls for one BMC, as
  identified by ``driver_info``, are serialized.
* The node is a read-only copy. A driver keeps no data about a node, except to save a login.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, Literal, Protocol, runtime_checkable

import msgspec

from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node
from ferroscope.core.virtual_media import Image, MediaDevice, Medium
from ferroscope_client.core.reasons import Reason


class Problem(str):
    """What is wrong with ``driver_info``, with the reason code."""

    reason: Reason

    def __new__(cls, message: object, reason: Reason) -> Problem:
        problem = super().__new__(cls, str(message))
        problem.reason = reason
        return problem


def problem(read: Callable[[Document], object], info: Document) -> Problem | None:
    """Return the error that a driver's ``read`` raises for ``info``, or None."""
    try:
        read(info)
    except BmcError as exc:
        return Problem(exc, exc.reason)
    return None


class Power(StrEnum):
    """The power state that a BMC reports; ``ON`` and ``OFF`` as the Bare Metal API spells them.

    ``CHANGING``: the machine is being powered on or off. ``UNKNOWN``: the BMC reports no state, or one that the driver
    does not know. Only ``OFF`` means that nothing runs on the machine.
    """

    ON = "power on"
    OFF = "power off"
    CHANGING = "changing"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, answer: object) -> Power:
        """Return the answer in exactly these words; ``UNKNOWN`` for everything else."""
        return _ANSWERS.get(answer, cls.UNKNOWN) if isinstance(answer, str) else cls.UNKNOWN

    @property
    def settled(self) -> bool:
        """Whether the machine is on or off for certain."""
        return self in (Power.ON, Power.OFF)

    @property
    def published(self) -> str | None:
        """The state in the Bare Metal API, which has null until the machine is on or off for certain."""
        return str(self) if self.settled else None


_ANSWERS: Final[dict[str, Power]] = {str(power): power for power in Power}

# The power states that a BMC can be commanded to set.
Switch = Literal[Power.ON, Power.OFF]


def unsettled(action: str, power: Power) -> BmcError:
    """Return the error (transient) for ``action``, which needs a machine that is on or off for certain."""
    why = "the BMC does not say whether the machine is on or off"
    if power is Power.CHANGING:
        why = "the machine is being powered on or off at the moment"
    return BmcError(f"{action} has to wait: {why}", transient=True, reason=Reason.POWER_FAILED)


# The other power states that can be requested.
REBOOT: Final = "rebooting"
SOFT_POWER_OFF: Final = "soft power off"
SOFT_REBOOT: Final = "soft rebooting"
# Requested power state -> the state of the machine after it.
RESULTS: Final[dict[str, Switch]] = {
    Power.ON: Power.ON,
    Power.OFF: Power.OFF,
    REBOOT: Power.ON,
    SOFT_POWER_OFF: Power.OFF,
    SOFT_REBOOT: Power.ON,
}


class BootDevice(StrEnum):
    """Boot devices, as the Bare Metal API spells them."""

    PXE = "pxe"
    DISK = "disk"
    CDROM = "cdrom"
    BIOS = "bios"
    SAFE = "safe"
    WANBOOT = "wanboot"


class Bmc(Protocol):
    """The calls of every driver. ``properties``: the keys it reads from ``driver_info``, key -> description.

    Some keys have the same meaning for all drivers, with any ``NAME``: ``NAME_address`` is the host, IP address or URL
    of the BMC, ``NAME_port`` its port; ``NAME_node`` selects one of several BMCs at that address; with
    ``NAME_bridging`` the machine's own BMC is behind that one. The service looks up machines by them, and serializes
    the requests for one BMC.
    """

    properties: Mapping[str, str]

    def validate(self, node: Node) -> str | None:
        """Return an error message if ``driver_info`` is invalid, otherwise None. Accesses no BMC or file; never raises.

        A message with a reason other than ``DRIVER_INFO_INVALID`` is a ``Problem``. In the API, ``00000000`` stands for
        secrets that are encrypted or referenced. The API makes no other call, so import there what the others need.
        """

    def get_power(self, node: Node) -> Power:
        """Return the state that the BMC reports now, never the result that a command should have.

        The service trusts ``OFF`` as proof that nothing runs on the machine, so return it only if the BMC says exactly
        that. During a change, return ``CHANGING`` if the BMC says so, or the state that it still reports.
        """

    def set_power(self, node: Node, power: Switch) -> None:
        """Request the power state, which may already be set; the change may complete later, so the caller polls it.

        ``OFF`` is a hard power-off: it does not wait for the operating system. It is a success if the BMC refuses the
        state that it reports already.
        """

    def reboot(self, node: Node) -> None:
        """Reset a machine that is on, without powering it off in between; power on one that is off.

        Each call boots the machine. It returns when the BMC has accepted it. A transient ``BmcError`` if the BMC does
        not say whether the machine is on, see ``unsettled``.
        """

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` once, or persistently; ``BMC_REFUSED`` (permanent) if the device is not supported.

        Use the boot mode of the node's capabilities, see ``ferroscope.core.boot.wanted_boot_mode``.
        """

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        """Return device and persistence; None if unknown."""


class Capability(type(Protocol)):  # type: ignore[misc]  # the metaclass of protocols has no public name
    """Checks whether an object has a capability, at a tenth of the time that Python 3.11 needs."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> None:
        super().__init__(name, bases, namespace)
        members = [*namespace, *inspect.get_annotations(cls)]
        # A driver may also inherit from a capability: then it is an ordinary class.
        cls._members = tuple(name for name in members if name[0] != "_") if Protocol in bases else None

    def __instancecheck__(cls, instance: object) -> bool:
        if cls._members is None:
            return bool(super().__instancecheck__(instance))
        return all(map(partial(hasattr, instance), cls._members))


@runtime_checkable
class SoftPower(Protocol, metaclass=Capability):
    """Optional: the driver can ask the machine's operating system to shut down."""

    def soft_power_off(self, node: Node) -> None:
        """Ask the operating system to shut down, unless the machine is off; it may take minutes, or never happen."""


@runtime_checkable
class ForcesOff(Protocol, metaclass=Capability):
    """Optional: for drivers whose ``set_power`` may send nothing, or hide a refusal, if the BMC says "off" already.

    A BMC may be wrong about that, so failover cuts the power all the same before it takes a machine for dead.
    """

    def force_off(self, node: Node) -> bool:
        """Cut the power whatever state the BMC reports; return whether it has accepted that.

        A refusal is not an error if the BMC reports ``OFF`` after it.
        """


@runtime_checkable
class SoftReboot(Protocol, metaclass=Capability):
    """Optional: the driver can restart the operating system without powering the machine off."""

    def soft_reboot(self, node: Node) -> None:
        """Ask the operating system to restart; ``BMC_REFUSED`` (permanent) if the BMC cannot. Not idempotent."""


@runtime_checkable
class NamesInterfaces(Protocol, metaclass=Capability):
    """Optional: the published names of the driver's own interfaces, by kind; they become its default ones.

    Without it, the power and management interfaces have the driver's name only. ``boot`` is for ``RamdiskBoot``, and
    ``inspect`` for ``OutOfBand``, which is never the default; both begin with one of ``core.interfaces.own_names``.
    """

    interfaces: Mapping[str, Sequence[str]]


@runtime_checkable
class StoresInterfaces(Protocol, metaclass=Capability):
    """Optional: other interfaces that the driver's nodes may have, by kind; the service only stores them."""

    stored_interfaces: Mapping[str, Sequence[str]]


@runtime_checkable
class BootDevices(Protocol, metaclass=Capability):
    """Optional: the boot devices that the driver supports; without it, all.

    ``default_boot_device``: the device from which machines of this driver boot by default; None if only the BMC knows.
    """

    boot_devices: Sequence[BootDevice]
    default_boot_device: BootDevice | None


@runtime_checkable
class ChangesPassword(Protocol, metaclass=Capability):
    """Optional: the driver can change the password of the account with which it logs in.

    The only property of the driver that ends in ``_password`` has it. ``validate`` rejects a password that is too long
    for the protocol. Both calls have ``inventory_timeout``. BMCs lock accounts, so neither sends a wrong password more
    often than it says here.
    """

    def log_in(self, node: Node) -> None:
        """Prove the node's password by a new login, never by a session that is open already; send it once.

        ``BMC_CREDENTIALS`` if the BMC has rejected it.
        """

    def set_password(self, node: Node, password: str) -> None:
        """Change the password of the node's account, and return only after a new login with ``password``.

        If no login with it succeeds, try to restore the old one, and repeat nothing. ``BMC_CREDENTIALS``: the BMC has
        rejected the node's present password. After any other error, the caller finds out by ``log_in`` which password
        is valid. Messages must contain neither password.
        """


@runtime_checkable
class ShowsRestarts(Protocol, metaclass=Capability):
    """Optional: the BMC may show by more than its power state that the machine was restarted.

    A BMC may accept a reset and ignore it, and its machine stays "on" in either case.
    """

    def boot_marks(self, node: Node) -> Document:
        """Return properties that the machine's next start changes, as JSON; empty if the BMC shows none."""

    def restarted_since(self, node: Node, marks: Document) -> bool | None:
        """Whether the machine was started or reset since then; None if the BMC does not show that.

        Return False only if this BMC would show it within seconds: the caller may then repeat the reset.
        """


@runtime_checkable
class ShowsBoot(Protocol, metaclass=Capability):
    """Optional: the BMC may say with its power state whether the machine is booting, without another request."""

    def power_and_boot(self, node: Node) -> tuple[Power, bool | None]:
        """Return the same as ``get_power``, and whether firmware or a boot loader runs; None if that is unknown."""


@runtime_checkable
class ClearsBootDevice(Protocol, metaclass=Capability):
    """Optional: the driver can unset a boot device that was set for one boot.

    Otherwise, if an inspection fails before its boot, the machine boots the ramdisk some day.
    """

    def clear_boot_device(self, node: Node, device: BootDevice) -> bool:
        """Unset ``device`` if it is set for one boot; return whether it was. Change nothing else."""


@runtime_checkable
class TellsMachines(Protocol, metaclass=Capability):
    """Optional: the BMC identifies its machine, so that no command reaches another machine at its address.

    If ``hardware.machine_identity.behind_bmc`` is another one, all other calls fail with ``BMC_OTHER_MACHINE``.
    """

    def machine(self, node: Node) -> Document:
        """Return ``serial`` and ``uuid`` of the machine, as far as the BMC reports them, whichever machine it is."""


@runtime_checkable
class RamdiskBoot(Protocol, metaclass=Capability):
    """Optional: the driver boots the ramdisk without PXE, for example by virtual media.

    Its boot interface is named ``DRIVER-virtual-media``; it is used if an image is configured and the node selects no
    other interface.
    """

    def insert_ramdisk(self, node: Node, image: Image) -> str | None:
        """Insert ``image`` and boot from it once; return a remark, or None.

        The remark informs operators that the machine boots, but not exactly as requested.
        """

    def eject_ramdisk(self, node: Node, image: Image) -> bool:
        """Eject ``image`` if it is inserted, and no other medium; return whether it was."""


@runtime_checkable
class AttachesMedia(Protocol, metaclass=Capability):
    """Optional: images can be attached to the machine's virtual drives, whatever they are for; nothing boots from them.

    The first two within ``inventory_timeout``. Not called while an inspection may use the drives.
    """

    def attach_medium(self, node: Node, device: MediaDevice, url: str) -> None:
        """Insert the image, which the BMC fetches, in place of what is in the drives of this kind."""

    def detach_media(self, node: Node, devices: Sequence[MediaDevice]) -> int:
        """Empty the drives of these kinds, or all if there are none; return how many had a medium."""

    def media(self, node: Node) -> Sequence[Medium]:
        """Return all virtual drives."""


class OutOfBandNic(msgspec.Struct, frozen=True):
    """A NIC as reported by the BMC; ``mac`` in lower case."""

    mac: str
    name: str
    enabled: bool = True


@runtime_checkable
class SeveralSystems(Protocol, metaclass=Capability):
    """Optional: one BMC may manage several systems, and the driver can list them."""

    def systems(self, node: Node) -> Sequence[str]:
        """Return the identifiers of all systems of the BMC, as ``driver_info`` takes them."""


@runtime_checkable
class OutOfBand(Protocol, metaclass=Capability):
    """Optional: out-of-band inspection, without a ramdisk. The inspect interface has the driver's name."""

    def inventory(self, node: Node) -> Document:
        """Return an inventory in the ramdisk's format, without what the BMC does not report.

        ``unread``, a list of texts, says which parts could not be read, and why; the service logs it.
        """


@runtime_checkable
class ListsNics(Protocol, metaclass=Capability):
    """Optional: the machine's NICs, from which ports are created before the ramdisk boots."""

    def nics(self, node: Node) -> Sequence[OutOfBandNic]:
        """Return the machine's NICs that the BMC reports."""


@runtime_checkable
class ReportsHealth(Protocol, metaclass=Capability):
    """Optional: health and firmware of a machine's parts, read after ``OutOfBand.inventory`` and never required."""

    def health(self, node: Node) -> Document:
        """Return ``firmware`` and ``health``, as far as both could be read in ``inventory_timeout``.

        ``firmware``: a list of ``component`` (bmc, nic, disk, ...), ``name`` and ``version``, and ``model``, ``vendor``
        and ``serial`` if known. ``health``: empty, or ``state`` (ok, warning, critical or None), ``complete``,
        ``parts`` (``component``, ``name``, ``health``; ``problem``, ``model``, ``serial``, ``life_left``), ``sensors``
        (``kind``, ``name``, ``health``; ``reading``, ``unit``), ``log`` (``created``, ``severity``, ``message``).
        """


@runtime_checkable
class ReportsAnswers(Protocol, metaclass=Capability):
    """Optional: the BMC's answers, for a report to the driver's developers (``ferroscope bmc report``)."""

    def report(self, node: Node, *, identities: bool) -> Document:
        """Return the answers, without secrets, within ``inventory_timeout``; ``identities``: what identifies, too."""


@runtime_checkable
class Discovers(Protocol, metaclass=Capability):
    """Optional: build the ``driver_info`` of discovered machines, instead of just ``DRIVER_address``."""

    def driver_info(self, address: str) -> Document:
        """Return ``driver_info`` for a BMC with this IP address. Never raises."""


@runtime_checkable
class Requirements(Protocol, metaclass=Capability):
    """Optional: requirements on a worker's host; ``ferroscope doctor`` reports what is missing.

    ``packages``: Python packages that only the first call imports. ``programs``: commands.
    """

    packages: Sequence[str]
    programs: Sequence[str]


@runtime_checkable
class KeepsConnections(Protocol, metaclass=Capability):
    """Optional: the driver has connections to close when the process ends."""

    def close(self) -> None:
        """Close all connections without long waits. Called once, after the last other call."""


@runtime_checkable
class Simulated(Protocol, metaclass=Capability):
    """Optional: the machines of this driver are simulated, so they are not expected on this host's network."""

    simulated: bool
