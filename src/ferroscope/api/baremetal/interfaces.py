"""The hardware interfaces of nodes and drivers: the names that are accepted, the defaults, and whether they work.

Source: the Bare Metal API reference (drivers, node validation); the names are in ``core.interfaces``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ferroscope.api.http.errors import BadRequestError
from ferroscope.boot_config import way
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc, NamesInterfaces, OutOfBand, RamdiskBoot
from ferroscope.core import interfaces
from ferroscope.core.boot import AGENT, NO_INSPECT, VIRTUAL_MEDIA, BootError
from ferroscope.core.interfaces import KINDS
from ferroscope.core.model import Document, Node
from ferroscope.core.secrets import stand_ins

FIELDS: Final = {f"{kind}_interface": kind for kind in KINDS}
# They need nothing that is not there.
_VALID: Final = frozenset({interfaces.NOOP, "flat"})


def of_driver(drivers: Mapping[str, Bmc], name: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the interfaces of an enabled driver by kind, the default one first."""
    driver = drivers[name]
    return interfaces.offered(
        name,
        _own(driver),
        boots_itself=isinstance(driver, RamdiskBoot),
        knows_hardware=isinstance(driver, OutOfBand),
    )


def _own(driver: Bmc | None) -> Mapping[str, Sequence[str]]:
    return driver.interfaces if isinstance(driver, NamesInterfaces) else {}


def check(attributes: Document, before: Node | None, driver: str, drivers: Mapping[str, Bmc]) -> None:
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
        problem = interfaces.problem(kind, name, driver, lambda one: of_driver(drivers, one), drivers)
        if problem is not None:
            raise BadRequestError(problem)


def of_node(settings: Settings, node: Node, drivers: Mapping[str, Bmc]) -> dict[str, str | None]:
    """Return the interfaces of a node by field: those that are set, and the defaults of its driver."""
    if node.driver not in drivers:
        return {field: node.attributes.get(field) for field in FIELDS}
    names = of_driver(drivers, node.driver)
    if names["boot"][0].endswith(VIRTUAL_MEDIA) and not way.iso(settings, node):  # it needs an image
        names["boot"] = names["boot"][1:]
    return {field: node.attributes.get(field) or names[kind][0] for field, kind in FIELDS.items()}


def filled(settings: Settings, node: Node, drivers: Mapping[str, Bmc], shown: dict[str, Any]) -> dict[str, Any]:
    """Return the representation of a node with the default interfaces in place of those that are not set."""
    if not any(field in shown for field in FIELDS):
        return shown
    return shown | {field: name for field, name in of_node(settings, node, drivers).items() if field in shown}


class InterfaceCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """``result`` false: the interface is invalid or not supported; ``reason`` says why."""

    result: bool | None
    reason: str | None = None


NodeValidation = msgspec.defstruct(
    "NodeValidation",
    [(kind, InterfaceCheck) for kind in sorted(KINDS) if kind != "vendor"],
    namespace={"__doc__": "GET /v1/nodes/{node}/validate."},
    module=__name__,
    frozen=True,
)


def for_validation(node: Node) -> Node:
    """Return the node without encrypted secrets and references, which only workers decrypt and resolve."""
    return msgspec.structs.replace(node, driver_info=stand_ins(node.driver_info))


def validation(settings: Settings, node: Node, drivers: Mapping[str, Bmc]) -> dict[str, InterfaceCheck]:
    """Return which interfaces of the node are valid, without connecting to its BMC."""
    driver = drivers.get(node.driver)
    bmc = driver.validate(for_validation(node)) if driver is not None else f"driver {node.driver} is not enabled"
    in_band = msgspec.structs.replace(node, attributes=node.attributes | {"inspect_interface": AGENT})
    problems = {"management": bmc, "power": bmc}
    for kind, asked in (("boot", in_band), ("inspect", node)):
        try:
            way.way(settings, asked, driver, manage_boot=True)
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
            checks[kind] = InterfaceCheck(result=problem is None, reason=problem)
    return checks


def not_supported(node: Node, kind: str) -> str:
    """Return the published message for an interface that the node does not have."""
    return f"Driver {node.driver} does not support {kind} (disabled or not implemented)."
