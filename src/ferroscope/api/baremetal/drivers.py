"""The drivers that are enabled here, in the words of the Bare Metal API reference.

A driver's hosts are the worker processes that are alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ferroscope.api.baremetal import interfaces
from ferroscope.api.http.decoding import shown
from ferroscope.api.http.errors import BadRequestError, MissingError, NotAcceptableError
from ferroscope.api.http.route import ApiContext, Call, NoQuery, Reply
from ferroscope.api.http.schemas import DriverType, Link, pair
from ferroscope.contracts.store import Transaction
from ferroscope.core.interfaces import KINDS

_LINKS_SINCE: Final = 14
_INTERFACES_SINCE: Final = 30
_FIELDS_SINCE: Final = 77


class DriverListQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/drivers."""

    detail: bool | None = None
    fields: list[str] | None = None
    type: DriverType | None = None


class DriverQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/drivers/{driver}."""

    fields: list[str] | None = None


DriverView = msgspec.defstruct(
    "DriverView",
    [
        (name, kind | msgspec.UnsetType, msgspec.UNSET)
        for name, kind in (
            ("name", str),
            ("hosts", list[str]),
            ("type", str),
            ("links", list[Link]),
            ("properties", list[Link]),
            *((f"default_{name}_interface", str | None) for name in KINDS),
            *((f"enabled_{name}_interfaces", list[str]) for name in KINDS),
        )
    ],
    namespace={"__doc__": "A driver, with the requested fields that the microversion supports."},
    module=__name__,
)


class DriverList(msgspec.Struct, frozen=True):
    """All drivers."""

    drivers: list[DriverView]  # type: ignore[valid-type]  # made from the table above


def list_drivers(context: ApiContext, call: Call[DriverListQuery, None]) -> Reply:
    """List the enabled drivers."""
    asked = call.query
    if (asked.detail is not None or asked.type is not None) and call.minor < _INTERFACES_SINCE:
        raise NotAcceptableError(f"detail and type require API version 1.{_INTERFACES_SINCE}.")
    if asked.detail and asked.fields is not None:
        raise BadRequestError("detail and fields are mutually exclusive.")
    if asked.type not in (None, "classic", "dynamic"):
        raise BadRequestError(f"Invalid type {shown(asked.type)}: it must be classic or dynamic.")
    names = [] if asked.type == "classic" else sorted(context.drivers)
    hosts = context.store.read(_hosts)
    detail = bool(asked.detail) or asked.fields is not None
    views = [_chosen(_view(context, call, name, hosts, detail=detail), asked.fields, call.minor) for name in names]
    return Reply(200, {"drivers": views})


def get_driver(context: ApiContext, call: Call[DriverQuery, None]) -> Reply:
    """Show one driver."""
    name = _known(context, call)
    view = _view(context, call, name, context.store.read(_hosts), detail=True)
    return Reply(200, _chosen(view, call.query.fields, call.minor))


def get_driver_properties(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Describe the properties that a driver reads from ``driver_info``: name and meaning."""
    return Reply(200, dict(context.drivers[_known(context, call)].properties))


def _known(context: ApiContext, call: Call[Any, None]) -> str:
    name = call.path["driver"]
    if name not in context.drivers:
        raise MissingError(f"Driver {shown(name)} is not enabled; GET /v1/drivers lists the enabled ones.")
    return name


def _hosts(tx: Transaction) -> list[str]:
    return sorted({member.host for member in tx.members.list() if member.works and member.is_alive(tx.now)})


def _view(context: ApiContext, call: Call[Any, None], name: str, hosts: list[str], *, detail: bool) -> dict[str, Any]:
    view: dict[str, Any] = {"name": name, "hosts": hosts, "links": pair(call.url, f"drivers/{name}")}
    if call.minor >= _LINKS_SINCE:
        view["properties"] = pair(call.url, f"drivers/{name}/properties")
    if call.minor >= _INTERFACES_SINCE:
        view["type"] = "dynamic"
        if detail:
            view |= _interfaces(interfaces.of_driver(context.drivers, name), call.minor)
    return view


def _interfaces(names: dict[str, tuple[str, ...]], minor: int) -> dict[str, Any]:
    """Return the interfaces by kind, the default one first."""
    shown_kinds = [kind for kind, since in KINDS.items() if since <= minor]
    default = {f"default_{kind}_interface": names[kind][0] for kind in shown_kinds}
    return default | {f"enabled_{kind}_interfaces": list(names[kind]) for kind in shown_kinds}


def _chosen(view: dict[str, Any], fields: Sequence[str] | None, minor: int) -> dict[str, Any]:
    if fields is None:
        return view
    if minor < _FIELDS_SINCE:
        raise NotAcceptableError(f"fields requires API version 1.{_FIELDS_SINCE}.")
    unknown = sorted(set(fields) - set(view))
    if unknown:
        raise BadRequestError(f"Unknown field(s) of a driver: {', '.join(name[:80] for name in unknown[:8])}.")
    return {name: value for name, value in view.items() if name in fields or name == "links"}
