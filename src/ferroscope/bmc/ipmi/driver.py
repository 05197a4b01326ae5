"""The Bmc port over IPMI: power and boot device, through ipmitool.

It holds to the port's contract: each call ends by its deadline, retries included, and raises
``BmcError`` alone, with no secret in it. It knows no sessions: ipmitool opens one for each command.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ferroscope.bmc.drivers import DriverOptions, check_place, not_allowed, problem
from ferroscope.bmc.ipmi import info
from ferroscope.bmc.ipmi.info import Access
from ferroscope.bmc.ipmi.ipmitool import PROGRAM, CipherError, run
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.boot import wanted_boot_mode
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.remote import command_fence
from ferroscope.remote.resolver import ForbiddenAddressError, UnresolvedError, resolve
from ferroscope.remote.retry import while_there_is_time

# Best first; 17 is SHA-256, 3 the SHA-1 of older BMCs.
_CIPHERS: Final = (17, 3)
_DEVICES: Final = {
    BootDevice.PXE: "pxe",
    BootDevice.DISK: "disk",
    BootDevice.CDROM: "cdrom",
    BootDevice.BIOS: "bios",
    BootDevice.SAFE: "safe",
}
# What ``bootparam get 5`` says -> device; the longer first where one begins like another.
_SELECTORS: Final = (
    ("Force PXE", BootDevice.PXE),
    ("Force Boot from default Hard-Drive, request Safe-Mode", BootDevice.SAFE),
    ("Force Boot from default Hard-Drive", BootDevice.DISK),
    ("Force Boot from CD/DVD", BootDevice.CDROM),
    ("Force Boot into BIOS Setup", BootDevice.BIOS),
)
# Else the BMC forgets the boot device when the machine has not booted within 60 seconds.
_KEEP_BOOT_DEVICE: Final = ("raw", "0x00", "0x08", "0x03", "0x08")
_REMEMBERED: Final = 20_000


class IpmiBmc:
    """Thread-safe."""

    properties: Mapping[str, str] = info.PROPERTIES
    packages: Sequence[str] = ()
    programs: Sequence[str] = (PROGRAM,)

    def __init__(self, options: DriverOptions | None = None) -> None:
        self._options = options or DriverOptions()
        self._ciphers: dict[tuple[str, int], int] = {}  # which one a BMC knows, where it is not the best

    def validate(self, node: Node) -> str | None:
        """Return what is wrong with ``driver_info``, in a sentence, or None. Asks no BMC."""
        return problem(self._read, node.driver_info)

    def get_power(self, node: Node) -> Power:
        """Return the real power state."""
        said = self._ask(node, "power state", "chassis", "power", "status")
        if "Chassis Power is on" in said:
            return Power.ON
        if "Chassis Power is off" in said:
            return Power.OFF
        raise BmcError(f"the BMC of {node.uuid} did not say its power state", transient=True)

    def set_power(self, node: Node, power: Power) -> None:
        """Command the power state; a BMC takes it too where it is so already."""
        self._ask(node, str(power), "chassis", "power", "on" if power is Power.ON else "off")

    def reboot(self, node: Node) -> None:
        """Reset the machine; a BMC refuses that where it is off, so then it is powered on."""
        on = self.get_power(node) is Power.ON
        self._ask(node, "reboot", "chassis", "power", "reset" if on else "on")

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` the next time, or always, in the boot mode of the node's capabilities."""
        if device not in _DEVICES:
            known = ", ".join(_DEVICES)
            message = f"IPMI knows no boot device {device}; it knows {known}"
            raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
        options = ["persistent"] if persistent else []
        if wanted_boot_mode(node) == "uefi":
            options.append("efiboot")
        if info.read(node.driver_info).keep_boot_device:
            self._keep_boot_device(node)
        words = ["chassis", "bootdev", _DEVICES[device], *([f"options={','.join(options)}"] if options else [])]
        self._ask(node, "boot device", *words)

    def _keep_boot_device(self, node: Node) -> None:
        """Let the boot device outlive the 60 seconds; a BMC that does not know how goes without."""
        try:
            self._ask(node, "boot device", *_KEEP_BOOT_DEVICE)
        except BmcError as exc:
            if exc.reason is not Reason.BMC_REFUSED:
                raise

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        """Return device and persistence; None where none is set."""
        said = self._ask(node, "boot device", "chassis", "bootparam", "get", "5")
        device = next((device for words, device in _SELECTORS if words in said), None)
        return device, None if device is None else "Options apply to all future boots" in said

    def _read(self, given: Document) -> Access:
        access = info.read(given)
        check_place(access.host.partition("%")[0], self._options.limits)
        return access

    def _at_allowed(self, access: Access, seconds: float) -> Access:
        """Return where the BMC is at this moment, by its address; no name is looked up for a second time."""
        if not self._options.limits.networks and command_fence.limit() is None:
            return access
        try:
            return msgspec.structs.replace(access, host=resolve(access.host, seconds, self._options.limits.networks)[0])
        except ForbiddenAddressError:
            raise not_allowed(access.host) from None
        except UnresolvedError as exc:
            raise BmcError(str(exc), transient=True, reason=Reason.BMC_UNREACHABLE) from None

    def _ask(self, node: Node, what: str, *words: str) -> str:
        """Run one command; try again what is transient, while there is time."""
        named = self._read(node.driver_info)
        end = time.monotonic() + self._options.command_timeout

        def left() -> float:
            return max(0.0, end - time.monotonic())

        def attempt() -> str:
            access = self._at_allowed(named, left())
            return self._attempt(access, words, what, left())

        return while_there_is_time(attempt, left, self._options.stop, self._options.command_tries)

    def _attempt(self, access: Access, words: tuple[str, ...], what: str, seconds: float) -> str:
        if access.cipher is not None:
            return run(access, access.cipher, words, what, max(seconds, 0.01))
        key = (access.host, access.port)
        known = self._ciphers.get(key, _CIPHERS[0])
        try:
            return run(access, known, words, what, max(seconds, 0.01))
        except CipherError:
            if known != _CIPHERS[0]:
                self._ciphers.pop(key, None)
                raise
        said = run(access, _CIPHERS[1], words, what, max(seconds, 0.01))
        if len(self._ciphers) < _REMEMBERED:
            self._ciphers[key] = _CIPHERS[1]
        return said
