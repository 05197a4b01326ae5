"""Single values from callers: booleans in their many spellings, UUIDs, names, MACs, numbers.

Each function returns the one stored form or raises ``BadRequestError`` naming the field.
Source: the Bare Metal API reference.
"""

from __future__ import annotations

import re
from typing import Any, Final
from uuid import UUID

from ferroscope.api.errors import BadRequestError, MissingError
from ferroscope.core import values

_INTEGER: Final = re.compile(r"\s*-?[0-9]{1,18}\s*\Z")
_SHOWN: Final = 80


def shown(value: Any) -> str:
    """Return ``value`` for a message: short, and on one line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def boolean(field: str, value: bool | str) -> bool:
    """Return what ``value`` means: JSON's booleans, or true/false, yes/no, on/off, 1/0."""
    if isinstance(value, bool):
        return value
    meaning = values.parse(value)
    if meaning is None:
        raise BadRequestError(f"{field} must be true or false; it was {shown(value)}.")
    return meaning


def integer(field: str, value: str) -> int:
    """Return a whole number of at most 18 digits."""
    if _INTEGER.match(value) is None:
        raise BadRequestError(f"{field} must be a whole number; it was {shown(value)}.")
    return int(value)


def uuid(field: str, value: str) -> str:
    """Return the UUID in lower case with hyphens."""
    if not values.is_uuid(value):
        raise BadRequestError(f"{field} must be a UUID; it was {shown(value)}.")
    return str(UUID(value))


def name(field: str, value: str) -> str:
    """Return a logical name; see ``core.values``."""
    if not values.is_name(value):
        raise BadRequestError(f"{field} {shown(value)} is not valid: use {values.NAME}.")
    return value


def group(field: str, value: str) -> str:
    """Return the group's name in lower case; it may be empty."""
    name_in_lower_case = value.lower()
    if not values.is_group(name_in_lower_case):
        raise BadRequestError(f"{field} {shown(value)} may hold only letters, digits, '-', '.' and '_'.")
    return name_in_lower_case


def mac(field: str, value: str) -> str:
    """Return the MAC address as ``aa:bb:cc:dd:ee:ff``."""
    address = values.normalize(value)
    if address is None:
        raise BadRequestError(f"{field} must be a MAC address like 52:54:00:12:34:56; it was {shown(value)}.")
    return address


def ident(kind: str, value: str, *, named: bool = True) -> str:
    """Return what a path or filter names: a UUID in its stored form, or a logical name.

    ``named`` false: the microversion knows UUIDs only, so that no name is ever found.
    """
    if values.is_uuid(value):
        return str(UUID(value))
    if not values.is_spelled_as_name(value):
        raise BadRequestError(f"Expected a UUID or a name for {kind}; got {shown(value)}.")
    if not named:
        raise MissingError(f"{kind.capitalize()} {value} could not be found; before version 1.5 only UUIDs name one.")
    return value
