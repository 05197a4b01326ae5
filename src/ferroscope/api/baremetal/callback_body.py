"""What a ramdisk sends: taken apart as bytes, and reduced to the evidence of who it is.

What is stored are the bytes that came; they are decoded once here, so that whatever a worker
will have to read can be read. Source: the Bare Metal API reference (continue inspection) and the
inventory of ironic-python-agent.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.http import decoding
from ferroscope.api.http.errors import BadRequestError
from ferroscope.api.http.schemas import Mac
from ferroscope.contracts.data import Part
from ferroscope.core import values
from ferroscope.core.lookup import Evidence

# No machine has as many; a database's limit on parameters must not be the one that is hit.
MAX_ADDRESSES: Final = 512
MAX_INTERFACES: Final = 2048
# The longest text of an IPv6 address has 45 characters; a scope may be as long as its sender likes.
_MAX_ADDRESS: Final = 64
_MAC: Final = re.compile(rb'"mac_address"\s{0,9}:\s{0,9}"([0-9A-Fa-f:-]{17})"')
_BMC: Final = re.compile(rb'"bmc_(?:v6)?address"\s{0,9}:\s{0,9}"([0-9A-Fa-f:./]{3,50})"')
_LOOKED_AT: Final = 256 * 1024
_MOST_TRACES: Final = 64


class CallbackInterface(msgspec.Struct, frozen=True):
    """A NIC; everything else that is said of it is kept, not looked at."""

    mac_address: Mac


class CallbackInventory(msgspec.Struct, frozen=True):
    """The part of an inventory that the lookup needs."""

    interfaces: Annotated[list[CallbackInterface], msgspec.Meta(max_length=MAX_INTERFACES)]
    bmc_address: str | None = None
    bmc_v6address: str | None = None
    boot: Any = None


class Callback(msgspec.Struct, frozen=True):
    """The body of a callback; any other key is kept as plugin data."""

    inventory: CallbackInventory


class Beside(msgspec.Struct, frozen=True):
    """What is beside the inventory, as far as it is looked at: BOOTIF, as a boot loader has written it."""

    boot_interface: Any = None


class Parsed(msgspec.Struct, frozen=True):
    """``digest`` identifies the callback, ``parts`` is what is stored of it.

    ``boot_mac`` is the MAC that the machine says it has booted from, if it is one of its own.
    """

    evidence: Evidence
    digest: str
    parts: dict[Part, bytes]
    boot_mac: str | None = None


_encode = msgspec.json.Encoder().encode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_beside = msgspec.json.Decoder(Beside).decode
_decode_inventory = msgspec.json.Decoder(CallbackInventory).decode


def parse(raw: bytes, node_uuid: str | None, *, max_depth: int) -> Parsed:
    """Return the callback in parts; raise ``BadRequestError`` where it is none, or says of no machine."""
    parts, inventory = split(raw, max_depth=max_depth)
    addresses = dict.fromkeys(filter(None, (values.telling(nic.mac_address) for nic in inventory.interfaces)))
    if len(addresses) > MAX_ADDRESSES:
        raise BadRequestError(f"The inventory has more than {MAX_ADDRESSES} MAC addresses.")
    evidence = Evidence(uuid=node_uuid, macs=tuple(addresses), bmc_addresses=_bmc_addresses(inventory))
    if not evidence:
        raise BadRequestError("No lookup information provided: no valid MAC address, no BMC address, no node_uuid.")
    digest = hashlib.sha256(raw).hexdigest()
    return Parsed(evidence=evidence, digest=digest, parts=parts, boot_mac=_boot_mac(parts, inventory, evidence))


def split(raw: bytes, *, max_depth: int) -> tuple[dict[Part, bytes], CallbackInventory]:
    """Return the inventory and everything beside it, as JSON bytes, and what the inventory says of the machine.

    ``BadRequestError`` where it is no inventory of a machine.
    """
    decoding.decode(raw, dict[str, Any], max_depth=max_depth)
    document: dict[str, Any] = _decode_parts(raw)
    inventory, logs = document.pop("inventory", None), _logs(document.pop("logs", None))
    if inventory is None:
        raise BadRequestError("The body has no inventory. It must be an object with at least the key inventory.")
    try:
        decoded = _decode_inventory(inventory)
    except msgspec.ValidationError as exc:
        raise BadRequestError(f"The inventory does not fit: {exc}. GET /openapi.json has its schema.") from None
    if not decoded.interfaces:
        raise BadRequestError("The inventory has no interfaces; a machine needs at least one.")
    parts: dict[Part, bytes] = {"inventory": bytes(inventory), "unprocessed": _encode(document)}
    return parts | ({"logs": logs} if logs else {}), decoded


def _logs(sent: bytes | None) -> bytes:
    """Return what the ramdisk logged: an archive, in base64 as it comes; anything else as it is."""
    text = msgspec.json.decode(sent) if sent is not None else None
    if not isinstance(text, str):
        return b"" if text is None else bytes(sent or b"")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text.encode()


def traces(raw: bytes, node_uuid: str | None) -> Evidence:
    """Return what a body that is no callback, or only the beginning of one, says of its machine."""
    begins = raw[:_LOOKED_AT]
    found = (values.telling(text.decode()) for text in _MAC.findall(begins)[:_MOST_TRACES])
    bmcs = (_address(text.decode()) for text in _BMC.findall(begins)[:2])
    return Evidence(
        uuid=node_uuid,
        macs=tuple(dict.fromkeys(filter(None, found))),
        bmc_addresses=tuple(dict.fromkeys(filter(None, bmcs))),
    )


def _boot_mac(parts: dict[Part, bytes], inventory: CallbackInventory, evidence: Evidence) -> str | None:
    boot = inventory.boot if isinstance(inventory.boot, dict) else {}
    said = (boot.get("pxe_interface"), _decode_beside(parts["unprocessed"]).boot_interface)
    return next((mac for text in said if (mac := values.normalize(text)) in evidence.macs), None)


def _bmc_addresses(inventory: CallbackInventory) -> tuple[str, ...]:
    found = (_address(text) for text in (inventory.bmc_address, inventory.bmc_v6address))
    return tuple(dict.fromkeys(address for address in found if address is not None))


def _address(text: str | None) -> str | None:
    """Return the address as it is stored, without a scope; None for no address, 0.0.0.0 and loopbacks included."""
    if text is None or len(text) > _MAX_ADDRESS:
        return None
    try:
        address = ipaddress.ip_address(text.split("/")[0].split("%")[0])
    except ValueError:
        return None
    return None if address.is_unspecified or address.is_loopback else str(address)
