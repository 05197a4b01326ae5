"""The callback bodies of the machines: their inventories, with errors according to their outcomes.

The most recently used bodies are cached, because a fleet boots the same machines repeatedly on the host that is
measured. Only the very large one is generated each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from ferroscope.core.lookup import MAX_MACS
from ferroscope.core.model import Document
from ferroscope_client.core.mac_addresses import KNOWN, IgnoredMacs, normalized_mac
from ferroscope_sim.inventory import MAX_INDEX, bmc_address, bmc_mac, generate, nic_mac, pxe_mac
from ferroscope_sim.model import FleetSettings, SimMember
from ferroscope_sim.outcomes import Body

_IGNORED: Final = IgnoredMacs((KNOWN,))

# A given inventory for every machine: read from a file, with each machine's addresses substituted.
#
# The file may contain a callback body, an inventory, or a response of ``GET /v1/nodes/{node}/inventory``. MACs are
# replaced everywhere, in any spelling, so that the data stays consistent; the boot MAC becomes the enrolled one. Those
# that real machines share, such as the USB NIC's of their BMCs, stay the same.


class BodyTemplate:
    """A callback body with placeholders for addresses."""

    def __init__(self, path: str) -> None:
        """Read ``path``; ``OSError``, or ``ValueError`` with a message."""
        try:
            document = msgspec.json.decode(Path(path).read_bytes(), type=Document)
            body = _as_body(document)
            self._macs = _macs(body["inventory"])
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise ValueError(f"{path} does not contain an inventory: {error}") from error
        self._bmc = {key: body["inventory"].get(key) for key in ("bmc_address", "bmc_v6address", "bmc_mac")}
        self._text = msgspec.json.encode(body).decode()
        self._pattern = _pattern([*self._macs, *filter(None, self._bmc.values())])

    def body(self, number: int) -> bytes:
        """Return the body of the machine with this number."""
        new = {old: nic_mac(number, at) for at, old in enumerate(self._macs)}
        ours = {
            "bmc_address": bmc_address(number),
            "bmc_v6address": bmc_address(number, 6),
            "bmc_mac": bmc_mac(number),
        }
        new |= {old.lower(): ours[key] for key, old in self._bmc.items() if old}

        def replace(match: re.Match[str]) -> str:
            address = match[0].lower()
            if address in new:
                return new[address]
            return new[address.replace("-", ":")].replace(":", "-")

        return self._pattern.sub(replace, self._text).encode()


def _as_body(document: Document) -> Document:
    if isinstance(document.get("inventory"), dict):
        plugin_data = document.get("plugin_data")
        if isinstance(plugin_data, dict):
            return {**plugin_data, "inventory": document["inventory"]}
        return document
    if "interfaces" in document:
        return {"inventory": document}
    raise ValueError("it has neither inventory nor interfaces")


def _macs(inventory: Document) -> list[str]:
    """Return the distinct MACs, the boot MAC first."""
    records = inventory.get("interfaces")
    addresses = [normalized_mac(record.get("mac_address")) for record in records or () if isinstance(record, dict)]
    macs = list(dict.fromkeys(mac for mac in addresses if mac and mac not in _IGNORED))
    if not 0 < len(macs) <= MAX_MACS:
        raise ValueError(f"it must have between 1 and {MAX_MACS} interfaces with a MAC, not {len(macs)}")
    boot = inventory.get("boot")
    booted = normalized_mac(boot.get("pxe_interface")) if isinstance(boot, dict) else None
    return sorted(macs, key=lambda mac: mac != booted)


def _pattern(addresses: list[str]) -> re.Pattern[str]:
    """Match any of ``addresses`` completely, also with dashes."""
    spellings = {spelling for address in addresses for spelling in (address, address.replace(":", "-"))}
    alternatives = "|".join(map(re.escape, sorted(spellings, key=len, reverse=True)))
    return re.compile(rf"(?<![0-9a-f:.])(?:{alternatives})(?![0-9a-f:.])", re.IGNORECASE)


MAX_CACHED_BODIES: Final = 2048
_HUGE_BYTES: Final = 17 * 1024 * 1024
_NESTING_LEVELS: Final = 1000
# The last byte of a machine's MACs is the NIC's number; the boot NIC is the first.
_BOOTED: Final = pxe_mac(0)[-3:]
RAMDISK_ERROR: Final = "The following errors were encountered:\n* collector default failed: no disks were found"


class Bodies:
    """The bodies of one fleet. Raises like ``BodyTemplate`` if the inventory file is invalid."""

    def __init__(self, settings: FleetSettings) -> None:
        self._size = settings.inventory_size
        self._template = BodyTemplate(settings.inventory_file) if settings.inventory_file else None
        self._kept = lru_cache(maxsize=MAX_CACHED_BODIES)(self._make)

    def of(self, member: SimMember, boot: int = 1) -> tuple[bytes, ...]:
        """Return what ``member`` posts at once after its boot of this number; nothing if it does not call back."""
        outcome = member.outcome
        if not outcome.calls_back:
            return ()
        kind: Body = "plain" if outcome.body == "lost-dimm" and boot == 1 else outcome.body
        body = _huge(self._plain(member.number)) if kind == "huge" else self._kept(member.number, kind)
        if outcome.conflicting:
            return body, _with_other_memory(body)
        return (body,) * outcome.copies

    def prepare(self, members: tuple[SimMember, ...]) -> None:
        """Encode in advance what can be cached."""
        for member in members[:MAX_CACHED_BODIES]:
            if member.outcome.body != "huge":
                self.of(member)

    def _make(self, number: int, kind: Body) -> bytes:
        if kind == "unknown-macs":
            return self._plain(MAX_INDEX - number)
        return _SPOIL[kind](self._plain(number))

    def _plain(self, number: int) -> bytes:
        if self._template is not None:
            return self._template.body(number)
        return generate(number, size=self._size)


def _edit_body(body: bytes, edit: Callable[[Document], object]) -> bytes:
    document: Document = msgspec.json.decode(body)
    edit(document)
    return msgspec.json.encode(document)


def _spoil_mac(document: Document) -> None:
    """Corrupt the MAC of an interface that did not boot, or of an added one if there is no other."""
    interfaces = document["inventory"]["interfaces"]
    for interface in interfaces:
        if not str(interface["mac_address"]).endswith(_BOOTED):
            interface["mac_address"] = "no-mac"
            return
    interfaces.append({"name": "ib0", "mac_address": "no-mac", "has_carrier": True})


def _lose_dimm(document: Document) -> None:
    """Remove the last memory module, and its share of the memory."""
    inventory = document["inventory"]
    modules = document.get("dmi", inventory.get("dmi", {})).get("memory", {}).get("devices", [])
    memory, count = inventory["memory"], len(modules) or 2
    inventory["memory"] = {name: size - size // count for name, size in memory.items()}
    del modules[-1:]


def _with_other_memory(body: bytes) -> bytes:
    """Return a different body of the same machine, as after adding memory."""
    return _edit_body(body, lambda document: document["inventory"].update(memory={"physical_mb": 1024, "total": 2**30}))


def _huge(body: bytes) -> bytes:
    return body[:-1] + b',"padding":"%s"}' % (b"x" * _HUGE_BYTES)


_SPOIL: Final[dict[Body, Callable[[bytes], bytes]]] = {
    "plain": lambda body: body,
    "error": lambda body: _edit_body(body, lambda document: document.update(error=RAMDISK_ERROR)),
    "no-nics": lambda body: _edit_body(body, lambda document: document["inventory"].update(interfaces=[])),
    "no-memory": lambda body: _edit_body(body, lambda document: document["inventory"].pop("memory", None)),
    "lost-dimm": lambda body: _edit_body(body, _lose_dimm),
    "no-arch": lambda body: _edit_body(body, lambda document: document["inventory"]["cpu"].pop("architecture", None)),
    "bad-mac": lambda body: _edit_body(body, _spoil_mac),
    "bad-json": lambda body: body[: len(body) // 2],
    "deep": lambda body: body[:-1] + b',"nested":' + b"[" * _NESTING_LEVELS + b"]" * _NESTING_LEVELS + b"}",
}
