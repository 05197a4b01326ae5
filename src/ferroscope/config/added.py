"""What installed packages add to the service, by entry point: the optional parts in ``contrib``, and those of others.

The groups are ``ferroscope.roles`` and ``ferroscope.tasks`` (see ``runtime.roles``), ``ferroscope.options``
(``config.sections``), ``ferroscope.commands`` and ``ferroscope.subcommands`` (``contracts.plugins``),
``ferroscope.routes`` and ``ferroscope.pages`` (``api.http.route``), ``ferroscope.checks`` (``doctor``). Parts that an
option names, such as BMC drivers, are found by ``plugins`` instead and loaded only if they are named. So are the
``backend``s that an option selects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Protocol, TypeVar

from ferroscope.config.plugins import EntryPoint, PluginError


class Placed(Protocol):
    """An addition is listed after the part that it belongs to; "": the last, None: the first."""

    @property
    def after(self) -> str | None: ...


T = TypeVar("T", bound=Placed)


@cache
def load_installed(group: str, prefix: str = "") -> Mapping[str, Any]:
    """Return what installed packages add to this group under names with this prefix, by name; ``PluginError``."""
    from importlib.metadata import entry_points  # most commands do not need it, and it takes a while to import

    return load_all(group, (point for point in entry_points(group=group) if point.name.startswith(prefix)))


def backend(name: str) -> Any:
    """Return the implementation that an option of the service selects; ``PluginError``, ``ImportError``.

    ``name``: SECTION.VALUE, in the group ``ferroscope.backends``.
    """
    from importlib.metadata import entry_points

    points = {point.value: point for point in entry_points(group="ferroscope.backends", name=name)}
    if len(points) != 1:
        why = f"several installed packages provide {name!r}" if points else f"no installed package provides {name!r}"
        raise PluginError(why, "install ferroscope again, and only packages for this release")
    return next(iter(points.values())).load()


def load_all(group: str, points: Iterable[EntryPoint]) -> dict[str, Any]:
    """Return the objects of these entry points by their names, in their order; ``PluginError``."""
    kind = group.rpartition(".")[2]
    values: dict[str, EntryPoint] = {}
    for point in sorted(points, key=lambda point: point.name):
        first = values.setdefault(point.name, point)
        if first.value != point.value:
            message = f"several installed packages add {point.name!r} to the {kind}: {first.value} and {point.value}"
            raise PluginError(message, "uninstall all but one")
    return {name: _load_point(kind, point) for name, point in values.items()}


def _load_point(kind: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as exc:  # third-party code
        message = f"{point.value}, which adds {point.name!r} to the {kind}, cannot be loaded: {exc!r}"
        raise PluginError(message, "fix or remove its package") from exc


def merge_in_order(own: Mapping[str, T], more: Mapping[str, T]) -> dict[str, T]:
    """Return ``own`` with ``more``, each after the one that it belongs to; a name of ``own`` cannot be taken."""
    left = {name: entry for name, entry in more.items() if name not in own}
    in_order: dict[str, T] = {}

    def place(name: str, entry: T) -> None:
        in_order[name] = entry
        for follower in [follower for follower, entry in left.items() if getattr(entry, "after", "") == name]:
            place(follower, left.pop(follower))

    for name in [name for name, entry in left.items() if getattr(entry, "after", "") is None]:
        place(name, left.pop(name))
    for name, entry in own.items():
        place(name, entry)
    return in_order | left
