"""``extra-hardware``: converts the records of the collector extra-hardware into a document.

``plugin_data.data`` is ``[["cpu", "physical_0", "cores", "8"], ...]``; it is replaced by ``plugin_data.extra``:
``{"cpu": {"physical_0": {"cores": 8}}}``.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from ferroscope.core.model import Document
from ferroscope.core.values import many
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.helpers import warn

_ITEMS: Final = 4
_LARGEST: Final = (1 << 63) - 1
_MAX_DIGITS: Final = 20


class ExtraHardwareHook(InspectionHook):
    """Converts `plugin_data.data` to `plugin_data.extra`; strings that are integers become numbers."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        if "data" not in plugin_data:
            warn(task, "extra-hardware", "the ramdisk sent no extra hardware data; enable its collector extra-hardware")
            return
        data, strict = plugin_data["data"], task.settings.extra_hardware_strict
        if not is_list_of_records(data, strict=strict):
            if strict:
                del plugin_data["data"]
            warn(
                task,
                "extra-hardware",
                f"the extra hardware data is not a list of records; it was {'dropped' if strict else 'left unchanged'}",
            )
            return
        extra, ignored = converted(data)
        if ignored:
            warn(
                task,
                "extra-hardware",
                f"ignored {many(ignored, 'malformed record')} of the extra hardware data",
            )
        plugin_data["extra"] = extra
        del plugin_data["data"]


def is_list_of_records(data: object, *, strict: bool) -> bool:
    """Whether these are the records of the collector; ``strict``: each has four items."""
    return isinstance(data, list) and all(
        isinstance(item, list) and (not strict or len(item) == _ITEMS) for item in data
    )


def converted(data: list[list[Any]]) -> tuple[Document, int]:
    """Return the document, and the number of ignored records; the valid names of those are kept."""
    extra: Document = {}
    ignored = 0
    for item in data:
        if not item:
            continue
        names = _names(item)
        place = extra
        for name in names[:2]:
            place = place.setdefault(name, {})
        if len(names) < _ITEMS - 1 or len(item) < _ITEMS:
            ignored += 1
        else:
            place[names[2]] = _number(item[3])
    return extra, ignored


def _names(item: list[Any]) -> list[str]:
    """Return the first three items of a record, up to the first that is not a name."""
    parts = itertools.takewhile(lambda part: isinstance(part, str | int) and not isinstance(part, bool), item[:3])
    return [str(part) for part in parts]


def _number(value: object) -> object:
    if isinstance(value, str) and len(value) > _MAX_DIGITS:
        return value
    if not isinstance(value, str | float):
        return value
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return value
    return number if abs(number) <= _LARGEST else value
