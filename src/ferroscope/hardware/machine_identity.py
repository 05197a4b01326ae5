"""Whether inspection data comes from the machine that was inspected before: serial number, system UUID, MAC addresses.

Data of another machine is held: it waits for an operator's approval before it is processed. The hold is a record in the
node's internal data, beside the flag ``inbox``. The inspection stays in its state, its clock stopped, until the data is
approved or rejected, or the inspection is ended in another way, which ends the hold too.

A BMC's own data about its machine is kept separately, and compared only with what the BMC says later: a ramdisk may
read a different serial number on the same machine.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ferroscope.core.model import Document, Node
from ferroscope_client.core.mac_addresses import local_last
from ferroscope_client.hardware.readings import mapping, plain_words, text

# More would bloat each node's data. Locally administered addresses are kept last: those of virtual functions may change
# with each boot.
MAX_KEPT_MACS: Final = 64
_MAX_CHARACTERS: Final = 128
# Serial numbers that mainboards report until one is set, besides those that ``text`` drops.
_COUNTED: Final = frozenset(
    sequence[:length]
    for sequence in ("0123456789abcdef", "123456789abcdef", "01234567890", "1234567890")
    for length in range(5, len(sequence) + 1)
)
# Example UUIDs that boards have until one is set: AMI's first, then Dell's without a service tag. Other programs have
# the same lists (osquery/osquery#8887, FOGProject/fogproject). Firmware shows them in either byte order.
_NOT_UUIDS: Final = frozenset(
    map(
        uuid.UUID,
        (
            "03000200-0400-0500-0006-000700080009",
            "03020100-0504-0706-0809-0a0b0c0d0e0f",
            "01020304-0506-0708-090a-0b0c0d0e0f10",
            "07090201-0103-0301-0807-060504030201",
            "10000000-0000-8000-0040-000000000000",
            "11111111-2222-3333-4444-555555555555",
            "12345678-1234-5678-1234-567812345678",
            "12345678-1234-5678-90ab-cddeefaabbcc",
            "01234567-89ab-cdef-0123-456789abcdef",
            "4c4c4544-0000-2010-8020-80c04f202020",
        ),
    )
)


class MachineIdentity(msgspec.Struct, frozen=True):
    """What one inspection reported; None for a serial number or system UUID that it did not report.

    ``bmcs``: the addresses of the machine's BMC, as the ramdisk reads them in band. They do not identify a machine.
    """

    serial: str | None = None
    uuid: str | None = None
    macs: tuple[str, ...] = ()
    bmcs: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True):
    """One contradiction: ``what`` (``serial``, ``uuid`` or ``macs``), the value before, and the new value."""

    what: str
    before: str | None
    now: str | None


def identify(system_vendor: Any, system_uuid: Any, macs: Sequence[str]) -> MachineIdentity:
    """Return the identity in an inventory's ``system_vendor``, the system UUID if it is elsewhere, and the MACs."""
    vendor = mapping(system_vendor)
    reported = system_uuid if system_uuid is not None else vendor.get("uuid")
    kept = macs if len(macs) <= MAX_KEPT_MACS else local_last(macs)[:MAX_KEPT_MACS]
    return MachineIdentity(_serial(vendor.get("serial_number")), _uuid(reported), tuple(sorted(kept)))


def decode_identity(document: Any) -> MachineIdentity | None:
    """Return the identity that is stored as a document; None if there is none.

    An earlier release may have stored a value that only this one knows to be a placeholder.
    """
    record = mapping(document)
    macs = record.get("macs")
    if not record or not isinstance(macs, list):
        return None
    bmcs = record.get("bmcs")
    return MachineIdentity(
        _serial(record.get("serial")),
        _uuid(record.get("uuid")),
        tuple(map(str, macs)),
        tuple(map(str, bmcs)) if isinstance(bmcs, list) else (),
    )


def contradictions(before: MachineIdentity, now: MachineIdentity) -> tuple[Difference, ...]:
    """Return how ``now`` contradicts ``before``; nothing if it may be the same machine."""
    differences = []
    if before.serial and now.serial and before.serial != now.serial:
        differences.append(Difference("serial", before.serial, now.serial))
    if before.uuid and now.uuid and not same_uuid(before.uuid, now.uuid):
        differences.append(Difference("uuid", before.uuid, now.uuid))
    if (before.serial or before.uuid) and not (now.serial or now.uuid):
        differences += [
            Difference(name, value, None)
            for name, value in (("serial", before.serial), ("uuid", before.uuid))
            if value is not None
        ]
    if before.macs and not set(before.macs).intersection(now.macs):
        differences.append(Difference("macs", ", ".join(before.macs), ", ".join(now.macs) or None))
    return tuple(differences)


def is_same(before: MachineIdentity, now: MachineIdentity) -> bool | None:
    """Whether serial number and system UUID belong to the same machine; None if that is unknown."""
    pairs = []
    if before.serial and now.serial:
        pairs.append(before.serial == now.serial)
    if before.uuid and now.uuid:
        pairs.append(same_uuid(before.uuid, now.uuid))
    return pairs[0] if len(set(pairs)) == 1 else None


_NAMES: Final[Mapping[str, str]] = {"serial": "serial number", "uuid": "system UUID", "macs": "MAC addresses"}


def explain(differences: Sequence[Difference]) -> str:
    """Return the differences as a text."""
    return "; ".join(
        f"{_NAMES[difference.what]} {difference.now or 'missing'}, was {difference.before}"
        for difference in differences
    )


def _serial(value: Any) -> str | None:
    serial = text(value)
    if serial is None or len(serial) > _MAX_CHARACTERS:
        return None
    signs = plain_words(serial).replace(" ", "")
    if "serial" in signs and signs.isalpha():  # Chassis Serial Number, Enter Serial
        return None
    return None if len(set(signs)) < 2 or signs in _COUNTED else serial  # 0000000, XXXX, 0123456789


def _uuid(value: Any) -> str | None:
    stripped = text(value)
    if stripped is None or len(stripped) > _MAX_CHARACTERS:
        return None
    try:
        parsed = uuid.UUID(stripped)
    except ValueError:
        return None
    is_filled = len(set(parsed.bytes)) == 1 or set(parsed.bytes[4:]) == {0xFF}
    return None if is_filled or {parsed, _swap_byte_order(parsed)} & _NOT_UUIDS else str(parsed)


def _swap_byte_order(system_uuid: uuid.UUID) -> uuid.UUID:
    """Return the UUID in the other byte order."""
    return uuid.UUID(bytes=system_uuid.bytes_le)


def same_uuid(first: str, second: str) -> bool:
    """Whether these system UUIDs are equal, apart from the byte order."""
    return first == second or _swap_byte_order(uuid.UUID(first)) == uuid.UUID(second)


KEY: Final = "held"
# The key of the machine's identity, as its last processed callback reported it.
IDENTITY: Final = "machine_identity"
# The key of the machine's identity as its BMC reported it, and of the place of that BMC.
BEHIND_BMC: Final = "machine_behind_bmc"
_PLACE: Final = "place"
_PLACES: Final = ("_address", "_port", "_node", "_system_id", "_root_prefix")


def behind_bmc(node: Node) -> MachineIdentity | None:
    """Return the machine's identity as its BMC reported it; None if unknown, or if the BMC had another address."""
    record = mapping(node.internal.get(BEHIND_BMC))
    if not record or record.get(_PLACE) != _place(node):
        return None
    identity = MachineIdentity(_serial(record.get("serial")), _uuid(record.get("uuid")))
    return identity if identity.serial or identity.uuid else None


def remember_behind_bmc(node: Node, identity: Document) -> None:
    """Keep the BMC's ``serial`` and ``uuid`` in the node's internal data; nothing if it reported neither."""
    if identity:
        node.internal[BEHIND_BMC] = {_PLACE: _place(node), **identity}


def _place(node: Node) -> Document:
    return {name: value for name, value in node.driver_info.items() if name.endswith(_PLACES)}


def hold_of(node: Node) -> Document | None:
    """Return the hold of the node's current inspection, None if there is none."""
    hold = node.internal.get(KEY)
    return hold if isinstance(hold, dict) and hold.get("inspection") == node.inspection else None


def with_hold(node: Node, record: Document) -> Document:
    """Return the fields of the node with this hold; ``inbox`` of the record is the previous value of the flag."""
    record = {"inspection": node.inspection, "inbox": node.inbox} | record
    return {"inbox": True, "internal": node.internal | {KEY: record}}


def without_hold(node: Node) -> dict[str, Any]:
    """Return the fields of the node without a hold; nothing if it has none."""
    record = node.internal.get(KEY)
    if record is None:
        return {}
    before = bool(record.get("inbox")) if isinstance(record, dict) else False
    return {"inbox": before, "internal": {key: value for key, value in node.internal.items() if key != KEY}}
