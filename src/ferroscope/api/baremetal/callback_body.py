"""The body of a callback: split into its parts as bytes, with the evidence that identifies the machine.

The bytes are stored unchanged; they are decoded once here, to make sure that a worker can read them. Source: the Bare
Metal API reference (continue inspection) and the inventory of ironic-python-agent.
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

# No machine has more; the limit keeps queries below the databases' limits on parameters.
MAX_ADDRESSES: Final = 512
MAX_INTERFACES: Final = 2048
# The longest text of an IPv6 address has 45 characters; a scope may have any length.
_MAX_ADDRESS: Final = 64
_MAC: Final = re.compile(rb'"mac_address"\s{0,9}:\s{0,9}"([0-9A-Fa-f:-]{17})"')
_BMC: Final = re.compile(rb'"bmc_(?:v6)?address"\s{0,9}:\s{0,9}"([0-9A-Fa-f:./]{3,50})"')
_SEARCHED: Final = 256 * 1024
_MAX_TRACES: Final = 64


class CallbackInterface(msgspec.Struct, frozen=True):
    """A NIC; its other fields are stored, but not checked."""

    mac_address: Mac


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


class _PluginData(msgspec.Struct, frozen=True):
    """The only checked field outside the inventory: BOOTIF, as written by a boot loader."""

    boot_interface: Any = None


class Parsed(msgspec.Struct, frozen=True):
    """``digest`` identifies the callback, ``parts`` are stored.

    ``boot_mac`` is the MAC address that the machine reports to have booted from, if it is one of its own;
    ``system_vendor`` is as reported.
    """

    evidence: Evidence
    digest: str
    parts: dict[Part, bytes]
    boot_mac: str | None = None
    system_vendor: Any = None


_encode = msgspec.json.Encoder().encode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_plugin_data = msgspec.json.Decoder(_PluginData).decode
_decode_inventory = msgspec.json.Decoder(CallbackInventory).decode


def parse(raw: bytes, node_uuid: str | None, *, max_depth: int) -> Parsed:
    """Return the parsed callback; raise ``BadRequestError`` if it is invalid or does not identify a machine."""
    parts, inventory = split(raw, max_depth=max_depth)
    addresses = dict.fromkeys(filter(None, (values.identifying_mac(nic.mac_address) for nic in inventory.interfaces)))
    if len(addresses) > MAX_ADDRESSES:
        raise BadRequestError(f"The inventory has more than {MAX_ADDRESSES} MAC addresses.")
    evidence = Evidence(uuid=node_uuid, macs=tuple(addresses), bmc_addresses=_bmc_addresses(inventory))
    if not evidence:
        raise BadRequestError("No lookup information provided: no valid MAC address, no BMC address, no node_uuid.")
    digest = hashlib.sha256(raw).hexdigest()
    return Parsed(
        evidence=evidence,
        digest=digest,
        parts=parts,
        boot_mac=_boot_mac(parts, inventory, evidence),
        system_vendor=inventory.system_vendor,
    )


def split(raw: bytes, *, max_depth: int) -> tuple[dict[Part, bytes], CallbackInventory]:
    """Return the inventory and the remaining data as JSON bytes, and the decoded fields of the inventory.

    ``BadRequestError`` if the inventory is invalid.
    """
    decoding.decode(raw, dict[str, Any], max_depth=max_depth)
    document: dict[str, Any] = _decode_parts(raw)
    inventory, logs = document.pop("inventory", None), _logs(document.pop("logs", None))
    if inventory is None:
        raise BadRequestError("The request body has no inventory: it must be an object with the key inventory.")
    try:
        decoded = _decode_inventory(inventory)
    except msgspec.ValidationError as exc:
        raise BadRequestError(f"Invalid inventory: {exc}. GET /openapi.json returns its schema.") from None
    if not decoded.interfaces:
        raise BadRequestError("The inventory has no interfaces; at least one is required.")
    parts: dict[Part, bytes] = {"inventory": bytes(inventory), "unprocessed": _encode(document)}
    return parts | ({"logs": logs} if logs else {}), decoded


def _logs(sent: bytes | None) -> bytes:
    """Return the ramdisk's log: an archive, decoded from base64; anything else unchanged."""
    text = msgspec.json.decode(sent) if sent is not None else None
    if not isinstance(text, str):
        return b"" if text is None else bytes(sent or b"")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text.encode()


def traces(raw: bytes, node_uuid: str | None) -> Evidence:
    """Return the evidence in a body that is invalid, or that is only the beginning of a callback."""
    begins = raw[:_SEARCHED]
    found = (values.identifying_mac(text.decode()) for text in _MAC.findall(begins)[:_MAX_TRACES])
    bmcs = (_address(text.decode()) for text in _BMC.findall(begins)[:2])
    return Evidence(
        uuid=node_uuid,
        macs=tuple(dict.fromkeys(filter(None, found))),
        bmc_addresses=tuple(dict.fromkeys(filter(None, bmcs))),
    )


def _boot_mac(parts: dict[Part, bytes], inventory: CallbackInventory, evidence: Evidence) -> str | None:
    boot = inventory.boot if isinstance(inventory.boot, dict) else {}
    reported = (boot.get("pxe_interface"), _decode_plugin_data(parts["unprocessed"]).boot_interface)
    return next((mac for text in reported if (mac := values.normalize(text)) in evidence.macs), None)


def _bmc_addresses(inventory: CallbackInventory) -> tuple[str, ...]:
    found = (_address(text) for text in (inventory.bmc_address, inventory.bmc_v6address))
    return tuple(dict.fromkeys(address for address in found if address is not None))


def _address(text: str | None) -> str | None:
    """Return the normalized address without a scope; None if it is invalid, unspecified or a loopback address."""
    if text is None or len(text) > _MAX_ADDRESS:
        return None
    try:
        address = ipaddress.ip_address(text.split("/")[0].split("%")[0])
    except ValueError:
        return None
    return None if address.is_unspecified or address.is_loopback else str(address)
