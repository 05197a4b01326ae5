"""One given inventory for every machine: read from a file, patched with each machine's addresses.

A file may hold a callback's body, a bare inventory, or what ``GET /v1/nodes/{node}/inventory``
answers. MACs are replaced wherever they occur, in whatever spelling, so that data which repeats
them stays consistent; the one that booted becomes the machine's enrolled one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from ferroscope.domain.macs import normalize
from ferroscope.domain.model import Document
from ferroscope.sim.inventory import bmc_address, bmc_mac, pxe_mac

_MAX_MACS: Final = 0xB0


class Template:
    """A callback's body with holes for addresses."""

    def __init__(self, path: str) -> None:
        """Read ``path``; raise ``OSError``, or ``ValueError`` with a sentence."""
        try:
            document = msgspec.json.decode(Path(path).read_bytes(), type=Document)
            body = _as_body(document)
            self._macs = _macs(body["inventory"])
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise ValueError(f"{path} holds no inventory: {error}") from error
        self._bmc = {key: body["inventory"].get(key) for key in ("bmc_address", "bmc_v6address", "bmc_mac")}
        self._text = msgspec.json.encode(body).decode()
        self._pattern = _pattern([*self._macs, *filter(None, self._bmc.values())])

    def body(self, number: int) -> bytes:
        """Return the body of the machine with this number."""
        new = {old: f"{pxe_mac(number)[:-2]}{at:02x}" for at, old in enumerate(self._macs)}
        ours = {
            "bmc_address": bmc_address(number),
            "bmc_v6address": bmc_address(number, 6),
            "bmc_mac": bmc_mac(number),
        }
        new |= {old.lower(): ours[key] for key, old in self._bmc.items() if old}

        def replace(match: re.Match[str]) -> str:
            found = match[0].lower()
            if found in new:
                return new[found]
            return new[found.replace("-", ":")].replace(":", "-")

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
    """Return the different MACs, the one that booted first."""
    records = inventory.get("interfaces")
    found = [normalize(record.get("mac_address")) for record in records or () if isinstance(record, dict)]
    macs = list(dict.fromkeys(mac for mac in found if mac))
    if not 0 < len(macs) < _MAX_MACS:
        raise ValueError(f"it needs between 1 and {_MAX_MACS - 1} interfaces with a MAC, not {len(macs)}")
    boot = inventory.get("boot")
    booted = normalize(boot.get("pxe_interface")) if isinstance(boot, dict) else None
    return sorted(macs, key=lambda mac: mac != booted)


def _pattern(addresses: list[str]) -> re.Pattern[str]:
    """Match any of ``addresses`` whole, and MACs with dashes too."""
    spellings = {spelling for address in addresses for spelling in (address, address.replace(":", "-"))}
    alternatives = "|".join(map(re.escape, sorted(spellings, key=len, reverse=True)))
    return re.compile(rf"(?<![0-9a-f:.])(?:{alternatives})(?![0-9a-f:.])", re.IGNORECASE)
