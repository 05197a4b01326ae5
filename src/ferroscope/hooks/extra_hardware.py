"""``extra-hardware``: converts the records of the collector extra-hardware into a document.

``plugin_data.data`` is ``[["cpu", "physical_0", "cores", "8"], ...]``; it is replaced by ``plugin_data.extra``:
``{"cpu": {"physical_0": {"cores": 8}}}``.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from ferroscope.core.model import Document
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.helpers import warn
from ferroscope_client.core.values import many

_RECORD_ITEMS: Final = 4
_MAX_INTEGER: Final = (1 << 63) - 1
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
        extra, ignored = convert_records(data)
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
        isinstance(record, list) and (not strict or len(record) == _RECORD_ITEMS) for record in data
    )


def convert_records(data: list[list[Any]]) -> tuple[Document, int]:
    """Return the document, and the number of ignored records, whose valid names are kept."""
    extra: Document = {}
    ignored_count = 0
    for record in data:
        if not record:
            continue
        names = _names(record)
        target = extra
        for name in names[:2]:
            target = target.setdefault(name, {})
        if len(names) < _RECORD_ITEMS - 1 or len(record) < _RECORD_ITEMS:
            ignored_count += 1
        else:
            target[names[2]] = _number(record[3])
    return extra, ignored_count


def _names(record: list[Any]) -> list[str]:
    """Return the first three items of a record, up to the first that is not a name."""
    parts = itertools.takewhile(lambda part: isinstance(part, str | int) and not isinstance(part, bool), record[:3])
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
    return number if abs(number) <= _MAX_INTEGER else value
