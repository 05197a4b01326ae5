"""The BMC driver for Redfish: the fields of ``driver_info``, and the calls of ``contracts.bmc``.

Each call ends within its time limit, retries included, and raises only ``BmcError``, without secrets. The names of the
fields are those of the Bare Metal service's redfish driver.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from ferroscope.bmc import BmcLimits, DriverOptions, ca_path, redfish, text_field, wrong
from ferroscope.contracts.bmc import BootDevice, OutOfBandNic, Power, Switch, problem
from ferroscope.contracts.errors import BmcError
from ferroscope.core.boot import wanted_boot_mode
from ferroscope.core.interfaces import NOOP, UEFI_HTTP
from ferroscope.core.model import Document, Node
from ferroscope.core.virtual_media import Image, MediaDevice, Medium
from ferroscope.remote.addresses import check_bmc
from ferroscope.remote.command_fence import TooLateError
from ferroscope.remote.deadline import Deadline
from ferroscope.remote.retry import BmcRetries, Once
from ferroscope_client.core import bmc_place, values

if TYPE_CHECKING:
    from ferroscope.bmc.redfish.session import Client, Clients
    from ferroscope.bmc.redfish.system import System

T = TypeVar("T")

# How often a call is repeated for a part that may be readable later. Then the part is left out.
_MAX_PATIENT_TRIES: Final = 2
# How many new sessions in a row the BMC may end before a call fails.
_MAX_LOST_SESSIONS: Final = 3
AUTH_TYPES: Final = ("auto", "session", "basic")
TLS_VERSIONS: Final = {"1.1": ssl.TLSVersion.TLSv1_1, "1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
PROPERTIES: Final[dict[str, str]] = {
    "redfish_address": "URL of the Redfish service, such as https://192.0.2.10; https if it has no scheme. Required.",
    "redfish_system_id": "Path of the system, such as /redfish/v1/Systems/1, or its last part. "
    "Optional if the service has a single system.",
    "redfish_username": "User name. Optional if the service requires none.",
    "redfish_password": "Its password.",
    "redfish_verify_ca": "True (the default): verify the certificate against the host's CAs; the name of a CA file "
    "or directory below [drivers] ca_directory on the workers: against these; False: do not verify.",
    "redfish_auth_type": f"One of {', '.join(AUTH_TYPES)}; auto (the default) prefers a session.",
    "redfish_root_prefix": "Path of the service root. Default: /redfish/v1/.",
    "redfish_tls_minimum_version": "1.1, 1.2 or 1.3: the minimum TLS version. Default: that of the host's "
    "OpenSSL. 1.1 also needs old ciphers, such as DEFAULT@SECLEVEL=0.",
    "redfish_tls_ciphers": "OpenSSL cipher list for TLS up to 1.2, such as ECDHE+AESGCM.",
    "deploy_iso": "URL of the ramdisk's ISO image for virtual media. Default: [inspector] ramdisk_iso.",
}
_STRICT: Final = BmcLimits()
_SPACE: Final = re.compile(r"\s")
_text: Final = partial(text_field, max_characters=1024)


class RedfishAccess(msgspec.Struct, frozen=True):
    """How to reach one system. ``verify``: as for ``requests``. ``system``: a path, or None for the only one."""

    url: str
    system: str | None
    username: str | None
    password: str = ""
    verify: bool | str = True
    auth_type: str = "auto"
    root: str = "/redfish/v1/"
    tls_minimum: str = ""
    tls_ciphers: str = ""

    def __repr__(self) -> str:
        return f"Access({self.url}, {self.system})"

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, None for the default; ``verify`` controls the check of certificates."""
        if not self.tls_minimum and not self.tls_ciphers:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.tls_ciphers:
            context.set_ciphers(self.tls_ciphers)
        if self.tls_minimum:
            context.minimum_version = TLS_VERSIONS[self.tls_minimum]
        return context


def read_access(info: Document, limits: BmcLimits = _STRICT) -> RedfishAccess:
    """Return how to reach the system; ``BmcError`` (permanent) if a field is missing or invalid."""
    username, password = _text(info, "redfish_username"), _text(info, "redfish_password")
    if password is not None and username is None:
        raise wrong(bmc_place.MISSING_USER)
    auth_type = (_text(info, "redfish_auth_type") or "auto").lower()
    if auth_type not in AUTH_TYPES:
        raise wrong(f"invalid redfish_auth_type {auth_type[:40]!r}: expected one of {', '.join(AUTH_TYPES)}")
    if auth_type == "session" and username is None:
        raise wrong("redfish_auth_type session requires redfish_username and redfish_password")
    tls_minimum = str(info.get("redfish_tls_minimum_version") or "")
    if tls_minimum and tls_minimum not in TLS_VERSIONS:
        raise wrong(f"redfish_tls_minimum_version must be one of {', '.join(TLS_VERSIONS)}")
    root = f"/{(_text(info, 'redfish_root_prefix') or '/redfish/v1/').strip('/ ')}/".replace("//", "/")
    return RedfishAccess(
        url=_url(info, limits, secret=bool(password)),
        system=_system(info, root) or bmc_place.redfish_system(str(info["redfish_address"])) or None,
        username=username,
        password=password or "",
        verify=_verify(info.get("redfish_verify_ca"), limits),
        auth_type=auth_type,
        root=root,
        tls_minimum=tls_minimum,
        tls_ciphers=_tls_ciphers(info),
    )


def _tls_ciphers(info: Document) -> str:
    value = _text(info, "redfish_tls_ciphers") or ""
    try:
        if value:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(value)
    except ssl.SSLError:
        raise wrong("redfish_tls_ciphers has no cipher that OpenSSL supports here; see: openssl ciphers -v") from None
    return value


def _url(info: Document, limits: BmcLimits, *, secret: bool) -> str:
    address = _text(info, "redfish_address")
    if address is None:
        raise wrong(bmc_place.MISSING_ADDRESS["redfish_address"])
    if why := bmc_place.redfish_problem(address):
        raise wrong(why)
    parts = bmc_place.redfish_url(address)
    if parts.scheme == "http" and secret and not limits.http_passwords:
        hint = "use https, or set [drivers] allow_http_passwords = true"
        raise wrong(f"redfish_address uses http, which would send redfish_password unencrypted; {hint}")
    check_bmc(parts.hostname or "", limits.networks)
    return f"{parts.scheme}://{parts.netloc}"


def _system(info: Document, root: str) -> str | None:
    system = _text(info, "redfish_system_id")
    if system is None:
        return None
    system = system.strip()
    if "://" in system or system.startswith("//") or _SPACE.search(system):
        raise wrong("invalid redfish_system_id: expected a path such as /redfish/v1/Systems/1, or its last part")
    if f"/{system}".startswith(root):
        system = f"/{system}"
    path = system if system.startswith("/") else f"{root}Systems/{system}"
    if f"{path.rstrip('/')}/".lower() in ("/", root.lower(), f"{root}Systems/".lower()):
        raise wrong("redfish_system_id is the path of the service, not of a system, such as /redfish/v1/Systems/1")
    return path


def _verify(value: Any, limits: BmcLimits) -> bool | str:
    if value is None or value == "":
        return True
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        flag = values.parse(value)
        return ca_path(value, limits) if flag is None else flag
    raise wrong("redfish_verify_ca must be true, false or the name of a CA file or directory")


class _Call(msgspec.Struct):
    """One call in all its tries. ``expected_node``: refuse the system of another machine.

    ``is_known``: the BMC has shown this system before. ``lost_sessions``: new ones that the BMC has ended in a row.
    """

    access: RedfishAccess
    action: str
    deadline: Deadline
    expected_node: Node | None
    tries: int = 0
    is_known: bool = False
    lost_sessions: int = 0


class RedfishBmc:
    """Thread-safe."""

    properties: Mapping[str, str] = PROPERTIES
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
        self._clients: Clients | None = None

    def validate(self, node: Node) -> str | None:
        return problem(partial(read_access, limits=self._options.limits), node.driver_info)

    def driver_info(self, address: str) -> Document:
        return {"redfish_address": f"https://[{address}]" if ":" in address else f"https://{address}"}

    def get_power(self, node: Node) -> Power:
        return self._call(node, "power state", redfish.system.read_power)

    def power_and_boot(self, node: Node) -> tuple[Power, bool | None]:
        return self._call(node, "power state", redfish.system.power_and_boot)

    def set_power(self, node: Node, power: Switch) -> None:
        self._call(node, str(power), partial(redfish.system.set_power, wanted=power))

    def force_off(self, node: Node) -> bool:
        return self._call(node, "power off", redfish.system.force_off)

    def reboot(self, node: Node) -> None:
        once = Once()
        self._call(node, "reboot", partial(redfish.system.reboot, once=once), once=once)

    def soft_power_off(self, node: Node) -> None:
        self._call(node, "soft power off", redfish.system.soft_power_off)

    def soft_reboot(self, node: Node) -> None:
        once = Once()
        self._call(node, "soft rebooting", partial(redfish.system.soft_reboot, once=once), once=once)

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        mode = wanted_boot_mode(node)
        work = partial(redfish.system.set_boot_device, device=device, persistent=persistent, mode=mode)
        self._call(node, "boot device", work)

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        return self._call(node, "boot device", redfish.system.get_boot_device)

    def clear_boot_device(self, node: Node, device: BootDevice) -> bool:
        return self._call(node, "boot device", partial(redfish.system.clear_boot_device, device=device))

    def boot_marks(self, node: Node) -> Document:
        return self._call(node, "boot progress", redfish.system.boot_marks)

    def restarted_since(self, node: Node, marks: Document) -> bool | None:
        return self._call(node, "boot progress", partial(redfish.system.restarted_since, before=marks))

    def insert_ramdisk(self, node: Node, image: Image) -> str | None:
        insertion = redfish.virtual_media.RamdiskInsertion(image, wanted_boot_mode(node))
        return self._call(node, "virtual media", insertion.run, slow=True)

    def eject_ramdisk(self, node: Node, image: Image) -> bool:
        return self._call(node, "virtual media", partial(redfish.virtual_media.eject, image=image), slow=True)

    def attach_medium(self, node: Node, device: MediaDevice, url: str) -> None:
        attachment = redfish.virtual_media.Attachment(device, url)
        self._call(node, "virtual media", attachment.run, slow=True)

    def detach_media(self, node: Node, devices: Sequence[MediaDevice]) -> int:
        return self._call(node, "virtual media", partial(redfish.virtual_media.detach, devices=devices), slow=True)

    def media(self, node: Node) -> Sequence[Medium]:
        return self._call(node, "virtual media", redfish.virtual_media.list_media)

    def nics(self, node: Node) -> Sequence[OutOfBandNic]:
        return self._call(node, "NICs", redfish.inventory.read_nics, slow=True)

    def inventory(self, node: Node) -> Document:
        return self._call(node, "inventory", redfish.inventory.read_inventory, slow=True)

    def health(self, node: Node) -> Document:
        return self._call(node, "health", redfish.health.read_health, slow=True)

    def machine(self, node: Node) -> Document:
        return self._call(node, "identity", redfish.system.read_identity, checked=False)

    def systems(self, node: Node) -> Sequence[str]:
        return self._call(node, "systems", redfish.system.list_systems, slow=True, whole=True)

    def log_in(self, node: Node) -> None:
        """Open a session with the node's password, which is sent once, and close it."""
        proof = self._proof(node)
        self._call_once(proof.access, "login", proof.prove, new=proof.access.password)

    def set_password(self, node: Node, password: str) -> None:
        """Write the account's password, prove it by a new login, and write the old one again if that fails."""
        proof = self._proof(node)
        new = msgspec.structs.replace(proof.access, password=password)
        work = partial(proof.change, new, self._options.stop)
        self._call_once(proof.access, "change of the password", work, new=password)

    def report(self, node: Node, *, identities: bool) -> Document:
        access, options = read_access(node.driver_info, self._options.limits), self._options
        work = partial(redfish.report.collect, access, options.limits.networks, options.stop.wait)
        return self._call_once(access, "report", partial(work, identities=identities))

    def close(self) -> None:
        if self._clients is not None:
            self._clients.close()

    def _proof(self, node: Node) -> redfish.session.PasswordProof:
        access = read_access(node.driver_info, self._options.limits)
        return redfish.session.PasswordProof(access, self._options.limits.networks, node)

    def _call_once(self, access: RedfishAccess, action: str, work: Callable[[], T], new: str = "") -> T:
        """Call ``work``, which has connections of its own, and try nothing twice."""
        with Deadline(self._options.inventory_timeout) as deadline:
            try:
                return work()
            except TooLateError:
                raise
            except Exception as exc:  # noqa: BLE001  # the boundary: sushy raises what its parsers stumble over
                raise redfish.failures.translate(exc, access, action, deadline, new=new) from None

    def _open_clients(self) -> Clients:
        with self._opening:
            if self._clients is None:
                self._clients = redfish.session.Clients(allowed=self._options.limits.networks)
            return self._clients

    def _call(
        self,
        node: Node,
        action: str,
        work: Callable[[Any], T],
        *,
        slow: bool = False,
        whole: bool = False,
        checked: bool = True,
        once: Once | None = None,
    ) -> T:
        """Call ``work`` with the node's system, or the ``whole`` service; retry transient errors while there is time.

        ``checked``: refuse the system of another machine.
        """
        options = self._options
        access = read_access(node.driver_info, options.limits)
        seconds = options.inventory_timeout if slow else options.command_timeout
        with Deadline(seconds, options.longest_call) as deadline:
            call = _Call(access, action, deadline, node if checked else None)
            retries = BmcRetries(deadline.remaining, options.stop, options.command_tries, once)
            while True:
                client = self._open_clients().get(access)
                was_used, call.is_known = not client.fresh, access.system in client.known_systems
                try:
                    with client.use() as root:
                        return work(root if whole else _find_system(call, client, root))
                except TooLateError:
                    raise
                except Exception as exc:  # noqa: BLE001  # the boundary: sushy raises what its parsers stumble over
                    error = self._judge(exc, call, client, was_used=was_used)
                if error is not None:
                    call.lost_sessions = 0
                    retries.wait_after(error)

    def _judge(self, error: Exception, call: _Call, client: Client, *, was_used: bool) -> BmcError | None:
        """Return what an error means, None if another session may help, where the BMC does not know one any more.

        A BMC with few sessions may end one as soon as it was opened, when others log in. Its password is known to be
        right, so logging in again locks no account.
        """
        had_session = client.has_session
        if redfish.failures.is_rejected_login(error):
            self._open_clients().drop(call.access, client)
            call.lost_sessions += not was_used
            may_log_in = was_used or (had_session and call.lost_sessions < _MAX_LOST_SESSIONS)
            if may_log_in and not call.deadline.has_expired:
                return None
        return redfish.failures.translate(
            error, call.access, call.action, call.deadline, is_known=call.is_known, logged_in=had_session
        )


def _find_system(call: _Call, client: Client, root: Any) -> System:
    """Return the system that a call is for, which must be that of the expected machine."""
    system = redfish.system.find_system(root, call.access)
    client.known_systems.add(call.access.system)
    call.is_known = False  # what lies below it may be missing for good
    if call.expected_node is not None:
        redfish.system.check_machine(system, call.access, call.expected_node)
    system.patient = call.tries < _MAX_PATIENT_TRIES
    call.tries += 1
    return system


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
