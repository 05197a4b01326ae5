"""How a port looks to a caller of a given microversion. Source: the Bare Metal API reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.documented import one_of
from ferroscope.api.errors import BadRequestError, NotAcceptableError
from ferroscope.api.links import Link, pair
from ferroscope.api.times import iso
from ferroscope.core.model import Document, Port


class PortField(msgspec.Struct, frozen=True):
    """A field of a port's representation; see ``node_fields.Field``."""

    name: str
    since: int
    type: Any
    get: Callable[[Port, str], Any]


FIELDS: Final[tuple[PortField, ...]] = (
    PortField("address", 1, str, lambda port, _url: port.address),
    PortField("created_at", 1, str | None, lambda port, _url: iso(port.created_at)),
    PortField("extra", 1, Document, lambda port, _url: port.extra),
    PortField("internal_info", 18, Document, lambda port, _url: port.internal),
    PortField("is_smartnic", 53, bool, lambda port, _url: port.attributes.get("is_smartnic", False)),
    PortField("links", 1, list[Link], lambda port, url: pair(url, f"ports/{port.uuid}")),
    PortField("local_link_connection", 19, Document, lambda port, _url: port.local_link_connection),
    PortField("name", 88, str | None, lambda port, _url: port.name),
    PortField("node_uuid", 1, str, lambda port, _url: port.node),
    PortField("physical_network", 34, str | None, lambda port, _url: port.physical_network),
    PortField("portgroup_uuid", 24, str | None, lambda _port, _url: None),
    PortField("pxe_enabled", 19, bool, lambda port, _url: port.pxe_enabled),
    PortField("updated_at", 1, str | None, lambda port, _url: iso(port.updated_at)),
    PortField("uuid", 1, str, lambda port, _url: port.uuid),
)
BY_NAME: Final = {field.name: field for field in FIELDS}
PortFieldName = Annotated[str, one_of(*BY_NAME)]
DEFAULT_FIELDS: Final = ("uuid", "address")

SORT_FIELDS: Final = {
    "id": "created_at",
    "node_uuid": "node",
    **{
        name: name
        for name in ("address", "created_at", "name", "physical_network", "pxe_enabled", "updated_at", "uuid")
    },
}

PortSortKey = Annotated[str, one_of(*SORT_FIELDS)]

PortView = msgspec.defstruct(
    "PortView",
    [(field.name, field.type | msgspec.UnsetType, msgspec.UNSET) for field in FIELDS],
    namespace={"__doc__": "A port, as far as the microversion and the asked-for fields go."},
    module=__name__,
)


class PortList(msgspec.Struct, frozen=True):
    """A page of ports; ``next`` is the address of the page after it."""

    ports: list[PortView]  # type: ignore[valid-type]  # made from the table above
    next: str | msgspec.UnsetType = msgspec.UNSET


def render(port: Port, fields: tuple[PortField, ...], url: str) -> dict[str, Any]:
    """Return the port with these fields."""
    return {field.name: field.get(port, url) for field in fields}


def select(minor: int, names: Sequence[str] | None) -> tuple[PortField, ...]:
    """Return the fields to show, None for all; refuse unknown ones with 400, newer ones with 406."""
    return _select(minor, None if names is None else tuple(names))


@lru_cache(maxsize=128)
def _select(minor: int, names: tuple[str, ...] | None) -> tuple[PortField, ...]:
    if names is None:
        return tuple(field for field in FIELDS if field.since <= minor)
    unknown = sorted(set(names) - set(BY_NAME))
    if unknown:
        raise BadRequestError(f"Field(s) {', '.join(name[:80] for name in unknown[:8])} are not valid for a port.")
    check_known(names, minor)
    return tuple(field for field in FIELDS if field.name in {*names, "links"})


def check_known(names: Sequence[str], minor: int) -> None:
    """Refuse with 406 whatever is newer than the call's version."""
    for name in names:
        if name in BY_NAME and BY_NAME[name].since > minor:
            raise NotAcceptableError(f"The field {name} needs API version 1.{BY_NAME[name].since}.")
