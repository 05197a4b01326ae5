"""JSON documents that hooks share: a read-only one for the inventory, plain copies for the rest.

The read-only types are real dicts and lists (reading and encoding cost nothing extra), and
raise where the change is attempted, so that the culprit is the line in the traceback.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ferroscope.core.model import Document
from ferroscope.hooks.errors import ReadOnlyError


def read_only(document: Document) -> Document:
    """Return ``document`` as one that nobody can change, at any depth."""
    return ReadOnlyDict(
        {
            key: _freeze(value) if (kind := type(value)) is dict or kind is list else value
            for key, value in document.items()
        }
    )


def copied(document: Document) -> Document:
    """Return a copy of ``document`` that shares no dict and no list with it."""
    return {
        key: _copy(value) if (kind := type(value)) is dict or kind is list else value for key, value in document.items()
    }


def _freeze(value: Any) -> Any:
    if type(value) is dict:
        return read_only(value)
    return ReadOnlyList([_freeze(item) if (kind := type(item)) is dict or kind is list else item for item in value])


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return copied(value)
    return [_copy(item) if (kind := type(item)) is dict or kind is list else item for item in value]


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise ReadOnlyError("the inventory is read-only: put what you derive from it into plugin_data")


class ReadOnlyDict(dict[str, Any]):
    """A dict that refuses every change; ``dict(it)`` and ``it.copy()`` are ordinary dicts."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> Document:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Document:
        return {key: _thaw(value) for key, value in self.items()}


class ReadOnlyList(list[Any]):
    """A list that refuses every change; ``list(it)`` and ``it.copy()`` are ordinary lists."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [_thaw(value) for value in self]


def _thaw(value: Any) -> Any:
    return value.__deepcopy__({}) if isinstance(value, ReadOnlyDict | ReadOnlyList) else value
