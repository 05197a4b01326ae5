"""The actions that write: attributes of the node and its ports, capabilities, traits, plugin data."""

from __future__ import annotations

import re
from typing import Any, Final

from ferroscope.core.model import Document, Node, Port
from ferroscope.core.values import MAX_TRAITS
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookError
from ferroscope.rules import fields
from ferroscope.rules.data import Acting, InvalidRuleError, RuleError
from ferroscope.rules.fields import NODE_FIELDS, PORT_FIELDS, Check

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


def _target(value: Any, known: dict[str, Check] | None) -> str | None:
    try:
        parts = fields.path(value)
    except InvalidRuleError as exc:
        return str(exc)
    return None if known is None else fields.writable(parts, known)


def _parts(value: Any, known: dict[str, Check] | None) -> list[str]:
    problem = _target(value, known)
    if problem is not None:
        raise RuleError(problem)
    return fields.path(value)


def trait(value: Any) -> str | None:
    if isinstance(value, str) and _TRAIT.match(value):
        return None
    return f"invalid trait {str(value)[:64]!r}: expected A-Z, 0-9 and _, for example CUSTOM_GOLD"


def reset_needs_driver(args: Document) -> str | None:
    if args.get("reset_interfaces") is not None and str(args.get("path", "")).strip("/") != "driver":
        return "reset_interfaces can be used only with the path driver"
    return None


def set_attribute(acting: Acting, args: Document) -> None:
    node, parts, value = acting.rule_context.node, _parts(args["path"], NODE_FIELDS), args["value"]
    if parts == ["driver"]:
        _check_driver(acting, value)
        if args["reset_interfaces"] in _TRUE:
            for name in [name for name in node.attributes if name.endswith("_interface")]:
                del node.attributes[name]
    _set(node, parts, value, NODE_FIELDS)


def extend_attribute(acting: Acting, args: Document) -> None:
    _extend(acting.rule_context.node, _parts(args["path"], NODE_FIELDS), args["value"], unique=args["unique"] in _TRUE)


def del_attribute(acting: Acting, args: Document) -> None:
    parts = _parts(args["path"], NODE_FIELDS)
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
    fields.put(acting.rule_context.plugin_data, _parts(args["path"], None), args["value"])


def extend_plugin_data(acting: Acting, args: Document) -> None:
    parts = _parts(args["path"], None)
    fields.extend(acting.rule_context.plugin_data, parts, args["value"], unique=args["unique"] in _TRUE)


def unset_plugin_data(acting: Acting, args: Document) -> None:
    fields.take_out(acting.rule_context.plugin_data, _parts(args["path"], None))


def set_port_attribute(acting: Acting, args: Document) -> None:
    port, parts = acting.rule_context.port(args["port_id"]), _parts(args["path"], PORT_FIELDS)
    _set(port, parts, args["value"], PORT_FIELDS)
    acting.rule_context.save_port(port)


def extend_port_attribute(acting: Acting, args: Document) -> None:
    port, parts = acting.rule_context.port(args["port_id"]), _parts(args["path"], PORT_FIELDS)
    _extend(port, parts, args["value"], unique=args["unique"] in _TRUE)
    acting.rule_context.save_port(port)


def del_port_attribute(acting: Acting, args: Document) -> None:
    port = acting.rule_context.port(args["port_id"])
    _delete(port, _parts(args["path"], PORT_FIELDS), PORT_FIELDS)
    acting.rule_context.save_port(port)


def _set(thing: Node | Port, parts: list[str], value: Any, known: dict[str, Check]) -> None:
    if len(parts) > 1:
        document = dict(fields.get_field(thing, parts[0]))  # a copy: the check of the whole may reject it
        fields.put(document, parts[1:], value)
        value = document
    fields.set_field(thing, parts[0], value, known)


def _extend(thing: Node | Port, parts: list[str], value: Any, *, unique: bool) -> None:
    if len(parts) == 1:
        raise RuleError(f"{parts[0]} is not a list, so it cannot be extended")
    document = fields.get_field(thing, parts[0])
    fields.extend(document, parts[1:], value, unique=unique)
    fields.set_field(thing, parts[0], document, NODE_FIELDS if isinstance(thing, Node) else PORT_FIELDS)


def _delete(thing: Node | Port, parts: list[str], known: dict[str, Check]) -> None:
    if len(parts) > 1:
        fields.take_out(fields.get_field(thing, parts[0]), parts[1:])
    else:
        fields.set_field(thing, parts[0], fields.empty(parts[0]), known)


def _check_driver(acting: Acting, value: Any) -> None:
    if value not in acting.rule_context.drivers:
        offered = ", ".join(sorted(acting.rule_context.drivers))
        raise RuleError(f"the driver {str(value)[:64]!r} is not enabled; enabled: {offered}")


def _capability(name: Any) -> str:
    if not isinstance(name, str) or not _CAPABILITY.match(name):
        raise RuleError(f"invalid capability name {str(name)[:64]!r}")
    return name


def _update_capabilities(acting: Acting, new: dict[str, str], *remove: str) -> None:
    try:
        helpers.update(acting.rule_context.node, new, remove)
    except HookError as exc:
        raise RuleError(exc.message) from None
