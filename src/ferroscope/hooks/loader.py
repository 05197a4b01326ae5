"""Finds, loads and orders the hooks of ``[inspector] hooks``, once, when a worker starts.

All errors in the list are reported together, with what to change; no inspection ever meets a missing hook.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Final

import msgspec
import structlog

from ferroscope.config.options import InspectorSettings
from ferroscope.hooks.base import HookSetupError, InspectionHook, adapt
from ferroscope_client.installed import EntryPoint

# The list ``[inspector] hooks`` and the meaning of its items. Pure.
#
# ``$default_hooks`` stands for the default list; the failure of an optional ``?name`` is only a warning. Names are
# entry point names with dashes. Underscores, from older configurations, are accepted, and so are ironic-inspector's
# names of hooks that have another name here.

_DEFAULTS: Final = frozenset({"$default_hooks", "${default_hooks}"})
_OPTIONAL: Final = "?"

RENAMED: Final = {
    "lldp_basic": "parse-lldp",
    "physnet_cidr_map": "physical-network",
    "root_disk_selection": "root-device",
}


class HookItem(msgspec.Struct, frozen=True):
    """One item of the list; if it is ``optional``, its failure does not fail the node."""

    name: str
    optional: bool = False


def expand(hooks: str | Sequence[str], default_hooks: Sequence[str]) -> tuple[str, ...]:
    """Return the list with ``$default_hooks`` replaced: ``"my-hook,$default_hooks"`` -> its names.

    ``hooks`` is the option's text or its items; empty items are dropped, ``?`` marks are kept.
    """
    items = hooks.split(",") if isinstance(hooks, str) else hooks
    names: list[str] = []
    for item in items:
        name = item.strip()
        if name in _DEFAULTS:
            names.extend(default_hooks)
        elif name:
            names.append(name)
    return tuple(names)


def parse(item: str) -> HookItem:
    """Return the parsed item of an expanded list."""
    name = item.strip()
    if name.startswith(_OPTIONAL):
        return HookItem(name.removeprefix(_OPTIONAL).strip(), optional=True)
    return HookItem(name)


def resolve(name: str, available: Container[str]) -> str | None:
    """Return the available hook for ``name``: the same name, the spelling with dashes, or the new name; or None."""
    spellings = (name, name.replace("_", "-"), RENAMED.get(name, name))
    return next((spelling for spelling in spellings if spelling in available), None)


GROUP: Final = "ferroscope.hooks"


class LoadedHook(msgspec.Struct, frozen=True):
    """A hook under its entry point name."""

    name: str
    hook: InspectionHook
    optional: bool = False


def available() -> dict[str, EntryPoint]:
    """Return every installed hook by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load(settings: InspectorSettings, points: Mapping[str, EntryPoint] | None = None) -> tuple[LoadedHook, ...]:
    """Return the configured hooks in order; ``HookSetupError`` if that is not possible."""
    points = available() if points is None else points
    items = [parse(item) for item in expand(settings.hooks, settings.default_hooks)]
    hooks = tuple(_load(item, points) for item in _resolve_all(items, points))
    check_order(hooks)
    _configure(hooks, settings)
    return hooks


def check_order(hooks: Sequence[LoadedHook]) -> None:
    """Raise ``HookSetupError`` if a hook precedes one that it depends on, or is listed twice."""
    names = [hook.name for hook in hooks]
    problems = [f"{name} is listed twice: remove one" for name in dict.fromkeys(names) if names.count(name) > 1]
    for index, hook in enumerate(hooks):
        for needed in hook.hook.dependencies:
            if needed in names[:index]:
                continue
            verb = "move" if needed in names else "add"
            problems.append(f"{hook.name} depends on {needed}: {verb} {needed} before {hook.name}")
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


def _resolve_all(items: Sequence[HookItem], points: Mapping[str, EntryPoint]) -> list[HookItem]:
    log = structlog.get_logger(__name__)
    resolved = []
    unknown = []
    for item in items:
        name = resolve(item.name, points)
        if name is None:
            unknown.append(item.name)
            continue
        if name != item.name:
            log.warning("deprecated hook name; use the new one", configured=item.name, hook=name)
        resolved.append(HookItem(name, item.optional))
    if unknown:
        raise HookSetupError(
            f"[inspector] hooks has {', '.join(repr(name) for name in unknown)}, which no installed package"
            f" provides; available: {', '.join(sorted(points)) or 'none (is the package installed?)'}"
        )
    return resolved


def _load(item: HookItem, points: Mapping[str, EntryPoint]) -> LoadedHook:
    point = points[item.name]
    try:
        hook = adapt(point.load()())
    except Exception as exc:
        raise HookSetupError(f"hook {item.name!r} ({point.value}) cannot be loaded: {exc!r}") from exc
    if hook is None:
        raise HookSetupError(
            f"hook {item.name!r} ({point.value}) cannot be called with (task, inventory, plugin_data): derive it from "
            "ferroscope.hooks.base.InspectionHook"
        )
    return LoadedHook(item.name, hook, item.optional)
