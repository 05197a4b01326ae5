"""The actions that write: attributes of the node and its ports, capabilities, traits, plugin data."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from ferroscope.core.model import Document, Node, Port
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookError
from ferroscope.rules.data import MAX_PATH, Acting, InvalidRuleError, RuleError
from ferroscope_client.core import labels, values
from ferroscope_client.core.driver_names import not_enabled
from ferroscope_client.core.node import SETTABLE, NodeField, TextForm
from ferroscope_client.core.values import MAX_TRAITS

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
    if field.form is TextForm.LABELS:
        return labels.problem
    if field.plain is bool:
        return _flag_or_none if field.nullable else _flag
    if field.plain is Document:
        return _document
    of_form = {TextForm.NAME: _name, TextForm.GROUP: _group}.get(field.form)
    return of_form or _text(field.length or 0, empty=not field.nullable)


_OF_NODES: Final = tuple(field for field in SETTABLE.values() if field.rules)
NODE_FIELDS: Final[dict[str, Check]] = {field.name: _check(field) for field in _OF_NODES}

PORT_FIELDS: Final[dict[str, Check]] = {
    "name": _text(255),
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


def writable(parts: Sequence[str], checks: dict[str, Check]) -> str | None:
    """Return the problem of a target; None if a rule may write there."""
    if parts[0] not in checks:
        return f"rules cannot write {parts[0][:64]!r}; writable: {', '.join(sorted(checks))}"
    if len(parts) > 1 and parts[0] not in _DOCUMENTS:
        return f"{parts[0]} has no parts; write it as a whole"
    return None


def get_field(target: Node | Port, name: str) -> Any:
    """Return a field of the node or port, whether it is a column or an attribute."""
    stored = getattr(target, name) if name in type(target).__struct_fields__ else target.attributes.get(name)
    return {} if stored is None and name in _DOCUMENTS else stored


def set_field(target: Node | Port, name: str, value: Any, checks: dict[str, Check]) -> None:
    """Write a whole field; ``RuleError`` if the value has the wrong type."""
    check = checks[name]
    if check in (_flag, _flag_or_none) and isinstance(value, str):
        flag = values.parse(value)
        value = value if flag is None else flag
    problem = check(value)
    if problem is not None:
        raise RuleError(f"{name} {problem}; got {type(value).__name__} {str(value)[:60]!r}")
    if name in type(target).__struct_fields__:
        setattr(target, name, value)
    elif value in (None, {}):
        target.attributes.pop(name, None)
    else:
        target.attributes[name] = value


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


_TRAIT: Final = re.compile(r"[A-Z][A-Z0-9_]{0,254}\Z", re.ASCII)
_CAPABILITY: Final = re.compile(r"[^,:\s]{1,255}\Z")
_TRUE: Final = (True, "true", "True", "yes", 1, "1")


def node_path(value: Any) -> str | None:
    return None if _has_template(value) else _target(value, NODE_FIELDS)


def port_path(value: Any) -> str | None:
    return None if _has_template(value) else _target(value, PORT_FIELDS)


def _has_template(value: Any) -> bool:
    """Whether the path has braces: as in the Bare Metal service, it is checked when the rule runs."""
    return isinstance(value, str) and "{" in value


def data_path(value: Any) -> str | None:
    return _target(value, None)


def _target(value: Any, checks: dict[str, Check] | None) -> str | None:
    try:
        parts = path(value)
    except InvalidRuleError as exc:
        return str(exc)
    return None if checks is None else writable(parts, checks)


def _parse_path(value: Any, checks: dict[str, Check] | None) -> list[str]:
    problem = _target(value, checks)
    if problem is not None:
        raise RuleError(problem)
    return path(value)


def trait(value: Any) -> str | None:
    if isinstance(value, str) and _TRAIT.match(value):
        return None
    return f"invalid trait {str(value)[:64]!r}: expected A-Z, 0-9 and _, for example CUSTOM_GOLD"


def reset_needs_driver(args: Document) -> str | None:
    if args.get("reset_interfaces") is not None and str(args.get("path", "")).strip("/") != "driver":
        return "reset_interfaces can be used only with the path driver"
    return None


def set_attribute(acting: Acting, args: Document) -> None:
    node, parts, value = acting.rule_context.node, _parse_path(args["path"], NODE_FIELDS), args["value"]
    if parts == ["driver"]:
        _check_driver(acting, value)
        if args["reset_interfaces"] in _TRUE:
            for name in [name for name in node.attributes if name.endswith("_interface")]:
                del node.attributes[name]
    _set(node, parts, value, NODE_FIELDS)


def extend_attribute(acting: Acting, args: Document) -> None:
    _extend(
        acting.rule_context.node, _parse_path(args["path"], NODE_FIELDS), args["value"], unique=args["unique"] in _TRUE
    )


def del_attribute(acting: Acting, args: Document) -> None:
    parts = _parse_path(args["path"], NODE_FIELDS)
    if parts == ["driver"]:
        raise RuleError("the driver of a node cannot be removed; set another one")
    _delete(acting.rule_context.node, parts, NODE_FIELDS)


def set_capability(acting: Acting, args: Document) -> None:
    name, value = _capability(args["name"]), str(args["value"])
    if not helpers.is_value(value):
        raise RuleError(f"invalid capability value {value[:60]!r}: it must be short, without ',' and ':'")
    _update_capabilities(acting, {name: value})


def unset_capability(acting: Acting, args: Document) -> None:
    _update_capabilities(acting, {}, _capability(args["name"]))


def add_trait(acting: Acting, args: Document) -> None:
    problem = trait(args["name"])
    if problem is not None:
        raise RuleError(problem)
    traits = list(acting.rule_context.node.attributes.get("traits", []))
    if args["name"] not in traits:
        traits.append(args["name"])
    if len(traits) > MAX_TRAITS:
        raise RuleError(f"a node can have at most {MAX_TRAITS} traits")
    acting.rule_context.node.attributes["traits"] = traits


def remove_trait(acting: Acting, args: Document) -> None:
    traits = [trait for trait in acting.rule_context.node.attributes.get("traits", []) if trait != args["name"]]
    if traits:
        acting.rule_context.node.attributes["traits"] = traits
    else:
        acting.rule_context.node.attributes.pop("traits", None)


def set_plugin_data(acting: Acting, args: Document) -> None:
    put(acting.rule_context.plugin_data, _parse_path(args["path"], None), args["value"])


def extend_plugin_data(acting: Acting, args: Document) -> None:
    parts = _parse_path(args["path"], None)
    extend(acting.rule_context.plugin_data, parts, args["value"], unique=args["unique"] in _TRUE)


def unset_plugin_data(acting: Acting, args: Document) -> None:
    take_out(acting.rule_context.plugin_data, _parse_path(args["path"], None))


def set_port_attribute(acting: Acting, args: Document) -> None:
    port, parts = acting.rule_context.port(args["port_id"]), _parse_path(args["path"], PORT_FIELDS)
    _set(port, parts, args["value"], PORT_FIELDS)
    acting.rule_context.save_port(port)


def extend_port_attribute(acting: Acting, args: Document) -> None:
    port, parts = acting.rule_context.port(args["port_id"]), _parse_path(args["path"], PORT_FIELDS)
    _extend(port, parts, args["value"], unique=args["unique"] in _TRUE)
    acting.rule_context.save_port(port)


def del_port_attribute(acting: Acting, args: Document) -> None:
    port = acting.rule_context.port(args["port_id"])
    _delete(port, _parse_path(args["path"], PORT_FIELDS), PORT_FIELDS)
    acting.rule_context.save_port(port)


def _set(target: Node | Port, parts: list[str], value: Any, checks: dict[str, Check]) -> None:
    if len(parts) > 1:
        document = dict(get_field(target, parts[0]))  # a copy: the check of the whole may reject it
        put(document, parts[1:], value)
        value = document
    set_field(target, parts[0], value, checks)


def _extend(target: Node | Port, parts: list[str], value: Any, *, unique: bool) -> None:
    if len(parts) == 1:
        raise RuleError(f"{parts[0]} is not a list, so it cannot be extended")
    document = get_field(target, parts[0])
    extend(document, parts[1:], value, unique=unique)
    set_field(target, parts[0], document, NODE_FIELDS if isinstance(target, Node) else PORT_FIELDS)


def _delete(target: Node | Port, parts: list[str], checks: dict[str, Check]) -> None:
    if len(parts) > 1:
        take_out(get_field(target, parts[0]), parts[1:])
    else:
        set_field(target, parts[0], empty(parts[0]), checks)


def _check_driver(acting: Acting, value: Any) -> None:
    if value not in acting.rule_context.drivers:
        raise RuleError(not_enabled(value, acting.rule_context.drivers))


def _capability(name: Any) -> str:
    if not isinstance(name, str) or not _CAPABILITY.match(name):
        raise RuleError(f"invalid capability name {str(name)[:64]!r}")
    return name


def _update_capabilities(acting: Acting, new: dict[str, str], *remove: str) -> None:
    try:
        helpers.update(acting.rule_context.node, new, remove)
    except HookError as exc:
        raise RuleError(exc.message) from None
