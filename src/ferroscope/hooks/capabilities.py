"""The property ``capabilities``: ``"boot_mode:uefi,cpu_vt:true"``, names and values in one text.

Source: the Bare Metal service, whose order is kept: what was there first stays first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.hooks.errors import HookError
from ferroscope.hooks.text import shown

_MAX_VALUE: Final = 255


def update(node: Node, new: Mapping[str, Any], remove: Iterable[str] = ()) -> None:
    """Set these capabilities of the node and take others away; ``HookError`` where it has malformed ones."""
    found = _parsed(node.properties)
    for name in remove:
        found.pop(name, None)
    found.update({name: str(value) for name, value in new.items()})
    text = ",".join(f"{name}:{value}" for name, value in found.items())
    if text or "capabilities" in node.properties:
        node.properties["capabilities"] = text


def is_value(value: object) -> bool:
    """Whether this can stand for a capability's value: a machine must not smuggle in other capabilities."""
    return (
        isinstance(value, str) and 0 < len(value) <= _MAX_VALUE and value.isprintable() and not set(value) & set(",:")
    )


def _parsed(properties: Document) -> dict[str, str]:
    text = properties.get("capabilities")
    if not text:
        return {}
    pairs = [item.partition(":") for item in text.split(",")] if isinstance(text, str) else []
    if not pairs or not all(colon for _name, colon, _value in pairs):
        raise HookError(
            Reason.HOOK_FAILED,
            f"the node's property capabilities is not 'name:value,...' but {shown(text)}; correct it, then reapply",
        )
    return {name: value for name, _colon, value in pairs}
