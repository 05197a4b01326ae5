"""Finds and builds the drivers of ``[drivers] enabled``, once, when a process starts.

Whatever is wrong with the list or with a driver is said here, so that no node ever meets a driver that is missing.
"""

from __future__ import annotations

import ipaddress
import posixpath
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from inspect import isfunction
from typing import Any, Final, Protocol

import msgspec

from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.queue import StopFlag
from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.remote.resolver import ANYWHERE, Networks


class Limits(msgspec.Struct, frozen=True):
    """What operators allow of every BMC: ``[drivers]`` ``bmc_networks``, ``allow_http_passwords``, ``ca_directory``."""

    networks: Networks = ANYWHERE
    http_passwords: bool = False
    ca_directory: str = "/etc/ferroscope/ca"


class DriverOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry point of ``ferroscope.bmc`` is called with; names are those of ``[drivers]``.

    ``command_timeout``: seconds that a call may take, retries included; ``inventory_timeout``: those of a call that
    takes a BMC longer (``OutOfBand``, ``RamdiskBoot``); ``command_tries``: how often a BMC is asked at most within one
    call. ``stop`` is set when the process shall end: whatever waits, waits for it.
    """

    command_timeout: float = 10.0
    command_tries: int = 4
    inventory_timeout: float = 60.0
    limits: Limits = Limits()
    stop: StopFlag = msgspec.field(default_factory=threading.Event)


def check_place(host: str, limits: Limits) -> None:
    """Refuse an address outside of the networks that are allowed; a name is looked at when it is connected to."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    if host not in limits.networks:
        raise not_allowed(host)


def not_allowed(host: str) -> BmcError:
    """Return the error (permanent) for a BMC that is where none may be."""
    message = f"the BMC {host[:255]} is in none of the networks in [drivers] bmc_networks"
    return BmcError(message, transient=False, reason=Reason.BMC_NOT_ALLOWED)


def ca_path(value: str, limits: Limits) -> str:
    """Return the path of a CA file or directory; it must be below the directory for them, and may be relative to it.

    What lies elsewhere on the workers is nobody's business: not even whether it exists.
    """
    path = posixpath.normpath(posixpath.join(limits.ca_directory, value))
    if "\0" in value or len(value) > 1024 or posixpath.commonpath([path, limits.ca_directory]) != limits.ca_directory:
        raise wrong(
            f"a CA file or directory must be below [drivers] ca_directory, {limits.ca_directory}: give its name there"
        )
    return path


def wrong(message: str) -> BmcError:
    """Return the error (permanent) for a ``driver_info`` that makes no sense."""
    return BmcError(message, transient=False, reason=Reason.DRIVER_INFO_INVALID)


def problem(read: Callable[[Document], object], info: Document) -> str | None:
    """Return what a driver's ``read`` does not like of ``info``, in a sentence, or None."""
    try:
        read(info)
    except BmcError as exc:
        return str(exc)
    return None


GROUP: Final = "ferroscope.bmc"
_CONTRACT: Final = tuple(name for name, member in vars(Bmc).items() if isfunction(member) and not name.startswith("_"))


class DriverSetupError(Exception):
    """A driver cannot be used; ``advice`` says what to do."""

    def __init__(self, message: str, advice: str) -> None:
        self.advice = advice
        super().__init__(message)


class EntryPoint(Protocol):
    """What is used of ``importlib.metadata.EntryPoint``: ``load`` returns what builds the driver."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str: ...

    def load(self) -> Any: ...


def load_drivers(
    names: Iterable[str], options: DriverOptions, points: Iterable[EntryPoint] | None = None
) -> dict[str, Bmc]:
    """Return the drivers of these names; ``DriverSetupError`` where one of them cannot be had."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP) if points is None else points:
        found.setdefault(point.name, []).append(point)
    return {name: _build(_only(name, found), options) for name in dict.fromkeys(names)}


def _only(name: str, found: Mapping[str, list[EntryPoint]]) -> EntryPoint:
    points = found.get(name, [])
    if not points:
        installed = ", ".join(sorted(found)) or "none (is the package ferroscope installed?)"
        raise DriverSetupError(f"[drivers] enabled has the unknown driver {name!r}", f"the drivers are: {installed}")
    if len({point.value for point in points}) > 1:
        values = " and ".join(sorted(point.value for point in points))
        raise DriverSetupError(
            f"several installed packages have a driver {name}: {values}", "uninstall all of them but one"
        )
    return points[0]


def _build(point: EntryPoint, options: DriverOptions) -> Bmc:
    called = f"the driver {point.name} ({point.value})"
    try:
        driver: Bmc = point.load()(options)
    except ModuleNotFoundError as exc:
        raise DriverSetupError(
            f"{called} needs the Python package {exc.name}, which is not installed",
            f"install it on all hosts with an api or workers, or take {point.name} out of [drivers] enabled",
        ) from exc
    except Exception as exc:
        raise DriverSetupError(f"{called} cannot be loaded: {exc!r}", _advice(point)) from exc
    missing = [name for name in _CONTRACT if not callable(getattr(driver, name, None))]
    if not isinstance(getattr(driver, "properties", None), Mapping):
        missing.append("properties")
    if missing:
        raise DriverSetupError(f"{called} lacks {', '.join(missing)} of ferroscope.contracts.bmc.Bmc", _advice(point))
    return driver


def _advice(point: EntryPoint) -> str:
    return f"correct the driver's package, or take {point.name} out of [drivers] enabled"
