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


def shown(system: Any) -> Document:
    """Return what the system says of itself; empty if it says nothing that tells machines apart."""
    found = _identity(system)
    return {name: value for name, value in (("serial", found.serial), ("uuid", found.uuid)) if value is not None}


def check(system: Any, access: Access, node: Node) -> None:
    """Raise ``BmcError`` if another machine is there than before."""
    known = machine_identity.behind_bmc(node)
    if known is None or machine_identity.is_same(known, now := _identity(system)) is not False:
        return
    pairs = (("serial number", now.serial, known.serial), ("system UUID", now.uuid, known.uuid))
    differences = "; ".join(f"{name} {one}, was {before}" for name, one, before in pairs if one and before)
    message = f"another machine is at {access.url} than before: {differences}; nothing was done to it"
    raise BmcError(message, transient=False, reason=Reason.BMC_OTHER_MACHINE)


def _identity(system: Any) -> MachineIdentity:
    document = mapping(system.json)
    return machine_identity.identify({"serial_number": document.get("SerialNumber")}, document.get("UUID"), ())
