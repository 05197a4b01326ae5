"""The BMC driver for IPMI: power and boot device, through ipmitool.

As ``contracts.bmc`` requires, each call ends within its time limit, retries included, and raises only ``BmcError``,
without secrets. There are no persistent sessions: ipmitool opens one for each command.
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
from ferroscope.remote.retry import retry_bmc_call

# In order of preference; 17 is SHA-256, 3 the SHA-1 of older BMCs.
_CIPHERS: Final = (17, 3)
_DEVICES: Final = {
    BootDevice.PXE: "pxe",
    BootDevice.DISK: "disk",
    BootDevice.CDROM: "cdrom",
    BootDevice.BIOS: "bios",
    BootDevice.SAFE: "safe",
}
# Output of ``bootparam get 5`` -> device; of two with the same prefix the longer one is first.
_SELECTORS: Final = (
    ("Force PXE", BootDevice.PXE),
    ("Force Boot from default Hard-Drive, request Safe-Mode", BootDevice.SAFE),
    ("Force Boot from default Hard-Drive", BootDevice.DISK),
    ("Force Boot from CD/DVD", BootDevice.CDROM),
    ("Force Boot into BIOS Setup", BootDevice.BIOS),
)
# Without this, the BMC forgets the boot device if the machine has not booted within 60 seconds.
_KEEP_BOOT_DEVICE: Final = ("raw", "0x00", "0x08", "0x03", "0x08")
_REMEMBERED: Final = 20_000


class IpmiBmc:
    """Thread-safe."""

    properties: Mapping[str, str] = info.PROPERTIES
    packages: Sequence[str] = ()
    programs: Sequence[str] = (PROGRAM,)
    interfaces: Mapping[str, Sequence[str]] = {"management": ("ipmitool",), "power": ("ipmitool",)}
    boot_devices: Sequence[BootDevice] = tuple(_DEVICES)
    default_boot_device: BootDevice | None = None

    def __init__(self, options: DriverOptions | None = None) -> None:
        self._options = options or DriverOptions()
        self._ciphers: dict[
            tuple[str, int], int
        ] = {}  # the cipher suites of BMCs that do not support the preferred one

    def validate(self, node: Node) -> str | None:
        """Return what is wrong with ``driver_info``, or None. Does not contact the BMC."""
        return problem(self._read, node.driver_info)

    def get_power(self, node: Node) -> Power:
        """Return the actual power state."""
        output = self._ask(node, "power state", "chassis", "power", "status")
        if "Chassis Power is on" in output:
            return Power.ON
        if "Chassis Power is off" in output:
            return Power.OFF
        raise BmcError(f"the BMC of {node.uuid} did not report a power state", transient=True)

    def set_power(self, node: Node, power: Power) -> None:
        """Set the power state; a BMC also accepts the state it is in."""
        self._ask(node, str(power), "chassis", "power", "on" if power is Power.ON else "off")

    def reboot(self, node: Node) -> None:
        """Reset the machine; if it is off, the BMC refuses that, and it is powered on instead."""
        on = self.get_power(node) is Power.ON
        self._ask(node, "reboot", "chassis", "power", "reset" if on else "on")

    def soft_power_off(self, node: Node) -> None:
        """Have the operating system shut down, by ACPI; a BMC refuses that if the machine is off."""
        if self.get_power(node) is Power.ON:
            self._ask(node, "soft power off", "chassis", "power", "soft")

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` once or always, in the boot mode of the node's capabilities."""
        if device not in _DEVICES:
            known = ", ".join(_DEVICES)
            message = f"IPMI does not support boot device {device!r}; supported: {known}"
            raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
        options = ["persistent"] if persistent else []
        if wanted_boot_mode(node) == "uefi":
            options.append("efiboot")
        if info.read(node.driver_info).keep_boot_device:
            self._keep_boot_device(node)
        words = ["chassis", "bootdev", _DEVICES[device], *([f"options={','.join(options)}"] if options else [])]
        self._ask(node, "boot device", *words)

    def _keep_boot_device(self, node: Node) -> None:
        """Disable the 60-second time-out of the boot device; BMCs that do not support that are left as they are."""
        try:
            self._ask(node, "boot device", *_KEEP_BOOT_DEVICE)
        except BmcError as exc:
            if exc.reason is not Reason.BMC_REFUSED:
                raise

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        """Return device and persistence; None if none is set."""
        output = self._ask(node, "boot device", "chassis", "bootparam", "get", "5")
        device = next((device for words, device in _SELECTORS if words in output), None)
        return device, None if device is None else "Options apply to all future boots" in output

    def _read(self, given: Document) -> Access:
        access = info.read(given)
        check_place(access.host.partition("%")[0], self._options.limits)
        return access

    def _at_allowed(self, access: Access, seconds: float) -> Access:
        """Return the access with the BMC's resolved address, so that no name is resolved a second time."""
        if not self._options.limits.networks and command_fence.limit() is None:
            return access
        try:
            return msgspec.structs.replace(access, host=resolve(access.host, seconds, self._options.limits.networks)[0])
        except ForbiddenAddressError:
            raise not_allowed(access.host) from None
        except UnresolvedError as exc:
            raise BmcError(str(exc), transient=True, reason=Reason.BMC_UNREACHABLE) from None

    def _ask(self, node: Node, what: str, *words: str) -> str:
        """Run one command; retry transient errors while there is time."""
        named = self._read(node.driver_info)
        end = time.monotonic() + self._options.command_timeout

        def left() -> float:
            return max(0.0, end - time.monotonic())

        def attempt() -> str:
            access = self._at_allowed(named, left())
            return self._attempt(access, words, what, left())

        return retry_bmc_call(attempt, left, self._options.stop, self._options.command_tries)

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
        output = run(access, _CIPHERS[1], words, what, max(seconds, 0.01))
        if len(self._ciphers) < _REMEMBERED:
            self._ciphers[key] = _CIPHERS[1]
        return output
