"""The enabled drivers, as the Bare Metal API represents them.

A driver's hosts are the worker processes that are alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ferroscope import node_boot
from ferroscope.api.errors import BadRequestError, MissingError, NotAcceptableError
from ferroscope.api.http.context import ApiContext, ApiServices
from ferroscope.api.http.decoding import shown_value
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import ApiLink, DriverType, pair
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc, NamesInterfaces, OutOfBand, RamdiskBoot, StoresInterfaces
from ferroscope.core import driver_fields, interfaces
from ferroscope.core.boot import BootError
from ferroscope.core.interfaces import AGENT, KINDS, NO_INSPECT, VIRTUAL_MEDIA
from ferroscope.core.model import Document, Node
from ferroscope.core.secrets import for_validation
from ferroscope.db import Transaction

FIELDS: Final = {f"{kind}_interface": kind for kind in KINDS}
# They need nothing else.
_VALID: Final = frozenset({interfaces.NOOP, "flat"})


def of_driver(drivers: Mapping[str, Bmc], name: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the interfaces of an enabled driver by kind, the default one first."""
    driver = drivers[name]
    return interfaces.offered_interfaces(
        name,
        _own(driver),
        driver.stored_interfaces if isinstance(driver, StoresInterfaces) else {},
        boots_itself=isinstance(driver, RamdiskBoot),
        knows_hardware=isinstance(driver, OutOfBand),
    )


def _own(driver: Bmc | None) -> Mapping[str, Sequence[str]]:
    return driver.interfaces if isinstance(driver, NamesInterfaces) else {}


def check_interfaces(attributes: Document, before: Node | None, driver: str, drivers: Mapping[str, Bmc]) -> None:
    """Raise ``BadRequestError`` for an interface that the driver does not have.

    Values that were stored before are only checked again if the driver changes.
    """
    if driver not in drivers:
        return
    stored = before.attributes if before is not None and before.driver == driver else {}
    for field, kind in FIELDS.items():
        name = attributes.get(field)
        if name is None or name == stored.get(field):
            continue
        problem = interfaces.problem(kind, name, driver, lambda driver_name: of_driver(drivers, driver_name), drivers)
        if problem is not None:
            raise BadRequestError(problem)


def of_node(settings: Settings, node: Node, drivers: Mapping[str, Bmc]) -> dict[str, str | None]:
    """Return the interfaces of a node by field: those that are set, and the defaults of its driver."""
    if node.driver not in drivers:
        return {field: node.attributes.get(field) for field in FIELDS}
    names = of_driver(drivers, node.driver)
    if names["boot"][0].endswith(VIRTUAL_MEDIA) and not node_boot.iso(settings, node):  # it needs an image
        names["boot"] = names["boot"][1:]
    return {field: node.attributes.get(field) or names[kind][0] for field, kind in FIELDS.items()}


def with_interfaces(
    settings: Settings, node: Node, drivers: Mapping[str, Bmc], shown: dict[str, Any]
) -> dict[str, Any]:
    """Return the representation of a node with the default interfaces in place of those that are not set."""
    if not any(field in shown for field in FIELDS):
        return shown
    return shown | {field: name for field, name in of_node(settings, node, drivers).items() if field in shown}


class InterfaceCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """``result`` false: the interface is invalid or not supported; ``reason`` says why, or what to look at."""

    result: bool | None
    reason: str | None = None


NodeValidation = msgspec.defstruct(
    "NodeValidation",
    [(kind, InterfaceCheck) for kind in sorted(KINDS) if kind != "vendor"],
    namespace={"__doc__": "GET /v1/nodes/{node}/validate."},
    module=__name__,
    frozen=True,
)


def interface_checks(settings: Settings, node: Node, drivers: Mapping[str, Bmc]) -> dict[str, InterfaceCheck]:
    """Return which interfaces of the node are valid, without connecting to its BMC."""
    driver = drivers.get(node.driver)
    bmc = driver.validate(for_validation(node)) if driver is not None else f"driver {node.driver} is not enabled"
    bmc = bmc and str(bmc)
    in_band = msgspec.structs.replace(node, attributes=node.attributes | {"inspect_interface": AGENT})
    problems = {"management": bmc, "power": bmc}
    for kind, asked in (("boot", in_band), ("inspect", node)):
        try:
            node_boot.way(settings, asked, driver, manage_boot=True)
            problems[kind] = bmc
        except BootError as exc:
            problems[kind] = str(exc)
    checks = {}
    for field, name in of_node(settings, node, drivers).items():
        kind = FIELDS[field]
        problem = problems.get(kind)
        valid = name in _VALID or name in _own(driver).get(kind, ())
        if name == NO_INSPECT or (kind not in problems and not valid):
            problem = not_supported(node, kind)
        if kind != "vendor":
            note = _note(node, driver) if kind == "management" else None
            checks[kind] = InterfaceCheck(result=problem is None, reason=problem or note)
    return checks


def _note(node: Node, driver: Bmc | None) -> str | None:
    return None if driver is None else driver_fields.note_unknown(node.driver_info, driver.properties)


def not_supported(node: Node, kind: str) -> str:
    """Return the published message for an interface that the node does not have."""
    return f"Driver {node.driver} does not support {kind} (disabled or not implemented)."


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
            ("links", list[ApiLink]),
            ("properties", list[ApiLink]),
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


def list_drivers(context: ApiContext, call: RouteCall[DriverListQuery, None]) -> Reply:
    """List the enabled drivers."""
    asked = call.query
    if (asked.detail is not None or asked.type is not None) and call.minor < _INTERFACES_SINCE:
        raise NotAcceptableError(f"detail and type require API version 1.{_INTERFACES_SINCE}.")
    if asked.detail and asked.fields is not None:
        raise BadRequestError("detail and fields are mutually exclusive.")
    if asked.type not in (None, "classic", "dynamic"):
        raise BadRequestError(f"Invalid type {shown_value(asked.type)}: it must be classic or dynamic.")
    names = [] if asked.type == "classic" else sorted(context.services.drivers)
    hosts = context.data.store.read(_hosts)
    detail = bool(asked.detail) or asked.fields is not None
    views = [
        _chosen_fields(_view(context.services, call, name, hosts, detail=detail), asked.fields, call.minor)
        for name in names
    ]
    return Reply(200, {"drivers": views})


def get_driver(context: ApiContext, call: RouteCall[DriverQuery, None]) -> Reply:
    """Show one driver."""
    name = _driver_name(context, call)
    view = _view(context.services, call, name, context.data.store.read(_hosts), detail=True)
    return Reply(200, _chosen_fields(view, call.query.fields, call.minor))


def get_driver_properties(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Describe the properties that a driver reads from ``driver_info``: name and meaning."""
    return Reply(200, dict(context.services.drivers[_driver_name(context, call)].properties))


def _driver_name(context: ApiContext, call: RouteCall[Any, None]) -> str:
    name = call.path["driver"]
    if name not in context.services.drivers:
        raise MissingError(f"Driver {shown_value(name)} is not enabled; GET /v1/drivers lists the enabled ones.")
    return name


def _hosts(tx: Transaction) -> list[str]:
    return sorted({member.host for member in tx.members.list() if member.works and member.is_alive(tx.now)})


def _view(
    services: ApiServices, call: RouteCall[Any, None], name: str, hosts: list[str], *, detail: bool
) -> dict[str, Any]:
    view: dict[str, Any] = {"name": name, "hosts": hosts, "links": pair(call.url, f"drivers/{name}")}
    if call.minor >= _LINKS_SINCE:
        view["properties"] = pair(call.url, f"drivers/{name}/properties")
    if call.minor >= _INTERFACES_SINCE:
        view["type"] = "dynamic"
        if detail:
            view |= _interfaces(of_driver(services.drivers, name), call.minor)
    return view


def _interfaces(names: dict[str, tuple[str, ...]], minor: int) -> dict[str, Any]:
    """Return the interfaces by kind, the default one first."""
    shown_kinds = [kind for kind, since in KINDS.items() if since <= minor]
    default = {f"default_{kind}_interface": names[kind][0] for kind in shown_kinds}
    return default | {f"enabled_{kind}_interfaces": list(names[kind]) for kind in shown_kinds}


def _chosen_fields(view: dict[str, Any], fields: Sequence[str] | None, minor: int) -> dict[str, Any]:
    if fields is None:
        return view
    if minor < _FIELDS_SINCE:
        raise NotAcceptableError(f"fields requires API version 1.{_FIELDS_SINCE}.")
    unknown = sorted(set(fields) - set(view))
    if unknown:
        raise BadRequestError(f"Unknown field(s) of a driver: {', '.join(name[:80] for name in unknown[:8])}.")
    return {name: value for name, value in view.items() if name in fields or name == "links"}
