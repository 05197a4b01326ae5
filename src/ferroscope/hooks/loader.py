"""Finds, loads and orders the hooks of ``[inspector] hooks``, once, when a worker starts.

Whatever is wrong with the list is said here, all of it at once, in words that tell what to
write instead; no inspection ever meets a hook that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

import msgspec
import structlog

from ferroscope.config.options import InspectorSettings
from ferroscope.hooks.base import InspectionHook
from ferroscope.hooks.errors import HookSetupError
from ferroscope.hooks.names import Wanted, expand, parse, resolve

GROUP: Final = "ferroscope.hooks"


class EntryPoint(Protocol):
    """What is used of ``importlib.metadata.EntryPoint``: ``load`` returns the hook's class."""

    @property
    def value(self) -> str: ...

    def load(self) -> Any: ...


class LoadedHook(msgspec.Struct, frozen=True):
    """A hook under its entry point name."""

    name: str
    hook: InspectionHook
    optional: bool = False


def available() -> dict[str, EntryPoint]:
    """Return every installed hook by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load(settings: InspectorSettings, points: Mapping[str, EntryPoint] | None = None) -> tuple[LoadedHook, ...]:
    """Return the configured hooks in order; ``HookSetupError`` where that is not possible."""
    points = available() if points is None else points
    wanted = [parse(item) for item in expand(settings.hooks, settings.default_hooks)]
    hooks = tuple(_load(item, points) for item in _resolved(wanted, points))
    check_order(hooks)
    _configure(hooks, settings)
    return hooks


def check_order(hooks: Sequence[LoadedHook]) -> None:
    """Raise ``HookSetupError`` where a hook stands before one that it depends on, or twice."""
    names = [hook.name for hook in hooks]
    problems = [f"{name} is listed twice: remove one" for name in dict.fromkeys(names) if names.count(name) > 1]
    for index, hook in enumerate(hooks):
        for needed in hook.hook.dependencies:
            if needed in names[:index]:
                continue
            verb = "move" if needed in names else "add"
            problems.append(f"{hook.name} needs the results of {needed}: {verb} {needed} before {hook.name}")
    if problems:
        raise HookSetupError(f"[inspector] hooks = {','.join(names)}: {'; '.join(problems)}")


def _configure(hooks: Sequence[LoadedHook], settings: InspectorSettings) -> None:
    problems = []
    for hook in hooks:
        try:
            hook.hook.configure(settings)
        except HookSetupError as exc:
            problems.append(f"{hook.name}: {exc}")
    if problems:
        raise HookSetupError("; ".join(problems))


def _resolved(wanted: Sequence[Wanted], points: Mapping[str, EntryPoint]) -> list[Wanted]:
    log = structlog.get_logger(__name__)
    found = []
    unknown = []
    for item in wanted:
        name = resolve(item.name, points)
        if name is None:
            unknown.append(item.name)
            continue
        if name != item.name:
            log.warning("deprecated name of a hook, please write the new one", configured=item.name, hook=name)
        found.append(Wanted(name, item.optional))
    if unknown:
        raise HookSetupError(
            f"[inspector] hooks names {', '.join(repr(name) for name in unknown)}, which no installed package"
            f" provides; available: {', '.join(sorted(points)) or 'none (is the package installed?)'}"
        )
    return found


def _load(item: Wanted, points: Mapping[str, EntryPoint]) -> LoadedHook:
    point = points[item.name]
    try:
        hook = point.load()()
    except Exception as exc:
        raise HookSetupError(f"the hook {item.name} ({point.value}) cannot be loaded: {exc!r}") from exc
    if not isinstance(hook, InspectionHook):
        raise HookSetupError(
            f"the hook {item.name} ({point.value}) is no subclass of ferroscope.hooks.base.InspectionHook"
        )
    return LoadedHook(item.name, hook, item.optional)
