"""The scheduler's rules: selectors, tolerations and amounts, as pods and persistent volumes have them. Pure.

Source: the Kubernetes API reference, core/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

_FACTORS: Final = {
    **{suffix: 1000.0**power for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)},
    **{f"{suffix}i": 1024.0**power for power, suffix in enumerate("KMGTPE", 1)},
}


def amount_of(quantity: str | int | float) -> float:
    """Return the number that a quantity such as ``500m`` or ``16Gi`` means; 0 if it is none."""
    text = str(quantity)
    digits = text.rstrip("numkMGTPEKi")
    try:
        return float(digits) * _FACTORS[text[len(digits) :]]
    except (ValueError, KeyError):
        return 0.0


class Taint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Toleration(msgspec.Struct, frozen=True, rename="camel"):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


class Requirement(msgspec.Struct, frozen=True, rename="camel"):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None

    def matches(self, values: Mapping[str, str]) -> bool:
        wanted, present = self.values or [], values.get(self.key)
        if self.operator == "In":
            return present in wanted
        if self.operator == "NotIn":
            return present not in wanted
        if self.operator == "Exists":
            return present is not None
        if self.operator == "DoesNotExist":
            return present is None
        try:
            have, limit = int(present or ""), int(wanted[0])
        except (ValueError, IndexError):
            return False
        return have > limit if self.operator == "Gt" else self.operator == "Lt" and have < limit


class _AffinityTerm(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: list[_AffinityTerm] | None = None

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether one of the terms selects the node; an empty one selects none."""
        fields = {"metadata.name": name}
        return any(
            all(requirement.matches(labels) for requirement in term.match_expressions or ())
            and all(requirement.matches(fields) for requirement in term.match_fields or ())
            and bool(term.match_expressions or term.match_fields)
            for term in self.node_selector_terms or ()
        )


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None

    @property
    def requirements(self) -> list[Requirement]:
        return [
            *(Requirement(key, "In", [value]) for key, value in sorted((self.match_labels or {}).items())),
            *(self.match_expressions or ()),
        ]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects an object with these labels; an empty one selects all."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    @property
    def query(self) -> str:
        """The same as the API's parameter ``labelSelector``."""
        return ",".join(map(_query, self.requirements))


def _query(requirement: Requirement) -> str:
    if requirement.operator == "Exists":
        return requirement.key
    if requirement.operator == "DoesNotExist":
        return f"!{requirement.key}"
    operator = "notin" if requirement.operator == "NotIn" else "in"
    return f"{requirement.key} {operator} ({','.join(requirement.values or ())})"
