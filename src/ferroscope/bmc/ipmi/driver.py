"""The BMC driver for IPMI: power and boot device, through ipmitool.

As ``contracts.bmc`` requires, each call ends within its time limit, retries included, and raises only ``BmcError``,
without secrets. There are no persistent sessions: ipmitool opens one for each command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.ipmi import accounts, info
from ferroscope.bmc.ipmi.info import IpmiAccess
from ferroscope.bmc.ipmi.ipmitool import PROGRAM, CipherError, IpmiCommand, RefusedError, SilentError, StateError, run
from ferroscope.contracts.bmc import BootDevice, Power, Switch, problem, unsettled
from ferroscope.contracts.errors import BmcError
from ferroscope.core.boot import wanted_boot_mode
from ferroscope.core.interfaces import NOOP
from ferroscope.core.model import Document, Node
from ferroscope.remote import command_fence
from ferroscope.remote.addresses import check_bmc, not_allowed
from ferroscope.remote.resolver import ForbiddenAddressError, NoLookupError, UnresolvedError, resolve
from ferroscope.remote.retry import BmcRetries, Once
from ferroscope_client.core.reasons import UNAVAILABLE, Reason
from ferroscope_client.core.values import one_line

# In order of preference; 17 is SHA-256, 3 the SHA-1 of older BMCs.
_CIPHERS: Final = (17, 3)
_DEVICES: Final = {
    BootDevice.PXE: "pxe",
    BootDevice.DISK: "disk",
    BootDevice.CDROM: "cdrom",
    BootDevice.BIOS: "bios",
    BootDevice.SAFE: "safe",
}
_STATES: Final = {"Chassis Power is on": Power.ON, "Chassis Power is off": Power.OFF}
# Output of ``bootparam get 5`` -> device; of two with the same prefix the longer one is first.
_SELECTORS: Final = (
    ("Force PXE", BootDevice.PXE),
    ("Force Boot from default Hard-Drive, request Safe-Mode", BootDevice.SAFE),
    ("Force Boot from default Hard-Drive", BootDevice.DISK),
    ("Force Boot from CD/DVD", BootDevice.CDROM),
    ("Force Boot into BIOS Setup", BootDevice.BIOS),
)
_SELECTOR: Final = "Boot Device Selector"
_MAX_SHOWN_CHARACTERS: Final = 60
_ALWAYS: Final = "Options apply to all future boots"
_INVALID: Final = "Boot Flag Invalid"
# Without this, the BMC forgets the boot device if the machine has not booted within 60 seconds.
_KEEP_BOOT_DEVICE: Final = ("raw", "0x00", "0x08", "0x03", "0x08")
# All boot flags zero, and with them the bit that makes them valid: ``bootdev none`` leaves that one set
# (ipmitool/ipmitool#304).
_CLEAR_BOOT_DEVICE: Final = ("raw", "0x00", "0x08", "0x05", *(5 * ("0x00",)))
_MAX_REMEMBERED_BMCS: Final = 20_000


def power_of(output: str) -> Power:
    """Return the power state that ipmitool has printed; unknown unless it is exactly one of its two sentences."""
    states = {_STATES[line.strip()] for line in output.splitlines() if line.strip() in _STATES}
    return states.pop() if len(states) == 1 else Power.UNKNOWN


def boot_device_of(output: str) -> tuple[BootDevice | None, bool | None]:
    """Return the boot device that ipmitool has printed, and whether it is for all boots; None if none is valid.

    Firmware that has used the flags up may clear no more of them than the bit that makes them valid.
    """
    device = _selected_device(output)
    if device is None or _INVALID in output:
        return None, None
    return device, _ALWAYS in output


def _selected_device(output: str) -> BootDevice | None:
    return next((device for words, device in _SELECTORS if words in output), None)


class IpmiBmc:
    """Thread-safe."""

    properties: Mapping[str, str] = info.PROPERTIES
    packages: Sequence[str] = ()
    programs: Sequence[str] = (PROGRAM,)
    interfaces: Mapping[str, Sequence[str]] = {"management": ("ipmitool",), "power": ("ipmitool",)}
    stored_interfaces: Mapping[str, Sequence[str]] = {
        "console": ("ipmitool-socat",),
        "management": (NOOP,),
        "vendor": ("ipmitool",),
    }
    boot_devices: Sequence[BootDevice] = tuple(_DEVICES)
    default_boot_device: BootDevice | None = None

    def __init__(self, options: DriverOptions | None = None) -> None:
        self._options = options or DriverOptions()
        # The cipher suites of BMCs that do not support the preferred one.
        self._ciphers: dict[tuple[str, int], int] = {}
        # The address of a name that did not answer the last time.
        self._silent: dict[str, str] = {}

    def validate(self, node: Node) -> str | None:
        return problem(self._read_access, node.driver_info)

    def get_power(self, node: Node) -> Power:
        return self._power(node, self._time_left())

    def _power(self, node: Node, time_left: Callable[[], float]) -> Power:
        return power_of(self._ask(node, IpmiCommand("power state", ("chassis", "power", "status")), time_left))

    def set_power(self, node: Node, power: Switch) -> None:
        """Set the power state, whatever it is."""
        self._switch(node, str(power), "on" if power is Power.ON else "off", power, self._time_left())

    def force_off(self, node: Node) -> bool:
        """Cut the power; return whether the BMC has accepted that, which may refuse it if its machine is off."""
        return self._switch(node, str(Power.OFF), "off", Power.OFF, self._time_left())

    def reboot(self, node: Node) -> None:
        """Reset the machine; power on one that is off: some BMCs ignore a reset then (bmc-toolbox/bmclib#211)."""
        time_left = self._time_left()
        power = self._power(node, time_left)
        if not power.settled:
            raise unsettled("reboot", power)
        if power is Power.ON:
            self._switch(node, "reboot", "reset", None, time_left)
        else:
            self._switch(node, "reboot", "on", Power.ON, time_left)

    def soft_power_off(self, node: Node) -> None:
        """Have the operating system shut down, by ACPI."""
        time_left = self._time_left()
        if self._power(node, time_left) is not Power.OFF:
            self._switch(node, "soft power off", "soft", Power.OFF, time_left)

    def _switch(
        self, node: Node, action: str, word: str, refused_in: Power | None, time_left: Callable[[], float]
    ) -> bool:
        """Run a power command, which is done also if the BMC refuses it because its machine is in ``refused_in``.

        Return whether the BMC has accepted it.
        """
        try:
            words, success = ("chassis", "power", word), "Chassis Power Control"
            self._ask(node, IpmiCommand(action, words, success, once=word == "reset"), time_left)
        except StateError as exc:
            power = self._power(node, time_left)
            if power is not refused_in:
                raise BmcError(f"{exc}; power state: {power}", transient=True, reason=exc.reason) from None
            return False
        return True

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` once or always, in the boot mode of the node's capabilities; verified afterwards."""
        if device not in _DEVICES:
            message = f"IPMI does not support boot device {device!r}; supported: {', '.join(_DEVICES)}"
            raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
        options = ["persistent"] if persistent else []
        if wanted_boot_mode(node) == "uefi":
            options.append("efiboot")
        time_left = self._time_left()
        if info.read(node.driver_info).keep_boot_device:
            with suppress(RefusedError):  # a BMC that does not support it is left as it is
                self._ask(node, IpmiCommand("boot device", _KEEP_BOOT_DEVICE), time_left)
        words = ("chassis", "bootdev", _DEVICES[device], *([f"options={','.join(options)}"] if options else []))
        self._ask(node, IpmiCommand("boot device", words, success="Set Boot Device to"), time_left)
        if (other_device := self._read_other_device(node, device, time_left)) is not None:
            message = f"the BMC accepted boot device {device}, and still shows {other_device}"
            raise BmcError(message, transient=True, reason=Reason.BMC_REFUSED)

    def _read_other_device(self, node: Node, device: BootDevice, time_left: Callable[[], float]) -> str | None:
        """Return the other device that the BMC shows, valid or not; None if it is this one, or cannot be read."""
        try:
            output = self._boot_flags(node, time_left)
        except RefusedError:
            return None
        if _SELECTOR not in output or _selected_device(output) is device:
            return None
        return one_line(output.partition(_SELECTOR)[2].partition("\n")[0].strip(" :"), _MAX_SHOWN_CHARACTERS)

    def clear_boot_device(self, node: Node, device: BootDevice) -> bool:
        """Clear the boot flags if they are this device for one boot; return whether they were valid."""
        time_left = self._time_left()
        output = self._boot_flags(node, time_left)
        # Also if they are not valid: either they are used up, or this BMC never says that they are, as OpenIPMI's.
        if _selected_device(output) is not device or _ALWAYS in output:
            return False
        self._ask(node, IpmiCommand("boot device", _CLEAR_BOOT_DEVICE), time_left)
        with suppress(RefusedError):
            if boot_device_of(self._boot_flags(node, time_left)) == (device, False):
                message = f"the BMC accepted that the boot device is cleared, and still shows {device}"
                raise BmcError(message, transient=True, reason=Reason.BMC_REFUSED)
        return _INVALID not in output

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        return boot_device_of(self._boot_flags(node, self._time_left()))

    def _boot_flags(self, node: Node, time_left: Callable[[], float]) -> str:
        return self._ask(node, IpmiCommand("boot device", ("chassis", "bootparam", "get", "5")), time_left)

    def log_in(self, node: Node) -> None:
        """Open a session with the node's password: each command does."""
        time_left = self._time_left(self._options.inventory_timeout)
        self._ask(_front_node(node), IpmiCommand("login", ("chassis", "power", "status")), time_left)

    def set_password(self, node: Node, password: str) -> None:
        """Set the password of the user, and open a session with it; see ``accounts``."""
        ask = partial(self._ask, time_left=self._time_left(self._options.inventory_timeout))
        accounts.change(ask, _front_node(node), password, self._options.stop)

    def _read_access(self, driver_info: Document) -> IpmiAccess:
        access = info.read(driver_info)
        check_bmc(access.host.partition("%")[0], self._options.limits.networks)
        return access

    def _resolve_address(self, access: IpmiAccess, seconds: float) -> IpmiAccess:
        """Return the access with the BMC's resolved address, so that no name is resolved a second time."""
        if not self._options.limits.networks.is_limited and command_fence.limit() is None:
            return access
        try:
            addresses = resolve(access.host, seconds, self._options.limits.networks)
        except ForbiddenAddressError:
            raise not_allowed(access.host) from None
        except UnresolvedError as exc:
            is_waiting = isinstance(exc, NoLookupError)
            reason = Reason.BMC_BUSY if is_waiting else Reason.BMC_NAME_UNKNOWN
            raise BmcError(str(exc), transient=True, reason=reason, waits=is_waiting) from None
        silent = self._silent.get(access.host, "")
        return msgspec.structs.replace(
            access, host=addresses[(addresses.index(silent) + 1) % len(addresses) if silent in addresses else 0]
        )

    def _pass_over(self, name: str, address: str) -> None:
        """Have the next try, in this call or a later one, begin with another address of the name, if it has several."""
        self._silent.pop(name, None)
        if address != name and len(self._silent) < _MAX_REMEMBERED_BMCS:
            self._silent[name] = address

    def _time_left(self, seconds: float | None = None) -> Callable[[], float]:
        """Return the time that is left for a call that begins now, however many commands it needs."""
        end = time.monotonic() + (seconds or self._options.command_timeout)
        return lambda: max(0.01, end - time.monotonic())

    def _ask(self, node: Node, command: IpmiCommand, time_left: Callable[[], float]) -> str:
        """Run one command; retry transient errors while there is time."""
        named_access, once = self._read_access(node.driver_info), Once()
        retries = BmcRetries(time_left, self._options.stop, self._options.command_tries, once)
        while True:
            try:
                access = self._resolve_address(named_access, time_left())
                once.sent = command.once
                return self._attempt(access, command, time_left)
            except BmcError as error:
                if isinstance(error, SilentError):
                    self._pass_over(named_access.host, access.host)
                retries.wait_after(error)

    def _attempt(self, access: IpmiAccess, command: IpmiCommand, time_left: Callable[[], float]) -> str:
        """Try the cipher suite that has worked, or the stronger one, and then the other one.

        A BMC may refuse a suite that it does not support, or not answer at all (ipmitool/ipmitool#29).
        """
        if access.cipher is not None or access.interface != "lanplus":
            return run(access, access.cipher or 0, command, time_left())
        key = (access.host, access.port)
        first = self._ciphers.get(key, _CIPHERS[0])
        second = next(cipher for cipher in _CIPHERS if cipher != first)
        try:
            return self._run_and_remember(key, first, partial(run, access, first, command, time_left() / 2))
        except (CipherError, SilentError) as exc:
            if command.once and isinstance(exc, SilentError):  # the suite has just worked: the answer may be lost
                raise
            try:
                return self._run_and_remember(key, second, partial(run, access, second, command, time_left()))
            except CipherError:
                raise exc from None

    def _run_and_remember(self, key: tuple[str, int], cipher: int, call: Callable[[], str]) -> str:
        """Return what ``call`` returns, and remember the cipher suite if the BMC has answered."""
        try:
            output = call()
        except (CipherError, SilentError):
            raise
        except BmcError as exc:
            if exc.reason not in UNAVAILABLE:
                self._remember(key, cipher)
            raise
        self._remember(key, cipher)
        return output

    def _remember(self, key: tuple[str, int], cipher: int) -> None:
        if cipher == _CIPHERS[0]:
            self._ciphers.pop(key, None)
        elif len(self._ciphers) < _MAX_REMEMBERED_BMCS:
            self._ciphers[key] = cipher


def _front_node(node: Node) -> Node:
    """Return the node of the BMC that asks for the password: with bridging, that is the one in front."""
    return msgspec.structs.replace(node, driver_info=node.driver_info | {"ipmi_bridging": "no"})
