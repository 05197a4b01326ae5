"""Finds and builds exporters."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Final

from ferroscope.contracts.plugins import Exporter, ExportError, ExportOptions
from ferroscope_client.installed import EntryPoint

GROUP: Final = "ferroscope.exporters"
_ADVICE: Final = "fix or remove its package"


def names() -> list[str]:
    """Return the installed formats."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def load(name: str, options: ExportOptions, points: Iterable[EntryPoint] | None = None) -> Exporter:
    """Return the exporter of a format; ``ValueError`` for an unknown format or parameter, ``ExportError``."""
    points = entry_points(group=GROUP) if points is None else points
    points_by_value = {point.value: point for point in points if point.name == name}
    if not points_by_value:
        raise ValueError(f"unknown format; installed formats: {', '.join(names()) or 'none'}")
    if len(points_by_value) > 1:
        provided = " and ".join(sorted(points_by_value))
        raise ExportError(f"several installed packages provide the exporter {name!r}: {provided}", "uninstall one")
    value, point = points_by_value.popitem()
    try:
        exporter = point.load()(options)
    except ValueError:  # it says which parameter is wrong
        raise
    except Exception as exc:
        raise ExportError(
            f"exporter {name!r} ({value}) cannot be loaded: {exc!r}", "fix or remove its package"
        ) from exc
    missing = [member for member in ("fields", "write") if not hasattr(exporter, member)]
    if missing:
        raise ExportError(f"exporter {name!r} ({value}) lacks {', '.join(missing)}", _ADVICE)
    checked: Exporter = exporter
    return checked
