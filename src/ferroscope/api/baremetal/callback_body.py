"""The body of a callback: split into its parts as bytes, with the evidence that identifies the machine.

The bytes are stored unchanged, except for the disk that we have put into the machine ourselves. They are decoded once
here, to make sure that a worker can read them. A body that is unreadable because of an odd value of the firmware is
repaired, and a NIC without a MAC address is ignored: the machine cannot send anything better, and the timeline tells
its operator. Source: the Bare Metal API reference
(continue inspection) and the inventory of ironic-python-agent.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.baremetal import floppy
from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import decoding
from ferroscope.api.http.schemas import Mac
from ferroscope.contracts.store import Packed, Part, packed
from ferroscope.core.lookup import MAX_INTERFACES, MAX_MACS, Evidence
from ferroscope.core.model import Node
from ferroscope.hardware.machine_identity import MachineIdentity, identify
from ferroscope_client.core import json_safety, mac_addresses, values
from ferroscope_client.core.mac_addresses import IgnoredMacs
from ferroscope_client.core.states import State

# The longest text of an IPv6 address has 45 characters; a scope may have any length.
_MAX_ADDRESS: Final = 64
_MAC: Final = re.compile(rb'"mac_address"\s{0,9}:\s{0,9}"([0-9A-Fa-f:-]{17})"')
# Where a ramdisk repeats the MAC address of its boot NIC, which may be the only readable part of a bad inventory.
_BOOTED: Final = re.compile(rb'"(?:boot_interface|pxe_interface)"\s{0,9}:\s{0,9}"([0-9A-Fa-f:.-]{12,80})"')
_BMC: Final = re.compile(rb'"bmc_(?:v6)?address"\s{0,9}:\s{0,9}"([0-9A-Fa-f:./]{3,50})"')
_MAX_SEARCHED_BYTES: Final = 256 * 1024
# The record of the collector extra-hardware; decoding all of them would cost more than the rest of the callback.
_UUID: Final = re.compile(rb'\[\s*"system"\s*,\s*"product"\s*,\s*"uuid"\s*,\s*"([0-9A-Fa-f-]{32,36})"')


_ODD_FIELDS: Final = 5


class CallbackInterface(msgspec.Struct, frozen=True):
    """A NIC, which is ignored if it has no MAC address; its other fields are stored, but not checked."""

    mac_address: Mac | None = None


class CallbackInventory(msgspec.Struct, frozen=True):
    """The fields of an inventory that the lookup needs."""

    interfaces: Annotated[list[CallbackInterface], msgspec.Meta(max_length=MAX_INTERFACES)]
    bmc_address: str | None = None
    bmc_v6address: str | None = None
    boot: Any = None
    system_vendor: Any = None


class Callback(msgspec.Struct, frozen=True):
    """The body of a callback; all other keys are stored as plugin data."""

    inventory: CallbackInventory


class _InventoryEnvelope(msgspec.Struct, frozen=True):
    """An inventory as it is read. A wrong value in one part does not invalidate the other parts."""

    interfaces: Annotated[list[Any], msgspec.Meta(max_length=MAX_INTERFACES)]
    bmc_address: Any = None
    bmc_v6address: Any = None
    boot: Any = None
    system_vendor: Any = None


class Parsed(msgspec.Struct, frozen=True):
    """``digest`` identifies the callback, ``parts`` are stored.

    ``machine``: as it describes itself. ``oddities`` are texts for people: what was repaired, cleaned or ignored.
    """

    evidence: Evidence
    digest: str
    parts: dict[Part, bytes]
    machine: MachineIdentity
    oddities: tuple[str, ...] = ()


_encode = msgspec.json.Encoder().encode
json_safety.ready(_InventoryEnvelope)


def parse(raw: bytes, node_uuid: str | None, *, ignored: IgnoredMacs) -> Parsed:
    """Return the parsed callback; raise ``BadRequestError`` if it is invalid or does not identify a machine.

    ``ignored`` MAC addresses are not part of the evidence.
    """
    readable, document = _readable(raw)
    parts, inventory = _split(readable, document)
    booted = _boot_macs(document, inventory)
    reported = [_mac(nic) for nic in inventory.interfaces]
    addresses = dict.fromkeys(filter(None, map(ignored.identifying, reported)))
    if not addresses:  # its boot NIC is one of its own NICs
        addresses = dict.fromkeys(filter(None, map(ignored.identifying, booted)))
    if len(addresses) > MAX_MACS:
        raise BadRequestError(f"The inventory has more than {MAX_MACS} MAC addresses.")
    evidence = Evidence(
        uuid=node_uuid,
        macs=tuple(addresses),
        bmc_addresses=_bmc_addresses(inventory),
        boot_mac=next(filter(addresses.__contains__, booted), None),
    )
    if not evidence:
        raise BadRequestError("No lookup information provided: no valid MAC address, no BMC address, no node_uuid.")
    system_uuid = _UUID.search(parts["unprocessed"])
    machine = identify(inventory.system_vendor, system_uuid[1].decode() if system_uuid else None, evidence.macs)
    return Parsed(
        evidence=evidence,
        digest=hashlib.sha256(raw).hexdigest(),
        parts=parts,
        machine=msgspec.structs.replace(machine, bmcs=evidence.bmc_addresses),
        oddities=tuple(_oddities(raw, readable, document, inventory, reported)),
    )


class ToStore(msgspec.Struct, frozen=True):
    """What to store of a callback: ``sent``, or the same data marked as that of a discovered machine."""

    sent: dict[Part, Packed]
    discovered: dict[Part, Packed]

    def by(self, node: Node) -> dict[Part, Packed]:
        """Return the parts to store if it is the callback of this node."""
        return self.discovered if node.state is State.ENROLLING and node.auto_discovered else self.sent


def to_store(parts: dict[Part, bytes], *, unasked: bool) -> ToStore:
    """Return what to store; data of a machine that is being discovered gets the key ``auto_discovered``.

    ``unasked``: machines may call whose inspection was not requested.
    """
    sent = packed(parts)
    if not unasked:
        return ToStore(sent, sent)
    unprocessed: dict[str, Any] = _members(parts["unprocessed"])
    unprocessed["auto_discovered"] = True
    return ToStore(sent, sent | packed({"unprocessed": _encode(unprocessed)}))


def split(raw: bytes) -> dict[Part, bytes]:
    """Return the inventory and the remaining data as JSON bytes; ``BadRequestError`` if the inventory is invalid."""
    return _split(*_readable(raw))[0]


def _readable(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the body, repaired if it cannot be read as it is, and decoded; ``BadRequestError`` if it is no JSON."""
    try:
        return raw, decoding.decode(raw, dict[str, Any], with_nul=True)
    except decoding.UnreadableError as exc:
        try:
            raw = json_safety.repair_json(raw)
        except json_safety.JsonError:
            raise exc from None
        return raw, decoding.decode(raw, dict[str, Any], with_nul=True)


def _members(raw: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of an object that has been decoded before, as bytes."""
    return json_safety.decode_own(raw, dict[str, msgspec.Raw])


def _split(raw: bytes, document: dict[str, Any]) -> tuple[dict[Part, bytes], _InventoryEnvelope]:
    members: dict[str, Any] = _members(raw)
    inventory, logs = members.pop("inventory", None), _logs(members.pop("logs", None))
    if inventory is None:
        raise BadRequestError("The request body has no inventory: it must be an object with the key inventory.")
    try:
        decoded = msgspec.convert(document["inventory"], _InventoryEnvelope)
    except msgspec.ValidationError as exc:
        raise BadRequestError(f"Invalid inventory: {exc}. GET /openapi.json returns its schema.") from None
    if not decoded.interfaces:
        raise BadRequestError("The inventory has no interfaces; at least one is required.")
    own = _without_our_disk(bytes(inventory), document["inventory"].get("disks"))
    parts: dict[Part, bytes] = {"inventory": own, "unprocessed": _encode(members)}
    return parts | ({"logs": logs} if logs else {}), decoded


def _without_our_disk(inventory: bytes, disks: Any) -> bytes:
    """Return an inventory without our parameter disk, which a BMC may present as a USB disk.

    No other disk has the size of a floppy. The ramdisk sees an ISO as a CD, and lists no CDs.
    """
    if not isinstance(disks, list):
        return inventory
    kept = [disk for disk in disks if not (isinstance(disk, dict) and disk.get("size") == floppy.SIZE)]
    return inventory if len(kept) == len(disks) else _encode(_members(inventory) | {"disks": kept})


def _logs(sent: bytes | None) -> bytes:
    """Return the ramdisk's log: an archive, decoded from base64; anything else unchanged."""
    text = json_safety.decode_own(sent) if sent is not None else None
    if not isinstance(text, str):
        return b"" if text is None else bytes(sent or b"")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text.encode()


def traces(raw: bytes, node_uuid: str | None, ignored: IgnoredMacs) -> Evidence:
    """Return the evidence in a body that is invalid, or that is only the beginning of a callback."""
    begins = raw[:_MAX_SEARCHED_BYTES]
    macs = [ignored.identifying(text.decode()) for text in _MAC.findall(begins)[:MAX_MACS]]
    booted = (mac_addresses.boot_mac(text.decode()) for text in _BOOTED.findall(begins)[:2])
    macs += map(ignored.identifying, booted)
    bmcs = (_address(text.decode()) for text in _BMC.findall(begins)[:2])
    return Evidence(
        uuid=node_uuid,
        macs=tuple(dict.fromkeys(filter(None, macs))),
        bmc_addresses=tuple(dict.fromkeys(filter(None, bmcs))),
    )


def _mac(interface: Any) -> str | None:
    """Return the MAC address of an interface, or the text that it reports instead; None if it is not a text."""
    reported = interface.get("mac_address") if isinstance(interface, dict) else None
    if not isinstance(reported, str):
        return None
    return (
        mac_addresses.written_mac(reported)
        or mac_addresses.written_mac(text := json_safety.clean_text(reported))
        or text
    )


def _oddities(
    raw: bytes, readable: bytes, document: dict[str, Any], inventory: _InventoryEnvelope, macs: list[str | None]
) -> Iterator[str]:
    """Yield what is odd in a callback that is accepted; ``macs``: of its interfaces."""
    if readable is not raw:
        yield "values that are not valid JSON in UTF-8 were replaced"
    fields = json_safety.odd_fields(document, _ODD_FIELDS) if json_safety.may_be_odd(readable) else []
    if fields:
        yield f"control characters or unreadable bytes in {', '.join(fields)}"
    if None in macs:
        nameless = [nic for nic, mac in zip(inventory.interfaces, macs, strict=True) if mac is None]
        names = [nic.get("name") if isinstance(nic, dict) else None for nic in nameless[:_ODD_FIELDS]]
        more = f" and {len(nameless) - _ODD_FIELDS} more" if len(nameless) > _ODD_FIELDS else ""
        yield f"interfaces without a MAC address: {', '.join(decoding.shown_value(name) for name in names)}{more}"
    for name in ("bmc_address", "bmc_v6address"):
        if (address := getattr(inventory, name)) is not None and not isinstance(address, str):
            yield f"{name} is not an address but {decoding.shown_value(address)}"


def _boot_macs(document: dict[str, Any], inventory: _InventoryEnvelope) -> list[str]:
    """Return the MAC addresses that the machine reports to have booted from."""
    boot = inventory.boot if isinstance(inventory.boot, dict) else {}
    reported = (boot.get("pxe_interface"), document.get("boot_interface"))  # BOOTIF, as a boot loader writes it
    macs = []
    for text in reported:
        if isinstance(text, str) and (mac := mac_addresses.boot_mac(json_safety.clean_text(text))) is not None:
            macs.append(mac)
    return macs


def _bmc_addresses(inventory: _InventoryEnvelope) -> tuple[str, ...]:
    addresses = map(_address, (inventory.bmc_address, inventory.bmc_v6address))
    return tuple(dict.fromkeys(filter(None, addresses)))


def _address(text: Any) -> str | None:
    """Return the normalized address without a scope; None if it is invalid, or cannot be the address of one BMC."""
    if not isinstance(text, str) or len(text) > _MAX_ADDRESS:
        return None
    return values.bmc_ip(json_safety.clean_text(text))
