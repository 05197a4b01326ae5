"""What installed packages add to a program, by entry point: commands here; the service has more such groups.

Those of commands are ``ferroscope.commands``, and ``ferroscope.subcommands`` for one of a group that exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar


class PluginError(Exception):
    """A plugin cannot be used; ``advice`` says what to do."""

    def __init__(self, message: str, advice: str) -> None:
        self.advice = advice
        super().__init__(message)


class EntryPoint(Protocol):
    """The part of ``importlib.metadata.EntryPoint`` in use; ``load`` returns the plugin's factory."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str: ...

    def load(self) -> Any: ...


class Command(NamedTuple):
    """A command of ``ferroscope``: of the service, or of another package.

    A package adds one with an entry point in the group ``ferroscope.commands``. Its name is the command's, its value a
    ``Command`` in a module that imports little, because ``ferroscope --help`` loads all of them. One that belongs to a
    group, such as ``bmc scan``, is a click command in the group ``ferroscope.subcommands`` (see ``cli.output.Group``).

    ``target``: MODULE:ATTRIBUTE of the click command, imported when it is called. ``help``: a sentence for the list.

    ``after``: the command after which it is listed; "" for the last, None for the first. ``is_service``: its standard
    error is a log, where the traceback of an unexpected error belongs.
    """

    target: str
    help: str
    after: str | None = ""
    is_service: bool = False


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
