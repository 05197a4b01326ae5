"""A rule as each of the two APIs shows it; both are views of the same stored rule.

The conditions and actions of a sensitive rule are null in either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.documented import one_of
from ferroscope.api.errors import BadRequestError
from ferroscope.api.links import Link, own, pair
from ferroscope.api.scalars import shown
from ferroscope.api.times import iso
from ferroscope.core.model import Document, Rule

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
    """A rule in the Bare Metal API, or those of its fields that were asked for."""

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
    links: list[Link] | msgspec.UnsetType = msgspec.UNSET


class InspectionRuleList(msgspec.Struct, frozen=True):
    """A page; ``next`` is where the following one is."""

    inspection_rules: list[InspectionRule]
    next: str | msgspec.UnsetType = msgspec.UNSET


class IntrospectionRule(msgspec.Struct, frozen=True):
    """A rule in the Introspection API; in a list without conditions and actions."""

    uuid: str
    description: str | None
    scope: str | None
    links: list[Link]
    conditions: list[Document] | msgspec.UnsetType | None = msgspec.UNSET
    actions: list[Document] | msgspec.UnsetType | None = msgspec.UNSET


class IntrospectionRuleList(msgspec.Struct, frozen=True):
    """All rules that were made through this API, oldest first."""

    rules: list[IntrospectionRule]


def chosen(fields: Sequence[str] | None, detail: bool | None, default: Sequence[str]) -> Sequence[str]:
    """Return the fields that a caller wants to see."""
    unknown = sorted(set(fields or ()) - {*FIELDS, "links"})
    if unknown:
        names = ", ".join(shown(name) for name in unknown[:8])
        raise BadRequestError(f"A rule has no field {names}; it has: {', '.join(FIELDS)}.")
    if fields and detail:
        raise BadRequestError("Give either fields or detail, not both.")
    return fields or (FIELDS if detail else default)


def bare_metal(rule: Rule, fields: Sequence[str], url: str) -> InspectionRule:
    """Return the rule as the Bare Metal API shows it."""
    values: dict[str, Any] = {name: getattr(rule, name) for name in fields if name != "links"}
    for name in ("created_at", "updated_at"):
        if name in values:
            values[name] = iso(values[name])
    for name in ("conditions", "actions"):
        if name in values and rule.sensitive:
            values[name] = None
    return InspectionRule(**values, links=pair(url, f"inspection_rules/{rule.uuid}"))


def introspection(rule: Rule, url: str, *, short: bool) -> IntrospectionRule:
    """Return the rule as the Introspection API shows it."""
    view = IntrospectionRule(rule.uuid, rule.description, rule.scope, own(url, f"rules/{rule.uuid}"))
    if short:
        return view
    return msgspec.structs.replace(
        view,
        conditions=None if rule.sensitive else [_condition_view(item) for item in rule.conditions],
        actions=None if rule.sensitive else [{"action": item.get("op"), **_args(item)} for item in rule.actions],
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
