"""The hardware interfaces of a driver, in the words of the Bare Metal API. Pure.

An interface that this service implements has its published name: ``inspect``, ``boot``, ``management`` and ``power``.
Everything else that the API knows belongs to deployment: the interfaces that do nothing are the defaults, and those of
common deployments are accepted and stored for whoever deploys. Source: the Bare Metal service's enabled interfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ferroscope.core.boot import AGENT, NO_INSPECT, VIRTUAL_MEDIA

# Kind of interface -> microversion since which drivers show it.
KINDS: Final = {
    "bios": 40,
    "boot": 30,
    "console": 30,
    "deploy": 30,
    "firmware": 86,
    "inspect": 30,
    "management": 30,
    "network": 30,
    "power": 30,
    "raid": 30,
    "rescue": 38,
    "storage": 33,
    "vendor": 30,
}
# Does nothing, and is always valid; ``no-KIND`` never is, because it means that KIND is not supported.
NOOP: Final = "noop"

_OF_ALL: Final[dict[str, tuple[str, ...]]] = {
    "bios": ("no-bios",),
    "boot": ("ipxe", "pxe"),
    "console": ("no-console",),
    "deploy": (NOOP, "direct", "ramdisk"),
    "firmware": ("no-firmware",),
    "inspect": (AGENT, NO_INSPECT),
    "network": (NOOP, "flat"),
    "raid": ("no-raid", "agent"),
    "rescue": ("no-rescue", "agent"),
    "storage": (NOOP, "cinder"),
    "vendor": ("no-vendor",),
}


def offered(
    driver: str, own: Mapping[str, Sequence[str]], *, boots_itself: bool, knows_hardware: bool
) -> dict[str, tuple[str, ...]]:
    """Return the names of the interfaces of a driver by kind, the default one first.

    ``own``: the published names of its own interfaces; the power and management interfaces also have the driver's name.
    ``boots_itself`` and ``knows_hardware``: capabilities of the driver, as in ``core.boot``.
    """
    found = _OF_ALL | {"management": (driver,), "power": (driver,)}
    if boots_itself:
        found["boot"] = (f"{driver}{VIRTUAL_MEDIA}", *found["boot"])
    if knows_hardware:
        found["inspect"] = (AGENT, driver, NO_INSPECT)
    return {kind: tuple(dict.fromkeys((*own.get(kind, ()), *found[kind]))) for kind in KINDS}


def problem(
    kind: str, name: str, driver: str, of: Callable[[str], dict[str, tuple[str, ...]]], drivers: Iterable[str]
) -> str | None:
    """Return why ``driver`` cannot have this interface, or None. ``of``: the interfaces of a driver."""
    if name in of(driver)[kind]:
        return None
    known = sorted({one for each in drivers for one in of(each)[kind]})
    if name in known:
        return f"{kind} interface implementation '{name}' is not supported by hardware type {driver}."
    return (
        f"Could not find the following interface in the 'ironic.hardware.interfaces.{kind}' entrypoint: {name}. "
        f"Valid interfaces are {known}."
    )
