"""Decoding of request bodies, single values and query strings into the route's types.

A body is rejected with 400 if it is not JSON, has too many or too deeply nested objects and arrays, contains a NUL
character (PostgreSQL cannot store it) or an unpaired surrogate, or does not match the type. The checks work on bytes
where possible: an inventory of 40 KB takes some tens of microseconds.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, get_args, get_type_hints
from uuid import UUID

import falcon
import msgspec

from ferroscope.api.errors import BadRequestError, BodyTooLargeError, MissingError
from ferroscope.api.http.route import Body, Route, RouteCall
from ferroscope.config.options import Settings
from ferroscope.core.lookup import MAX_MACS
from ferroscope_client.core import json_safety, mac_addresses, values
from ferroscope_client.core import labels as core_labels

MAX_DOCUMENT_SIZE: Final = 1024 * 1024
# A heartbeat is the only document of a ramdisk. It may have the agent's certificate.
MAX_HEARTBEAT_SIZE: Final = 64 * 1024
# Bytes of a body over the limit that are searched for the machine that sent it.
_MAX_BEGINNING_BYTES: Final = 256 * 1024


class UnreadableError(BadRequestError):
    """The body is not JSON, or has a number that is out of range."""


def decode(raw: bytes, wanted: Any, *, with_nul: bool = False) -> Any:
    """Return ``raw`` decoded as ``wanted``; ``BadRequestError`` says what is wrong and where.

    ``with_nul``: NUL characters are accepted, because the body is stored as bytes.
    """
    if not raw:
        raise BadRequestError("The request has no body; a JSON body is required.")
    try:
        value = json_safety.decode(raw, wanted)
        json_safety.check_depth(raw)
    except json_safety.JsonTooLargeError as exc:
        raise BadRequestError(f"The request body is not decoded: {exc}.") from None
    except json_safety.JsonTypeError as exc:
        raise UnreadableError(f"Invalid request body: {exc}. GET /openapi.json returns its schema.") from None
    except json_safety.JsonError as exc:
        raise UnreadableError(f"The request body is not valid JSON in UTF-8: {exc}.") from None
    if not with_nul and b"\\" in raw and _has_nul(raw):
        raise BadRequestError("The request body contains a NUL character (\\u0000), which cannot be stored.")
    return value


def _has_nul(raw: bytes) -> bool:
    return b"\\u0000" in raw and b"\\u0000" in raw.replace(b"\\\\", b"")


# Single values: booleans in their many spellings, UUIDs, names, MAC addresses, numbers.
#
# Each function returns the normalized value or raises ``BadRequestError`` with the field's name.
# Source: the Bare Metal API reference.

_INTEGER: Final = re.compile(r"[ \t\r\n]*-?[0-9]{1,18}[ \t\r\n]*\Z")
_MAX_SHOWN_CHARACTERS: Final = 80
# Only the part of a value that a message shows: it may be a list of 200,000 numbers.
_brief: Final = reprlib.Repr()
_brief.maxlevel, _brief.maxlist, _brief.maxdict = 3, 20, 20
_brief.maxstring = _brief.maxlong = _brief.maxother = 2 * _MAX_SHOWN_CHARACTERS + 10


def shown_value(value: Any) -> str:
    """Return ``value`` for a message: truncated, and on one line."""
    text = _brief.repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "…"


def boolean(field: str, value: bool | str) -> bool:
    """Return the boolean: JSON's own, or true/false, yes/no, on/off, 1/0."""
    if isinstance(value, bool):
        return value
    meaning = values.parse(value)
    if meaning is None:
        raise BadRequestError(f"Invalid {field} {shown_value(value)}: it must be true or false.")
    return meaning


def integer(field: str, value: str) -> int:
    """Return an integer of at most 18 digits."""
    if _INTEGER.match(value) is None:
        raise BadRequestError(f"Invalid {field} {shown_value(value)}: it must be an integer.")
    return int(value)


def uuid(field: str, value: str) -> str:
    """Return the UUID in lower case with hyphens."""
    if not values.is_uuid(value):
        raise BadRequestError(f"Expected UUID for {field}: {shown_value(value)}")
    return str(UUID(value))


def name(field: str, value: str) -> str:
    """Return a logical name; see ``core.values``."""
    if not values.is_name(value):
        raise BadRequestError(f"Invalid {field} {shown_value(value)}: use {values.NAME}.")
    return value


def labels(field: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the labels; see ``core.labels``."""
    problem = core_labels.problem(value)
    if problem is not None:
        raise BadRequestError(f"{field} {problem}.")
    return value


def group(field: str, value: str) -> str:
    """Return the conductor group's name in lower case; it may be empty."""
    name_in_lower_case = value.lower()
    if not values.is_group(name_in_lower_case):
        raise BadRequestError(f"Invalid {field} {shown_value(value)}: use only letters, digits, '-', '.' and '_'.")
    return name_in_lower_case


def mac(field: str, value: str) -> str:
    """Return the MAC address as ``aa:bb:cc:dd:ee:ff``."""
    address = mac_addresses.normalized_mac(value)
    if address is None:
        raise BadRequestError(
            f"Invalid {field} {shown_value(value)}: it must be a MAC address such as 52:54:00:12:34:56."
        )
    return address


def ident(kind: str, value: str, *, named: bool = True) -> str:
    """Return the identifier in a path or filter: a normalized UUID, or a logical name.

    ``named`` false: the microversion supports UUIDs only, so a name is never found.
    """
    if values.is_uuid(value):
        return str(UUID(value))
    if not values.is_spelled_as_name(value):
        raise BadRequestError(f"Invalid {kind} {shown_value(value)}: it must be a UUID or a name.")
    if not named:
        raise MissingError(f"{kind.capitalize()} {value} could not be found; before version 1.5, use the UUID.")
    return value


# Bodies; WSGI servers other than ours may deliver them, too.


def read_body(settings: Settings, route: Route, req: falcon.Request) -> bytes:
    limit = settings.api.max_body_size
    if route.body_kind is not Body.RAW:
        limit = min(limit, MAX_HEARTBEAT_SIZE if route.ramdisk else MAX_DOCUMENT_SIZE)
    declared = req.content_length or 0
    if (encoding := req.get_header("Content-Encoding") or "").strip().lower() not in ("", "identity"):
        raise BadRequestError(
            f"The request body has the Content-Encoding {shown_value(encoding)}, which is not supported; "
            "send it uncompressed."
        )
    try:
        raw = b"" if declared > limit else _stream(req).read(limit + 1)
    except Exception as exc:  # what another WSGI server raises if the client leaves, or sends bad chunks
        raise BadRequestError("The request body is incomplete or malformed.") from exc
    if declared > limit or len(raw) > limit:
        raise BodyTooLargeError(f"The request body is too large: at most {limit} bytes are allowed.")
    return raw


def beginning(req: falcon.Request) -> bytes:
    """Return the beginning of a body that is too large."""
    try:
        return bytes(_stream(req).read(_MAX_BEGINNING_BYTES))
    except Exception:  # noqa: BLE001  # as in ``read_body``
        return b""


def _stream(req: falcon.Request) -> Any:
    """Return the body; other WSGI servers than ours do not know the size of one that is sent in chunks."""
    return req.stream if req.env.get("wsgi.input_terminated") else req.bounded_stream


# How a call identifies its node: by UUID or name, in the path or in a filter.

NAMES_SINCE: Final = 5


def node_ident(call: RouteCall[Any, Any]) -> str:
    """Return the node's UUID or name from a path of the Bare Metal API."""
    return ident("node", call.path["node"], named=call.minor >= NAMES_SINCE)


def named_node(call: RouteCall[Any, Any], text: str) -> str:
    """Return ``text`` as a UUID or, if the call's microversion supports names, a name."""
    return ident("node", text, named=call.minor >= NAMES_SINCE)


def introspected_ident(call: RouteCall[Any, Any]) -> str:
    """Return the node's UUID or name from a path of the Introspection API."""
    return ident("node", call.path["node"])


# Query strings: each parameter must be known, of the right type, within its documented bounds, and given once.
#
# Lists are written ``a,b`` or as a repeated parameter. An unknown parameter is an error, because a filter that is
# silently ignored returns the wrong results.

Q = TypeVar("Q", bound=msgspec.Struct)
Kind = Literal["bool", "int", "list", "str"]

_MAX_LENGTH: Final = 4096
# A list may be all MACs of a machine, which takes 18 characters for each.
_MAX_LIST: Final = max(_MAX_LENGTH, 20 * MAX_MACS)


def decode_query(params: Mapping[str, Any], wanted: type[Q]) -> Q:
    """Return the parameters as ``wanted``; ``BadRequestError`` names the invalid one."""
    types_by_name = kinds(wanted)
    if not params:
        return wanted()
    unknown = sorted(set(params) - set(types_by_name))
    if unknown:
        offered = ", ".join(sorted(types_by_name)) or "none"
        names = ", ".join(shown_value(name) for name in unknown[:8])
        raise BadRequestError(f"Unknown query parameter: {names}. Supported: {offered}.")
    converted = {name: _convert(name, value, types_by_name[name]) for name, value in params.items()}
    try:
        return msgspec.convert(converted, wanted)
    except msgspec.ValidationError as exc:
        raise BadRequestError(f"Invalid query: {exc}.") from None


@lru_cache(maxsize=64)
def kinds(struct: type[msgspec.Struct]) -> dict[str, Kind]:
    """Return the kind of each parameter of a query struct."""
    hints = get_type_hints(struct)
    return {name: _kind(hints[name]) for name in struct.__struct_fields__}


def _kind(hint: Any) -> Kind:
    plain = next((arg for arg in get_args(hint) if arg is not type(None)), hint)
    if plain is bool:
        return "bool"
    if plain is int:
        return "int"
    return "list" if getattr(plain, "__origin__", plain) is list else "str"


def _convert(name: str, value: Any, kind: Kind) -> Any:
    values = value if isinstance(value, list) else [value]
    for item in values:
        if len(item) > (_MAX_LIST if kind == "list" else _MAX_LENGTH) or not item.isprintable():
            raise BadRequestError(f"The query parameter {name} is too long or contains non-printable characters.")
    if kind == "list":
        return list(dict.fromkeys(part for item in values for part in (raw.strip() for raw in item.split(",")) if part))
    if len(values) > 1:
        raise BadRequestError(f"The query parameter {name} was given more than once.")
    if kind == "bool":
        return boolean(name, values[0])
    return integer(name, values[0]) if kind == "int" else values[0]
