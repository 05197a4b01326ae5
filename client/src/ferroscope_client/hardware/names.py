"""Readable names of hardware, without the additions of manufacturers."""

from __future__ import annotations

import re
from typing import Any, Final

from ferroscope_client.core.values import is_name

# Dell's firmware appends this to the name of a model.
_ADDED: Final = re.compile(r"\((?:SKU|ModelName)=", re.IGNORECASE)
_CPU: Final = re.compile(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|\b\d+-Core\b|@.*", re.IGNORECASE)
_NO_LETTERS: Final = re.compile(r"[^A-Za-z0-9._~]+")
_MAX_NAME_CHARACTERS: Final = 63
# The most characters that are read; a machine may send any number.
_MAX_READ_CHARACTERS: Final = 1000


def model(product: str) -> str:
    """Return the name of a model without the vendor's internal numbers."""
    name = product[:_MAX_READ_CHARACTERS]
    added = _ADDED.search(name) if name.rstrip().endswith(")") else None
    return (name[: added.start()].rstrip() if added else name) or product


def cpu(name: str) -> str:
    """Return the name of a processor without trademarks, clock rates and numbers of cores."""
    return " ".join(_CPU.sub(" ", name[:_MAX_READ_CHARACTERS]).split()) or name


def suggestion(serial: Any) -> str | None:
    """Return a name for a node, from the serial number of its machine; None if it is unknown, or only zeros."""
    name = _NO_LETTERS.sub("-", str(serial or "")[:_MAX_READ_CHARACTERS]).strip("-.").lower()[:_MAX_NAME_CHARACTERS]
    return name if len(set(name)) > 1 and is_name(name) else None


# IDs from the public PCI ID database.
VENDORS: Final = {
    "15b3": "mellanox", "8086": "intel", "14e4": "broadcom", "10de": "nvidia", "1002": "amd", "1022": "amd",
    "1077": "qlogic", "1924": "solarflare", "1425": "chelsio", "19e5": "huawei", "1dd8": "pensando", "177d": "cavium",
    "10ec": "realtek", "1d6a": "aquantia", "1137": "cisco", "1af4": "virtio", "144d": "samsung", "1344": "micron",
    "1c5c": "hynix", "1179": "toshiba", "10df": "emulex", "1d0f": "amazon", "9005": "adaptec", "1000": "lsi",
}  # fmt: skip
