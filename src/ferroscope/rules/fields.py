"""What rules may write on nodes and ports, and the type of each field.

Never a state, a UUID, an address or internal data: these are not for rules to change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ferroscope.core import labels, values
from ferroscope.core.model import Document, Node, Port
from ferroscope.core.node import SETTABLE, Form, NodeField
from ferroscope.rules.data import MAX_PATH, InvalidRuleError, RuleError

Check = Callable[[Any], str | None]


def _text(longest: int, *, empty: bool = False) -> Check:
    def check(value: Any) -> str | None:
        if value is None and not empty:
            return None
        if not isinstance(value, str) or len(value) > longest:
            return f"must be a string of at most {longest} characters"
        return None

    return check


def _name(value: Any) -> str | None:
    return None if value is None or (isinstance(value, str) and values.is_name(value)) else f"must be {values.NAME}"


def _group(value: Any) -> str | None:
    fits = isinstance(value, str) and values.is_group(value)
    return None if fits else "must contain only a-z, 0-9, '-', '.' and '_'"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _flag_or_none(value: Any) -> str | None:
    return None if value is None else _flag(value)


def _document(value: Any) -> str | None:
    return None if isinstance(value, dict) else "must be an object"


def _check(field: NodeField) -> Check:
    if field.form is Form.LABELS:
        return labels.problem
    if field.plain is bool:
        return _flag_or_none if field.nullable else _flag
    if field.plain is Document:
        return _document
    of_form = {Form.NAME: _name, Form.GROUP: _group}.get(field.form)
    return of_form or _text(field.length or 0, empty=not field.nullable)


_OF_NODES: Final = tuple(field for field in SETTABLE.values() if field.rules)
NODE_FIELDS: Final[dict[str, Check]] = {field.name: _check(field) for field in _OF_NODES}

PORT_FIELDS: Final[dict[str, Check]] = {
    "name": _name,
    "pxe_enabled": _flag,
    "physical_network": _text(64),
    "local_link_connection": _document,
    "extra": _document,
    "is_smartnic": _flag_or_none,
    "description": _text(255),
    "category": _text(80),
}

_DOCUMENTS: Final = frozenset(
    {name for table in (NODE_FIELDS, PORT_FIELDS) for name in table if table[name] in (_document, labels.problem)}
)
_EMPTY: Final[dict[str, Any]] = {field.name: field.default for field in _OF_NODES if field.stored} | {
    "pxe_enabled": True
}


def path(text: Any) -> list[str]:
    """Return the parts of ``/properties/a`` or ``properties.a``; ``InvalidRuleError``."""
    if not isinstance(text, str) or not text.strip("/."):
        raise InvalidRuleError(["invalid path: expected, for example, properties/size or extra.rack"])
    if "/" in text:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in text.strip("/").split("/")]
    else:
        parts = text.split(".")
    if not all(parts) or len(parts) > MAX_PATH:
        raise InvalidRuleError([f"invalid path {text[:80]!r}: empty parts, or more than {MAX_PATH} parts"])
    return parts


def writable(parts: Sequence[str], known: dict[str, Check]) -> str | None:
    """Return what is wrong with the target of a write; None if a rule may write there."""
    if parts[0] not in known:
        return f"rules cannot write {parts[0][:64]!r}; writable: {', '.join(sorted(known))}"
    if len(parts) > 1 and parts[0] not in _DOCUMENTS:
        return f"{parts[0]} has no parts; write it as a whole"
    return None


def get_field(thing: Node | Port, name: str) -> Any:
    """Return a field of the node or port, whether it is a column or an attribute."""
    stored = getattr(thing, name) if name in type(thing).__struct_fields__ else thing.attributes.get(name)
    return {} if stored is None and name in _DOCUMENTS else stored


def set_field(thing: Node | Port, name: str, value: Any, known: dict[str, Check]) -> None:
    """Write a whole field; ``RuleError`` if the value has the wrong type."""
    check = known[name]
    if check in (_flag, _flag_or_none) and isinstance(value, str):
        flag = values.parse(value)
        value = value if flag is None else flag
    problem = check(value)
    if problem is not None:
        raise RuleError(f"{name} {problem}; got {type(value).__name__} {str(value)[:60]!r}")
    if name in type(thing).__struct_fields__:
        setattr(thing, name, value)
    elif value in (None, {}):
        thing.attributes.pop(name, None)
    else:
        thing.attributes[name] = value


def empty(name: str) -> Any:
    """Return the value of a deleted field."""
    return {} if name in _DOCUMENTS else _EMPTY.get(name)


def put(document: Document, parts: Sequence[str], value: Any) -> None:
    """Set a value in ``document``, creating missing objects; ``RuleError`` if a parent is not an object."""
    _descend(document, parts[:-1])[parts[-1]] = value


def take_out(document: Document, parts: Sequence[str]) -> bool:
    """Delete a value in ``document``; return whether it existed."""
    current: Any = document
    for part in parts[:-1]:
        if not isinstance(current, dict) or part not in current:
            return False
        current = current[part]
    if not isinstance(current, dict) or parts[-1] not in current:
        return False
    del current[parts[-1]]
    return True


def extend(document: Document, parts: Sequence[str], value: Any, *, unique: bool) -> None:
    """Append to a list in ``document``, which is created if missing; ``RuleError``."""
    items = _descend(document, parts[:-1]).setdefault(parts[-1], [])
    if not isinstance(items, list):
        raise RuleError(f"{'/'.join(parts)} is not a list, so it cannot be extended")
    if not unique or value not in items:
        items.append(value)


def _descend(document: Document, parts: Sequence[str]) -> Document:
    """Return the object at this path, creating missing objects; ``RuleError`` if a parent is not an object."""
    current = document
    for part in parts:
        current = current.setdefault(part, {})
        if not isinstance(current, dict):
            raise RuleError(f"{part!r} is not an object, so nothing can be written below it")
    return current
