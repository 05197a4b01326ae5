"""Conditions and actions as every reader sees them: their secrets masked, by name.

The name of a secret is often in another argument than its value: a path such as ``/driver_info/redfish_password``, a
header, a placeholder, an item of a loop. A masked condition or action can be sent back unchanged and then stays as it
is stored. A changed one needs its secrets again, so that no secret can be moved to a visible place. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ferroscope.core.model import Document
from ferroscope.rules.actions import ACTIONS
from ferroscope.rules.conditions import OPERATORS
from ferroscope.rules.data import InvalidRuleError
from ferroscope_client.core import values
from ferroscope_client.core.values import MASK

_NAMING: Final = frozenset({"path", "name", "field"})
_VALUES: Final = frozenset({"value", "values", "regex"})
# Arguments into which data is rendered.
_RENDERED: Final = _VALUES | {"msg", "url"}
_PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")


def mask_items(items: Sequence[Document]) -> list[Document]:
    """Return conditions or actions with their secrets masked."""
    return [_mask_item(item) for item in items]


def mask_rendered(item: Document, args: Document) -> Document:
    """Return the rendered arguments of a condition or an action with their secrets masked."""
    masked = values.mask(args)
    if _names_secret(item) or _names_secret({"op": item.get("op"), "args": args}):
        return {name: MASK if value and name in _RENDERED else value for name, value in masked.items()}
    return masked


def restore_items(where: str, items: Sequence[Document], stored: Sequence[Document]) -> list[Document]:
    """Return conditions or actions with the stored secrets in place of masks; ``InvalidRuleError``."""
    return [_restore_item(f"{where}[{number}]", number, item, stored) for number, item in enumerate(items)]


def _restore_item(where: str, number: int, sent: Document, stored: Sequence[Document]) -> Document:
    for item in [*stored[number : number + 1], *stored]:
        if sent in (item, _mask_item(item)):
            return item
    if values.holds_mask(sent):
        raise InvalidRuleError(
            [f"{where} contains {MASK}, the mask of a secret, and no stored one is shown like this; enter its secrets"]
        )
    return sent


def _mask_item(item: Document) -> Document:
    masked = {key: _without_parameters(value) for key, value in values.mask(item).items()}
    if not _names_secret(item):
        return masked
    if "loop" in masked:
        masked["loop"] = _mask_literals(masked["loop"])
    args = masked.get("args")
    if isinstance(args, dict):
        masked["args"] = {key: _mask_literals(value) if key in _VALUES else value for key, value in args.items()}
    elif isinstance(args, list):
        names = _positional_names(item.get("op"), args)
        masked["args"] = [
            _mask_literals(value) if name in _VALUES else value for name, value in zip(names, args, strict=True)
        ]
    return masked


def _without_parameters(value: Any) -> Any:
    """Return the value with the tokens in URLs masked, including URLs whose host is a placeholder."""
    if isinstance(value, str):
        return values.without_parameters(value)
    if isinstance(value, dict):
        return {key: _without_parameters(item) for key, item in value.items()}
    return [_without_parameters(item) for item in value] if isinstance(value, list) else value


def _mask_literals(value: Any) -> Any:
    """Return the value with everything masked except placeholders."""
    if isinstance(value, dict):
        return {key: _mask_literals(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask_literals(item) for item in value]
    if not value or isinstance(value, bool) or (isinstance(value, str) and _PLACEHOLDER.fullmatch(value)):
        return value
    return MASK


def _names_secret(item: Document) -> bool:
    """Whether an argument, a placeholder, or an item of the loop is the name of a secret."""
    args = item.get("args")
    if isinstance(args, list):
        names = zip(_positional_names(item.get("op"), args), args, strict=True)
    else:
        names = zip(args, args.values(), strict=True) if isinstance(args, dict) else zip((), (), strict=True)
    for name, value in names:
        if name in _NAMING and isinstance(value, str) and values.is_secret(value):
            return True
        if any(values.is_secret(inner) for text in _texts(value) for inner in _PLACEHOLDER.findall(text)):
            return True
    return any(map(values.is_secret, _texts(item.get("loop"))))


def _positional_names(op: Any, args: list[Any]) -> list[str]:
    """Return the name of each positional argument; arguments of an unknown operation are all values."""
    operation = ACTIONS.get(str(op)) or OPERATORS.get(str(op).strip().removeprefix("!").strip())
    names = [argument.name for argument in operation.arguments.arguments] if operation else []
    if names[:1] == ["values"] and not (args and isinstance(args[0], list)):
        names = []
    return (names + ["values"] * len(args))[: len(args)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
