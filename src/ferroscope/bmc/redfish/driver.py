"""The BMC driver for Redfish: power, boot device, virtual media, and the hardware inventory of the BMC.

As ``contracts.bmc`` requires, each call ends within its time limit, retries included, and raises only ``BmcError``,
without secrets. This module imports little, because the api validates ``driver_info`` with it; sushy is imported with
the first call to a BMC.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from ferroscope.bmc.drivers import DriverOptions, problem
from ferroscope.bmc.redfish import info
from ferroscope.contracts.bmc import BootDevice, OutOfBandNic, Power, Switch
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.images import Image, MediaDevice, Medium
from ferroscope.core.boot import wanted_boot_mode
from ferroscope.core.interfaces import NOOP, UEFI_HTTP
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.remote.addresses import not_allowed
from ferroscope.remote.command_fence import TooLateError
from ferroscope.remote.deadline import Deadline
from ferroscope.remote.resolver import ForbiddenAddressError
from ferroscope.remote.retry import Once, retry_bmc_call

if TYPE_CHECKING:
    from ferroscope.bmc.redfish.session import Clients

T = TypeVar("T")

# How often an inventory is read anew because of a part that may be readable later; then it is left out.
_PATIENT_TRIES: Final = 2
# So many new sessions in a row may be ended by the BMC before a call is given up.
_MAX_LOST_SESSIONS: Final = 3


class RedfishBmc:
    """Thread-safe."""

    properties: Mapping[str, str] = info.PROPERTIES
    packages: Sequence[str] = ("sushy", "requests")
    programs: Sequence[str] = ()
    boot_devices: Sequence[BootDevice] = (BootDevice.PXE, BootDevice.DISK, BootDevice.CDROM, BootDevice.BIOS)
    default_boot_device: BootDevice | None = None
    stored_interfaces: Mapping[str, Sequence[str]] = {
        "bios": ("redfish",),
        "boot": (UEFI_HTTP,),
        "console": ("redfish-graphical", "ipmitool-socat"),
        "firmware": ("redfish",),
        "management": (NOOP,),
        "raid": ("redfish",),
        "vendor": ("redfish",),
    }

    def __init__(self, options: DriverOptions | None = None) -> None:
        self._options = options or DriverOptions()
        self._opening = threading.Lock()

    @cached_property
    def _clients(self) -> Clients:
        try:
            from ferroscope.bmc.redfish.session import Clients
        except ModuleNotFoundError as exc:
            message = f"the Python package {exc.name}, which the redfish driver needs, is not installed on this worker"
            raise BmcError(message, transient=False, reason=Reason.DRIVER_INCOMPLETE) from None
        return Clients(allowed=self._options.limits.networks)

    def validate(self, node: Node) -> str | None:
        """Return what is wrong with ``driver_info``, or None. Does not contact the BMC."""
        return problem(partial(info.read, limits=self._options.limits), node.driver_info)

    def driver_info(self, address: str) -> Document:
        """Return the ``driver_info`` of a discovered machine whose BMC has this IP address."""
        return {"redfish_address": f"https://[{address}]" if ":" in address else f"https://{address}"}

    def get_power(self, node: Node) -> Power:
        """Return the system's ``PowerState``."""
        power: Power = self._call(node, "power state", lambda commands, system: commands.power(system))
        return power

    def power_and_boot(self, node: Node) -> tuple[Power, bool | None]:
        """Return the system's ``PowerState``, and whether ``BootProgress`` shows a boot."""
        state: tuple[Power, bool | None] = self._call(
            node, "power state", lambda commands, system: (commands.power(system), commands.is_booting(system))
        )
        return state

    def set_power(self, node: Node, power: Switch) -> None:
        """Set the power state if it differs; the machine may follow later."""
        self._call(node, str(power), lambda commands, system: commands.set_power(system, power))

    def force_off(self, node: Node) -> bool:
        """Cut the power by ``ForceOff``, also if the BMC says that it is off; return whether it was accepted."""
        accepted: bool = self._call(node, "power off", lambda commands, system: commands.force_off(system))
        return accepted

    def reboot(self, node: Node) -> None:
        """Reset the machine by ``ForceRestart``; other resets are power cycles, or may never happen."""
        once = Once()
        self._call(node, "reboot", lambda commands, system: commands.reboot(system, once), once=once)

    def soft_power_off(self, node: Node) -> None:
        """Have the operating system shut down, by ``GracefulShutdown``."""
        self._call(node, "soft power off", lambda commands, system: commands.soft_power_off(system))

    def soft_reboot(self, node: Node) -> None:
        """Have the operating system restart, by ``GracefulRestart``."""
        once = Once()
        self._call(node, "soft rebooting", lambda commands, system: commands.soft_reboot(system, once), once=once)

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` once or always, in the boot mode of the node's capabilities."""
        mode = wanted_boot_mode(node)
        self._call(
            node,
            "boot device",
            lambda commands, system: commands.set_boot_device(system, device, persistent=persistent, mode=mode),
        )

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        """Return device and persistence; None if the BMC does not report them."""
        boot_device: tuple[BootDevice | None, bool | None] = self._call(
            node, "boot device", lambda commands, system: commands.boot_device(system)
        )
        return boot_device

    def clear_boot_device(self, node: Node, device: BootDevice) -> bool:
        """Disable the override if it is this device for one boot; return whether it was."""
        was_set: bool = self._call(
            node, "boot device", lambda commands, system: commands.clear_boot_device(system, device)
        )
        return was_set

    def boot_marks(self, node: Node) -> Document:
        """Return ``LastResetTime`` and ``BootProgress``, as far as the BMC has them."""
        marks: Document = self._call(node, "boot progress", lambda commands, system: commands.boot_marks(system))
        return marks

    def restarted_since(self, node: Node, marks: Document) -> bool | None:
        """Whether one of them shows a restart; see ``restarts``."""
        restarted: bool | None = self._call(
            node, "boot progress", lambda commands, system: commands.restarted_since(system, marks)
        )
        return restarted

    def insert_ramdisk(self, node: Node, image: Image) -> str | None:
        """Insert the image and boot from it once; return a remark if there is no drive for the parameters."""
        tries: list[Any] = []  # one insertion for all tries of the call: it knows what was sent

        def insert(commands: Any, system: Any) -> str | None:
            if not tries:
                tries.append(commands.media.Insertion(image, wanted_boot_mode(node)))
            remark: str | None = tries[0].run(system)
            return remark

        return self._call(node, "virtual media", insert, self._options.inventory_timeout)

    def eject_ramdisk(self, node: Node, image: Image) -> bool:
        """Eject the image if it is inserted; return whether it was."""
        tries = count()
        was_in: bool = self._call(
            node,
            "virtual media",
            lambda commands, system: commands.media.eject(system, image, patient=next(tries) < _PATIENT_TRIES),
            self._options.inventory_timeout,
        )
        return was_in

    def attach_medium(self, node: Node, device: MediaDevice, url: str) -> None:
        """Insert an image into the last drive of its kind, after all drives of this kind were emptied."""
        tries: list[Any] = []

        def attach(commands: Any, system: Any) -> None:
            if not tries:
                tries.append(commands.attached_media.Attachment(device, url))
            tries[0].run(system)

        self._call(node, "virtual media", attach, self._options.inventory_timeout)

    def detach_media(self, node: Node, devices: Sequence[MediaDevice]) -> int:
        """Empty the drives of these kinds; return how many had a medium."""
        tries = count()
        ejected: int = self._call(
            node,
            "virtual media",
            lambda commands, system: commands.attached_media.detach(
                system, devices, patient=next(tries) < _PATIENT_TRIES
            ),
            self._options.inventory_timeout,
        )
        return ejected

    def media(self, node: Node) -> Sequence[Medium]:
        """Return the virtual drives of the system and of its managers."""
        tries = count()
        drives: Sequence[Medium] = self._call(
            node,
            "virtual media",
            lambda commands, system: commands.attached_media.list_media(system, patient=next(tries) < _PATIENT_TRIES),
        )
        return drives

    def log_in(self, node: Node) -> None:
        """Open a session with the node's password, which is sent once, and close it."""
        self._about_account(node, "login", None)

    def set_password(self, node: Node, password: str) -> None:
        """Write the account's password, prove it by a new login, and write the old one again if that fails."""
        self._about_account(node, "change of the password", password)

    def _about_account(self, node: Node, action: str, password: str | None) -> None:
        """Prove the node's password, or change it to ``password``; nothing is tried twice."""
        with self._opening:
            _ = self._clients  # they silence sushy's log, and say what is not installed
        from ferroscope.bmc.redfish import account
        from ferroscope.bmc.redfish.failures import final_error, scrub, translate

        access = info.read(node.driver_info, self._options.limits)
        new = access if password is None else msgspec.structs.replace(access, password=password)
        with Deadline(self._options.inventory_timeout) as deadline:
            try:
                session = account.Login(access, self._options.limits.networks, node)
                if password is None:
                    account.prove(session)
                else:
                    account.change(session, new, self._options.stop)
            except TooLateError:
                raise
            except BmcError as exc:
                exc.args = (scrub(str(exc), access, new.password),)
                raise
            except ForbiddenAddressError:
                raise not_allowed(urlsplit(access.url).hostname or "") from None
            except Exception as exc:  # noqa: BLE001  # the boundary: sushy raises what its parsers stumble over
                raise translate(
                    final_error(exc, deadline), access, action, deadline.seconds, new=new.password
                ) from None

    def nics(self, node: Node) -> Sequence[OutOfBandNic]:
        """Return the NICs listed in the system's Ethernet interfaces."""
        tries = count()
        return self._call(
            node,
            "NICs",
            lambda commands, system: commands.inventory.nics(system, patient=next(tries) < _PATIENT_TRIES),
            self._options.inventory_timeout,
        )

    def inventory(self, node: Node) -> Document:
        """Return an inventory in the format of the ramdisk's; ``unread`` lists parts that could not be read."""
        tries = count()
        return self._call(
            node,
            "inventory",
            lambda commands, system: commands.inventory.collect(system, patient=next(tries) < _PATIENT_TRIES),
            self._options.inventory_timeout,
        )

    def health(self, node: Node) -> Document:
        """Return firmware and health, as far as the BMC reports them in time."""
        return self._call(
            node, "health", lambda commands, system: commands.health.collect(system), self._options.inventory_timeout
        )

    def machine(self, node: Node) -> Document:
        """Return serial number and UUID of the system."""
        return self._call(
            node, "identity", lambda commands, system: commands.identity.read_identity(system), checked=False
        )

    def systems(self, node: Node) -> Sequence[str]:
        """Return the paths of all systems of the service."""
        return self._call(
            node,
            "systems",
            lambda commands, service: commands.systems(service),
            self._options.inventory_timeout,
            whole=True,
        )

    def report(self, node: Node, *, identities: bool) -> Document:
        """Return what the BMC answers, without secrets."""
        from ferroscope.bmc.redfish.failures import translate
        from ferroscope.bmc.redfish.report import collect

        access = info.read(node.driver_info, self._options.limits)
        with Deadline(self._options.inventory_timeout) as deadline:
            try:
                return collect(access, self._options.limits.networks, self._options.stop.wait, identities=identities)
            except BmcError:
                raise
            except ForbiddenAddressError:
                raise not_allowed(urlsplit(access.url).hostname or "") from None
            except Exception as exc:  # noqa: BLE001  # the boundary: connections fail in any way
                raise translate(exc, access, "report", deadline.seconds) from None

    def close(self) -> None:
        """Log out of the BMCs, as far as they answer at once."""
        if "_clients" in self.__dict__:
            self._clients.close()

    def _call(
        self,
        node: Node,
        action: str,
        work: Callable[[Any, Any], T],
        seconds: float | None = None,
        *,
        whole: bool = False,
        checked: bool = True,
        once: Once | None = None,
    ) -> T:
        """Call ``work`` for the node's system, or the ``whole`` service; retry transient errors while there is time.

        ``checked``: not for the system of another machine.
        """
        access = info.read(node.driver_info, self._options.limits)
        with self._opening:  # cached_property is not thread-safe
            clients = self._clients
        options = self._options
        with Deadline(seconds or options.command_timeout, options.longest_call) as deadline:
            expected = node if checked else None
            attempt = partial(
                self._attempt, clients, access, action, work, deadline, whole=whole, expected_node=expected
            )
            return retry_bmc_call(attempt, deadline.remaining, options.stop, options.command_tries, once)

    def _attempt(
        self,
        clients: Clients,
        access: info.Access,
        action: str,
        work: Callable[[Any, Any], T],
        deadline: Deadline,
        *,
        whole: bool,
        expected_node: Node | None,
    ) -> T:
        """Try once, and again with another session where the BMC does not know one any more.

        A BMC with few sessions may end one as soon as it was opened, when others log in. Its password is known to be
        right, so nobody is locked out by logging in again.
        """
        from ferroscope.bmc.redfish import commands
        from ferroscope.bmc.redfish.failures import final_error, is_rejected_login, translate

        lost = 0
        while True:
            client = clients.get(access)
            was_used, is_known = not client.fresh, access.system in client.known_systems
            try:
                with client.use() as root:
                    target = root if whole else commands.system(root, access)
                    if not whole:
                        client.known_systems.add(access.system)
                        is_known = False  # what lies below it may be missing for good
                        if expected_node is not None:
                            commands.identity.check(target, access, expected_node)
                    return work(commands, target)
            except (BmcError, TooLateError):
                raise
            except ForbiddenAddressError:
                raise not_allowed(urlsplit(access.url).hostname or "") from None
            except Exception as exc:  # noqa: BLE001  # the boundary: sushy raises what its parsers stumble over
                had_session = client.has_session
                if is_rejected_login(exc):
                    clients.drop(access, client)
                    lost += not was_used
                    if (was_used or (had_session and lost < _MAX_LOST_SESSIONS)) and not deadline.has_expired:
                        continue
                error, seconds = final_error(exc, deadline), deadline.seconds
                raise translate(error, access, action, seconds, is_known=is_known, logged_in=had_session) from None


class IdracBmc(RedfishBmc):
    """The same under the names that clients of Ironic use for Dell machines: hardware type ``idrac``."""

    interfaces: Mapping[str, Sequence[str]] = {
        "boot": ("idrac-redfish-virtual-media",),
        "inspect": ("idrac-redfish",),
        "management": ("idrac-redfish",),
        "power": ("idrac-redfish", "redfish"),
    }
    stored_interfaces: Mapping[str, Sequence[str]] = {
        "bios": ("idrac-redfish", "redfish"),
        "boot": (UEFI_HTTP,),
        "console": ("redfish-graphical", "ipmitool-socat"),
        "firmware": ("redfish",),
        "raid": ("idrac-redfish",),
        "vendor": ("idrac-redfish", "redfish"),
    }
