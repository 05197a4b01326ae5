"""The hardware interfaces of nodes: which names a driver has, as the Bare Metal API publishes them. Pure.

Only some of them change what happens here: ``inspect_interface``, ``boot_interface``, and ``power_interface`` and
``management_interface``, which are the driver's own. All others are stored for the service that deploys the node: those
that an Ironic 39 with everything enabled accepts for all hardware types, and the driver's (``StoresInterfaces``).
Source: its hardware types and entry points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

AGENT: Final = "agent"
NO_INSPECT: Final = "no-inspect"
VIRTUAL_MEDIA: Final = "-virtual-media"
# Boots an image that the BMC has the machine fetch.
UEFI_HTTP: Final = "redfish-https"
# Does nothing, and is always valid; ``no-KIND`` never is, because it means that KIND is not supported.
NOOP: Final = "noop"

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

_OF_ALL: Final[Mapping[str, tuple[str, ...]]] = {
    "bios": ("no-bios",),
    "boot": ("ipxe", "pxe", "http-ipxe", "http"),
    "console": ("no-console", "fake-graphical"),
    "deploy": (NOOP, "direct", "ramdisk", "autodetect", "ansible", "anaconda", "bootc", "custom-agent"),
    "firmware": ("no-firmware",),
    "inspect": (AGENT, NO_INSPECT),
    "network": (NOOP, "flat", "neutron", "ironic-networking"),
    "raid": ("no-raid", "agent"),
    "rescue": ("no-rescue", "agent"),
    "storage": (NOOP, "cinder", "external"),
    "vendor": ("no-vendor",),
}


def own_names(driver: str) -> tuple[str, str]:
    """Return the names that the driver's own interfaces may have: its name alone, or with that of the protocol."""
    return driver, f"{driver}-redfish"


def offered_interfaces(
    driver: str,
    own: Mapping[str, Sequence[str]],
    stored: Mapping[str, Sequence[str]],
    *,
    boots_itself: bool,
    knows_hardware: bool,
) -> dict[str, tuple[str, ...]]:
    """Return the names of the interfaces of a driver by kind, the default one first.

    ``own`` and ``stored``: the published names of its own interfaces, and of those that it only stores.
    ``boots_itself`` and ``knows_hardware``: capabilities of the driver, as in ``core.boot``.
    """
    by_kind = {**_OF_ALL, "management": (driver,), "power": (driver,)}
    if boots_itself and "boot" not in own:
        by_kind["boot"] = (f"{driver}{VIRTUAL_MEDIA}", *by_kind["boot"])
    if knows_hardware:
        by_kind["inspect"] = (AGENT, *own.get("inspect", (driver,)), NO_INSPECT)
    first = {kind: names for kind, names in own.items() if kind != "inspect"}
    return {kind: tuple(dict.fromkeys((*first.get(kind, ()), *by_kind[kind], *stored.get(kind, ())))) for kind in KINDS}


def problem(
    kind: str, name: str, driver: str, of: Callable[[str], dict[str, tuple[str, ...]]], drivers: Iterable[str]
) -> str | None:
    """Return why ``driver`` cannot have this interface, or None. ``of``: the interfaces of a driver."""
    if name in of(driver)[kind]:
        return None
    valid_names = sorted({interface for each in drivers for interface in of(each)[kind]})
    if name in valid_names:
        return f"{kind} interface implementation '{name}' is not supported by hardware type {driver}."
    return (
        f"Could not find the following interface in the 'ironic.hardware.interfaces.{kind}' entrypoint: {name}. "
        f"Valid interfaces are {valid_names}."
    )
