"""Reads values from inspection data of any shape; ignores malformed data and placeholders of firmware. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Literal

from ferroscope_client.core.json_safety import clean_text
from ferroscope_client.core.values import bmc_ip

Kind = Literal["node", "cpu", "nic", "disk", "dimm", "gpu", "firmware", "health", "result"]
# What firmware reports for an unknown value, in lower case, with a space for every other character: spellings vary.
_SAYS_NOTHING: Final = frozenset(
    {
        "", "none", "null", "n a", "na", "unknown", "not specified", "not provided", "not available", "not applicable",
        "not present", "not set", "unspecified", "no dimm", "empty", "absent", "default string",
        "to be filled by o e m", "to be filled by oem", "fill by oem", "o e m", "system manufacturer",
        "system product name", "system serial number",
    }
)  # fmt: skip
_SIGNS: Final = re.compile(r"[\W_]+")


def text(value: Any) -> str | None:
    """Return the stripped text; None for placeholders that firmware reports."""
    if type(value) is not str:
        return None
    return _clean_cached(value) if len(value) <= _MAX_CACHED_CHARACTERS else _clean(value)


def _clean(value: str) -> str | None:
    value = clean_text(value).strip()
    return None if says_nothing(value) else value


def plain_words(value: str) -> str:
    """Return the letters and digits of a text in lower case, with one space for each run of other characters."""
    return _SIGNS.sub(" ", value.lower()).strip()


def says_nothing(value: str) -> bool:
    """Whether this is a placeholder of firmware for an unknown value."""
    return len(value) <= _MAX_CACHED_CHARACTERS and plain_words(value) in _SAYS_NOTHING


# Machines of a site share most texts: vendors, models, types, slots.
_MAX_CACHED_CHARACTERS: Final = 64
_clean_cached: Final = lru_cache(maxsize=4096)(_clean)

_NUMBERS: Final = (int, float)


def address(value: Any) -> str | None:
    """Return a BMC's address; None for a placeholder of ramdisks, or an address that is not unique to a BMC."""
    return bmc_ip(text(value))


def number(value: Any, factor: int = 1) -> float | None:
    """Return a number that every database can store, also from a string."""
    if isinstance(value, str):
        if len(value) > 32:
            return None
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    try:
        scaled = float(value) * factor
    except OverflowError:
        return None
    return scaled if math.isfinite(scaled) and abs(scaled) < 1e30 else None


def mapping(value: Any) -> dict[str, Any]:
    """Return the object, or an empty one if the value is not an object."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list, none if the value is not a list."""
    if not isinstance(value, list):
        return []
    return value if _OBJECTS.issuperset(map(type, value)) else [member for member in value if isinstance(member, dict)]


_OBJECTS: Final = frozenset({dict})


def named_interfaces(inventory: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the interface records that have a name, in the inventory's order."""
    for record in mappings(inventory.get("interfaces")):
        name = record.get("name")
        if isinstance(name, str) and name:
            yield name, record


def lldp(name: str, record: dict[str, Any], plugin_data: dict[str, Any]) -> Any:
    """Return the LLDP record of this interface, from the collector or else from the inventory."""
    return mapping(plugin_data.get("lldp_raw")).get(name) or record.get("lldp")
