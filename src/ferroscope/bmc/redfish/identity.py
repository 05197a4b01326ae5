"""Whether the BMC is still that of the node's machine: its address may have become that of another one.

DHCP may give a BMC's address to another BMC, and a blade may be plugged into another bay. With one password for all,
the other machine would be powered off without a word. The system that each call reads says which machine it is; what it
said before is compared with it, and not what a ramdisk has read: the two may differ on one and the same machine.
"""

from __future__ import annotations

from typing import Any

from ferroscope.bmc.redfish.info import Access
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import MachineIdentity
from ferroscope.hardware.parts import mapping


def read_identity(system: Any) -> Document:
    """Return what the system says of itself; empty if it says nothing that tells machines apart."""
    identity = _identity(system)
    return {name: value for name, value in (("serial", identity.serial), ("uuid", identity.uuid)) if value is not None}


def check(system: Any, access: Access, node: Node) -> None:
    """Raise ``BmcError`` if another machine is there than before."""
    expected = machine_identity.behind_bmc(node)
    if expected is None or machine_identity.is_same(expected, now := _identity(system)) is not False:
        return
    pairs = (("serial number", now.serial, expected.serial), ("system UUID", now.uuid, expected.uuid))
    differences = "; ".join(f"{name} {value}, was {before}" for name, value, before in pairs if value and before)
    message = f"another machine is at {access.url} than before: {differences}; nothing was done to it"
    raise BmcError(message, transient=False, reason=Reason.BMC_OTHER_MACHINE)


def _identity(system: Any) -> MachineIdentity:
    document = mapping(system.json)
    return machine_identity.identify({"serial_number": document.get("SerialNumber")}, document.get("UUID"), ())
