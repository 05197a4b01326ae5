"""Query strings into a route's query struct: each parameter once, known, and of the right type.

Lists come as ``a,b`` or as a repeated parameter. An unknown parameter is refused by its name,
because a filter that is silently ignored returns the wrong things.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec

from ferroscope.api import scalars
from ferroscope.api.errors import BadRequestError

Q = TypeVar("Q", bound=msgspec.Struct)
Kind = Literal["bool", "int", "list", "str"]

_MAX_LENGTH: Final = 4096


def decode_query(params: Mapping[str, Any], wanted: type[Q]) -> Q:
    """Return the parameters as ``wanted``; raise ``BadRequestError`` naming the one that is wrong."""
    known = kinds(wanted)
    if not params:
        return wanted()
    unknown = sorted(set(params) - set(known))
    if unknown:
        offered = ", ".join(sorted(known)) or "none"
        names = ", ".join(scalars.shown(name) for name in unknown[:8])
        raise BadRequestError(f"Unknown query parameter: {names}. This call takes: {offered}.")
    return wanted(**{name: _convert(name, value, known[name]) for name, value in params.items()})


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
        if len(item) > _MAX_LENGTH or not item.isprintable():
            raise BadRequestError(f"The query parameter {name} is too long or holds characters that cannot be printed.")
    if kind == "list":
        return list(dict.fromkeys(part for item in values for part in (raw.strip() for raw in item.split(",")) if part))
    if len(values) > 1:
        raise BadRequestError(f"The query parameter {name} may be given once only.")
    if kind == "bool":
        return scalars.boolean(name, values[0])
    return scalars.integer(name, values[0]) if kind == "int" else values[0]
