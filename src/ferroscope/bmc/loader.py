"""Finds and builds the drivers of ``[drivers] enabled``, once, when a process starts.

Whatever is wrong with the list or with a driver is said here, so that no node ever meets a driver that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from inspect import isfunction
from typing import Any, Final, Protocol

from ferroscope.bmc.options import DriverOptions
from ferroscope.contracts.bmc import Bmc

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


def load(names: Iterable[str], options: DriverOptions, points: Iterable[EntryPoint] | None = None) -> dict[str, Bmc]:
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
