"""The representations of rules in both APIs, and their validation.

A rule is compiled before it is stored, so the response reports all of its errors at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import decoding
from ferroscope.api.http.decoding import shown_value
from ferroscope.api.http.schemas import ApiLink, Uuid, iso, one_of, own, pair
from ferroscope.core.model import PHASES, Document, Rule, RuleDialect
from ferroscope.rules import masking
from ferroscope.rules.data import MAX_VALUES, InvalidRuleError
from ferroscope.rules.engine import CompiledRule, compile_rule
from ferroscope_client.core import json_safety
from ferroscope_client.core.json_safety import ready

MAX_PRIORITY: Final = 9999

Text = Annotated[str, Meta(max_length=255)]
Phase = Annotated[str, one_of(*PHASES)]


class RuleSettable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settable fields of a rule in the Bare Metal API; ``actions`` is required."""

    actions: list[Document]
    conditions: list[Document] | None = None
    description: Text | None = None
    priority: int | str | None = None
    phase: Phase | None = None
    sensitive: bool | str | None = None
    scope: Text | None = None


class RuleCreate(RuleSettable, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/inspection_rules."""

    uuid: Uuid | None = None


class IntrospectionRuleCreate(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/rules. ``links`` is accepted and ignored, so that a representation can be sent back."""

    actions: list[Document]
    conditions: list[Document] | None = None
    uuid: Uuid | None = None
    description: Text | None = None
    scope: Text | None = None
    links: list[Document] | None = None


ready(RuleSettable)
PATCHABLE: Final = RuleSettable.__struct_fields__

_CONDITION_KEYS: Final = frozenset({"op", "args", "loop", "multiple"})
_ACTION_KEYS: Final = frozenset({"op", "args", "loop"})


def fields_of(body: RuleSettable, dialect: RuleDialect, stored: Rule | None = None) -> dict[str, Any]:
    """Return the fields of ``Rule`` from ``body``, with the secrets of ``stored`` for masks; ``BadRequestError``."""
    fields = {
        "dialect": dialect,
        "description": body.description,
        "priority": _priority(body.priority),
        "phase": _phase(body.phase),
        "sensitive": decoding.boolean("sensitive", body.sensitive or False),
        "scope": body.scope or None,
        "conditions": [
            _refuse_unknown_fields(f"conditions[{i}]", c, _CONDITION_KEYS) for i, c in enumerate(body.conditions or [])
        ],
        "actions": [_refuse_unknown_fields(f"actions[{i}]", a, _ACTION_KEYS) for i, a in enumerate(body.actions)],
    }
    return with_secrets_of(stored, fields)


def from_introspection(body: IntrospectionRuleCreate) -> dict[str, Any]:
    """Return the fields of ``Rule`` from ``body``, in their stored form, masks included; ``BadRequestError``."""
    return {
        "dialect": RuleDialect.INTROSPECTION,
        "description": body.description,
        "scope": body.scope or None,
        "conditions": [_condition(number, item) for number, item in enumerate(body.conditions or [])],
        "actions": [_action(number, item) for number, item in enumerate(body.actions)],
    }


def with_secrets_of(stored: Rule | None, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a rule with the secrets of the stored one in place of masks; ``BadRequestError``."""
    try:
        return fields | {
            name: masking.restore_items(name, fields[name], getattr(stored, name, []))
            for name in ("conditions", "actions")
        }
    except InvalidRuleError as exc:
        raise BadRequestError(f"Invalid rule: {exc}.") from None


def compile_checked(rule: Rule) -> CompiledRule:
    """Return the compiled rule; ``BadRequestError`` with all of its errors."""
    if json_safety.values_exceed(msgspec.json.encode([rule.conditions, rule.actions]), MAX_VALUES):
        raise BadRequestError(f"The rule has more than {MAX_VALUES:,} values; read what does not change from the data.")
    try:
        return compile_rule(rule)
    except InvalidRuleError as exc:
        problems = exc.problems[:20]
        raise BadRequestError(f"Invalid rule: {'; '.join(problems)}.") from None


def _priority(requested: int | str | None) -> int:
    priority = decoding.integer("priority", requested) if isinstance(requested, str) else requested or 0
    if not 0 <= priority <= MAX_PRIORITY:
        raise BadRequestError(f"Invalid priority {priority}: it must be between 0 and {MAX_PRIORITY}.")
    return priority


def _phase(requested: str | None) -> str:
    phase = requested or PHASES[0]
    if phase not in PHASES:
        raise BadRequestError(f"Invalid phase {decoding.shown_value(phase)}: it must be one of {', '.join(PHASES)}.")
    return phase


def _refuse_unknown_fields(where: str, item: Document, keys: frozenset[str]) -> Document:
    unknown = sorted(set(item) - keys)
    if unknown:
        raise BadRequestError(
            f"Unknown field {decoding.shown_value(unknown[0])} in {where}; supported: {', '.join(sorted(keys))}."
        )
    missing = [name for name in ("op", "args") if name not in item]
    if missing:
        raise BadRequestError(f"{where} requires {' and '.join(missing)}.")
    return item


def _condition(number: int, item: Document) -> Document:
    op, invert = item.get("op"), item.get("invert", False)
    if not isinstance(op, str) or op.startswith("!"):
        raise BadRequestError(f"conditions[{number}].op must be an operator; to invert it, set invert to true.")
    if not isinstance(invert, bool):
        raise BadRequestError(f"conditions[{number}].invert must be true or false.")
    stored: Document = {"op": f"!{op}" if invert else op}
    stored["args"] = {name: value for name, value in item.items() if name not in ("op", "invert", "multiple")}
    if item.get("multiple") is not None:
        stored["multiple"] = item["multiple"]
    return stored


def _action(number: int, item: Document) -> Document:
    if not isinstance(item.get("action"), str):
        raise BadRequestError(f"actions[{number}] requires the field action, the name of an action.")
    return {"op": item["action"], "args": {name: value for name, value in item.items() if name != "action"}}


# The representation of a stored rule in each of the two APIs.
#
# The conditions and actions of a sensitive rule are null in both; of others, secrets are masked.

FIELDS: Final = (
    "uuid",
    "description",
    "priority",
    "phase",
    "sensitive",
    "scope",
    "dialect",
    "conditions",
    "actions",
    "created_at",
    "updated_at",
)
DEFAULT_FIELDS: Final = ("uuid", "priority", "phase", "description")
SORT_FIELDS: Final[dict[str, str]] = {
    "id": "created_at",
    **{name: name for name in FIELDS if name not in ("conditions", "actions")},
}

RuleField = Annotated[str, one_of(*FIELDS, "links")]
RuleSortKey = Annotated[str, one_of(*SORT_FIELDS)]


class InspectionRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule in the Bare Metal API, with the requested fields."""

    uuid: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    phase: str | msgspec.UnsetType = msgspec.UNSET
    sensitive: bool | msgspec.UnsetType = msgspec.UNSET
    scope: str | msgspec.UnsetType | None = msgspec.UNSET
    dialect: str | msgspec.UnsetType = msgspec.UNSET
    conditions: list[Document] | msgspec.UnsetType | None = msgspec.UNSET
    actions: list[Document] | msgspec.UnsetType | None = msgspec.UNSET
    created_at: str | msgspec.UnsetType | None = msgspec.UNSET
    updated_at: str | msgspec.UnsetType | None = msgspec.UNSET
    links: list[ApiLink] | msgspec.UnsetType = msgspec.UNSET


class InspectionRuleList(msgspec.Struct, frozen=True):
    """A page of rules; ``next`` is the URL of the next page."""

    inspection_rules: list[InspectionRule]
    next: str | msgspec.UnsetType = msgspec.UNSET


class IntrospectionRule(msgspec.Struct, frozen=True):
    """A rule in the Introspection API; lists omit conditions and actions."""

    uuid: str
    description: str | None
    scope: str | None
    links: list[ApiLink]
    conditions: list[Document] | msgspec.UnsetType | None = msgspec.UNSET
    actions: list[Document] | msgspec.UnsetType | None = msgspec.UNSET


class IntrospectionRuleList(msgspec.Struct, frozen=True):
    """All rules that were created through this API, oldest first."""

    rules: list[IntrospectionRule]


def chosen_fields(fields: Sequence[str] | None, detail: bool | None, default: Sequence[str]) -> Sequence[str]:
    """Return the fields to show."""
    unknown = sorted(set(fields or ()) - {*FIELDS, "links"})
    if unknown:
        names = ", ".join(shown_value(name) for name in unknown[:8])
        raise BadRequestError(f"Unknown field(s) of a rule: {names}; supported: {', '.join(FIELDS)}.")
    if fields and detail:
        raise BadRequestError("detail and fields are mutually exclusive.")
    return fields or (FIELDS if detail else default)


def bare_metal(rule: Rule, fields: Sequence[str], url: str) -> InspectionRule:
    """Return the rule's representation in the Bare Metal API."""
    values: dict[str, Any] = {name: getattr(rule, name) for name in fields if name != "links"}
    for name in ("created_at", "updated_at"):
        if name in values:
            values[name] = iso(values[name])
    for name in ("conditions", "actions"):
        if name in values:
            values[name] = None if rule.sensitive else masking.mask_items(values[name])
    return InspectionRule(**values, links=pair(url, f"inspection_rules/{rule.uuid}"))


def introspection(rule: Rule, url: str, *, short: bool) -> IntrospectionRule:
    """Return the rule's representation in the Introspection API, in which its link has no host."""
    view = IntrospectionRule(rule.uuid, rule.description, rule.scope, own(urlsplit(url).path, f"rules/{rule.uuid}"))
    if short:
        return view
    return msgspec.structs.replace(
        view,
        conditions=None if rule.sensitive else [_condition_view(item) for item in masking.mask_items(rule.conditions)],
        actions=None
        if rule.sensitive
        else [{"action": item.get("op"), **_args(item)} for item in masking.mask_items(rule.actions)],
    )


def _condition_view(item: Document) -> Document:
    op = str(item.get("op"))
    return {
        **_args(item),
        "op": op.removeprefix("!"),
        "multiple": item.get("multiple", "any"),
        "invert": op.startswith("!"),
    }


def _args(item: Document) -> Document:
    args = item.get("args")
    return dict(args) if isinstance(args, dict) else {}
