"""``root-device``: determines the disk for the operating system, and its size.

The node's hints (``properties.root_device``) select one of the disks that ``properties.skip_block_devices`` does not
exclude; without hints it is the disk selected by the ramdisk. The result is ``plugin_data.root_disk`` and, in GiB,
``local_gb`` in plugin data and properties.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ferroscope.core.model import Document
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.helpers import listing, printable, records, set_number, warn
from ferroscope_client.core import values
from ferroscope_client.core.reasons import Reason
from ferroscope_client.hardware import readings

TEXTS: Final = (
    *("model", "wwn", "serial", "vendor", "wwn_with_extension", "wwn_vendor_extension"),
    *("name", "hctl", "by_path"),
)
NAMES: Final = ("size", *TEXTS, "rotational")
_MAX_LENGTH: Final = 4096
_MAX_DIGITS: Final = 30

# Longer operators first. "=" means "at least", for compatibility.
_OPERATORS: Final = re.compile(r"<(?:in|all-in|or|range-in)>|s(?:==|!=|<=|>=|<|>)|==|!=|<=|>=|=|<|>")
_RANGE: Final = re.compile(r"(?P<left>[\[(])\s*(?P<low>\S+)\s+(?P<high>[^\s\])]+)\s*(?P<right>[\])])\Z")

_NUMBERS: Final[dict[str, Callable[[float, float], bool]]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_STRINGS: Final[dict[str, Callable[[str, str], bool]]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<=": operator.le,
    "s>=": operator.ge,
    "s<": operator.lt,
    "s>": operator.gt,
    "<in>": lambda value, wanted: wanted in value,
    "<all-in>": lambda value, wanted: all(word in value for word in wanted.split()),
}

Test = Callable[[Any], bool]


class HintError(ValueError):
    """The hints are invalid; the message says which, and what is expected."""


class Hints:
    """Parsed hints. ``HintError`` if they are invalid."""

    def __init__(self, hints: object) -> None:
        if not isinstance(hints, dict) or not hints:
            raise HintError(f"root device hints must be an object such as {{'size': '>= 100'}}, not {printable(hints)}")
        unknown = [name for name in hints if name not in NAMES]
        if unknown:
            raise HintError(f"unknown root device hints {listing(unknown)}; available: {', '.join(NAMES)}")
        self._tests = {name: _test(name, expression) for name, expression in hints.items()}

    def matching(self, disks: Sequence[Document]) -> Iterator[Document]:
        """Return the disks that match all hints, in order."""
        return (disk for disk in disks if all(test(disk.get(name)) for name, test in self._tests.items()))


def _test(name: str, expression: object) -> Test:
    if name == "rotational":
        wanted = _boolean(expression)
        if wanted is None:
            raise HintError(f"the hint rotational must be true or false, not {printable(expression)}")
        return lambda value: _boolean(value) is wanted
    if name == "size":
        number = isinstance(expression, int | float) and not isinstance(expression, bool) and expression < _MAX_NUMBER
        if not number and not isinstance(expression, str):
            raise HintError(f"the hint size must be a number of GiB, not {printable(expression)}")
        return _size(*_split(name, str(expression)))
    if not isinstance(expression, str):
        raise HintError(f"the hint {name} must be a string, not {printable(expression)}")
    return _text(name, *_split(name, expression))


def _split(name: str, expression: str) -> tuple[str, str]:
    """Return the operator, empty if there is none, and the rest, in lower case."""
    text = expression.strip().lower()
    if not text or len(text) > _MAX_LENGTH:
        raise HintError(f"the hint {name} is empty" if not text else f"the hint {name} is too long")
    match = _OPERATORS.match(text)
    if match is None:
        return "", text
    rest = text[match.end() :].strip()
    if not rest:
        raise HintError(f"the hint {name} has no value after {match[0]}")
    return match[0], rest


def _size(symbol: str, rest: str) -> Test:
    """Return the test of a disk's size in bytes; the hint is in GiB."""
    if symbol == "<range-in>":
        within = _range("size", rest)
    elif symbol == "<or>":
        sizes = [_gib(item) for item in _alternatives(rest)]
        within = sizes.__contains__
    elif symbol in _NUMBERS or not symbol:
        wanted, compare = _gib(rest), _NUMBERS[symbol or "=="]
        within = lambda value: compare(value, wanted)  # noqa: E731  # the three branches read alike
    else:
        raise HintError(f"the operator {symbol} is for strings, but the hint size is a number")

    def test(value: Any) -> bool:
        size = readings.number(value)
        return size is not None and 0 <= size < _MAX_NUMBER and within(size / _BYTES_PER_GIB)

    return test


def _text(name: str, symbol: str, rest: str) -> Test:
    """Return the test of a disk's string attribute."""
    if symbol in _NUMBERS or symbol == "<range-in>":
        return _numeric_text(name, symbol, rest)
    if symbol == "<or>":
        alternatives = _alternatives(rest)
        return lambda value: _lower(value) in alternatives
    compare = _STRINGS[symbol or "s=="]

    def test(value: Any) -> bool:
        if value is None:
            return symbol == "s!="  # a missing value differs from every value, and matches nothing else
        text = _lower(value)
        return text is not None and compare(text, rest)

    return test


def _numeric_text(name: str, symbol: str, rest: str) -> Test:
    if symbol == "<range-in>":
        within = _range(name, rest)
    else:
        wanted, compare = _number(name, rest), _NUMBERS[symbol]
        within = lambda value: compare(value, wanted)  # noqa: E731

    def test(value: Any) -> bool:
        text = _lower(value)
        if text is None or len(text) > _MAX_DIGITS:
            return False
        try:
            return within(float(text))
        except ValueError:
            return False

    return test


def _alternatives(rest: str) -> list[str]:
    return [item for part in rest.split("<or>") if (item := part.strip())]


def _range(name: str, rest: str) -> Callable[[float], bool]:
    """Return the test for a range; ``[`` and ``]`` include the end, ``(`` and ``)`` exclude it."""
    match = _RANGE.match(rest)
    if match is None:
        raise HintError(f"the hint {name} requires a range such as <range-in> [ 10 20 ), not {printable(rest)}")
    low, high = _number(name, match["low"]), _number(name, match["high"])
    if low > high:
        raise HintError(f"the range of the hint {name} is empty: its start is after its end")
    above = operator.ge if match["left"] == "[" else operator.gt
    below = operator.le if match["right"] == "]" else operator.lt
    return lambda value: above(value, low) and below(value, high)


def _number(name: str, text: str) -> float:
    try:
        if len(text) <= _MAX_DIGITS:
            return float(text)
    except ValueError:
        pass
    raise HintError(f"the hint {name} requires a number, not {printable(text)}")


def _gib(text: str) -> float:
    if text.isdecimal() and len(text) <= _MAX_DIGITS and int(text) > 0:
        return float(text)
    raise HintError(f"the hint size must be a whole number of GiB greater than 0, not {printable(text)}")


def _lower(value: object) -> str | None:
    """Return a disk's attribute for comparison; None if it is empty or not a string."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return value.strip().lower() or None if isinstance(value, str) else None


def _boolean(value: object) -> bool | None:
    return values.parse(str(value)) if isinstance(value, str | int) else None


_BYTES_PER_GIB: Final = 1 << 30
_MAX_NUMBER: Final = 1 << 80


class RootDeviceHook(InspectionHook):
    """Writes `plugin_data.root_disk` by the node's hints, and `local_gb`, less `disk_partitioning_spacing`."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        hints = task.node.properties.get("root_device")
        if hints:
            plugin_data["root_disk"] = copy.deepcopy(_choose_disk(task, hints, inventory))
        size = _local_gb(task, plugin_data.get("root_disk"))
        plugin_data["local_gb"] = size
        set_number(task, "local_gb", size)


def _choose_disk(task: HookTask, hints: Any, inventory: Document) -> Document:
    """Return the first disk that matches the hints; ``HookError`` if none does."""
    try:
        candidates = _without_skipped(task, records(inventory, "disks"))
        disk = next(Hints(hints).matching(candidates), None)
    except HintError as exc:
        raise HookError(
            Reason.HOOK_FAILED, f"{exc}; correct the node's properties root_device or skip_block_devices, then reapply"
        ) from exc
    if disk is None:
        names = listing(disk.get("name") for disk in candidates) or "none"
        raise HookError(
            Reason.INVALID_INVENTORY, f"no disk matches the root device hints {printable(hints)}; disks: {names}"
        )
    return disk


def _without_skipped(task: HookTask, disks: list[Document]) -> list[Document]:
    """Return the disks that match no entry of ``skip_block_devices``."""
    entries = task.node.properties.get("skip_block_devices")
    if not entries:
        return disks
    if not isinstance(entries, list):
        raise HintError(f"skip_block_devices must be a list of hints, not {printable(entries)}")
    skipped = {id(disk) for entry in entries for disk in Hints(entry).matching(disks)}
    return [disk for disk in disks if id(disk) not in skipped]


def _local_gb(task: HookTask, disk: Any) -> int:
    if not disk:
        return 0  # a machine without disks needs no warning
    reported = disk.get("size") if isinstance(disk, dict) else None
    size = readings.number(reported)
    gib = int(size // _BYTES_PER_GIB) if size is not None and 0 < size < _MAX_NUMBER else 0
    if not gib:
        warn(
            task, "root-device", f"the root disk is smaller than 1 GiB, or its size is unknown ({printable(reported)})"
        )
    return max(0, gib - task.settings.disk_partitioning_spacing)
