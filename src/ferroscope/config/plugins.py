"""Parts of installed packages that an option names: each is found by its entry point and built once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ferroscope_client.installed import EntryPoint, PluginError


class Plugins:
    """The plugins of one ``kind``, such as driver; ``option`` names them, such as [drivers] enabled."""

    def __init__(self, kind: str, option: str, points: Iterable[EntryPoint]) -> None:
        self._kind, self._option = kind, option
        self._points = list(points)

    def build(self, name: str, options: Any, lacks: Callable[[Any], str]) -> Any:
        """Return what the factory makes of ``options``; ``lacks(plugin)`` says what it lacks, "" if nothing.

        ``PluginError``.
        """
        point = self._only(name)
        label = f"{self._kind} {name!r} ({point.value})"
        advice = f"fix the {self._kind}'s package, or remove {name} from {self._option}"
        try:
            plugin = point.load()(options)
        except ModuleNotFoundError as exc:
            raise PluginError(
                f"{label} needs the Python package {exc.name}, which is not installed",
                f"install it on all hosts with an api or worker, or remove {name} from {self._option}",
            ) from exc
        except ValueError as exc:  # it says which option is wrong
            raise PluginError(f"{label} cannot be used: {exc}", f"correct the option, or {advice}") from exc
        except Exception as exc:
            raise PluginError(f"{label} cannot be loaded: {exc!r}", advice) from exc
        if missing := lacks(plugin):
            raise PluginError(f"{label} lacks {missing}", advice)
        return plugin

    def _only(self, name: str) -> EntryPoint:
        points = {point.value: point for point in self._points if point.name == name}
        if not points:
            installed = ", ".join(sorted({point.name for point in self._points}))
            raise PluginError(
                f"{self._option} has the unknown {self._kind} {name!r}",
                f"installed {self._kind}s: {installed or 'none (is the package ferroscope installed?)'}",
            )
        if len(points) > 1:
            values = " and ".join(sorted(points))
            message = f"several installed packages provide {self._kind} {name!r}: {values}"
            raise PluginError(message, "uninstall all but one")
        return next(iter(points.values()))


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
