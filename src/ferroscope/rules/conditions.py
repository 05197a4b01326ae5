"""Conditions: the operators, and a compiled form for each dialect."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import msgspec

from ferroscope.core.model import Document
from ferroscope.rules import patterns, template
from ferroscope.rules.comparisons import chain, equal
from ferroscope.rules.data import BARE_METAL_ROOTS, InvalidRuleError, MissingDataError, RuleBudget, RuleData, RuleError
from ferroscope.rules.template import Argument, ArgumentKind, Arguments, Signature
from ferroscope_client.core.json_path import InvalidPathError, JsonPath, PathCostError

# The operators, in one table for both dialects.
#
# An operator gets its arguments with the types of the data. Without ``judge``, it never matches missing data, inverted
# or not: a rule about data that does not exist is not applied.

Test = Callable[[Document, RuleBudget], bool]


class Operator(msgspec.Struct, frozen=True):
    """``arguments`` are those of the Bare Metal API, ``literal`` is the one that the other dialect calls ``value``."""

    arguments: Signature
    test: Test
    judges_missing: bool = False
    literal: str | None = None


def _regex(value: Any) -> str | None:
    try:
        patterns.compile_pattern(str(value))
    except InvalidRuleError as exc:
        return str(exc)
    return None


def _network(value: Any) -> str | None:
    try:
        ipaddress.ip_network(str(value), strict=False)
    except ValueError as exc:
        return f"invalid network {str(value)[:64]!r}: expected, for example, 192.0.2.0/24 ({exc})"
    return None


def _list(value: Any) -> str | None:
    return None if isinstance(value, list) else f"must be a list, not {type(value).__name__}"


def _comparison(name: str) -> Operator:
    neighbours = chain(name)

    def test(args: Document, _budget: RuleBudget) -> bool:
        values = args["values"]
        if not isinstance(values, list):
            raise RuleError(f"the values to compare must be a list, not {type(values).__name__}")
        if args["force_strings"] is True:
            values = [str(value) for value in values]
        return all(neighbours(left, right) for left, right in itertools.pairwise(values))

    signature = Signature((Argument("values", check=_list), Argument("force_strings", ArgumentKind.LITERAL, False)))
    return Operator(signature, test, literal="values")


def _unary(test: Callable[[Any], bool]) -> Operator:
    return Operator(Signature((Argument("value"),)), lambda args, _budget: test(args["value"]), judges_missing=True)


def _search(*, whole: bool) -> Operator:
    def test(args: Document, budget: RuleBudget) -> bool:
        return patterns.matches(args["regex"], args["value"], budget, whole=whole)

    signature = Signature((Argument("value"), Argument("regex", ArgumentKind.LITERAL, check=_regex)))
    return Operator(signature, test, literal="regex")


def _in_net(args: Document, _budget: RuleBudget) -> bool:
    if args["address"] in (None, ""):
        raise MissingDataError("address")
    try:
        address = ipaddress.ip_address(str(args["address"]))
        return address in ipaddress.ip_network(str(args["subnet"]), strict=False)
    except ValueError as exc:
        raise RuleError(str(exc)) from None


def _one_of(args: Document, _budget: RuleBudget) -> bool:
    if not isinstance(args["values"], list):
        raise RuleError(f"one-of requires a list, not {type(args['values']).__name__}")
    return any(equal(args["value"], value) for value in args["values"])


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _is_true(value: Any) -> bool:
    return value.strip().lower() in ("yes", "true") if isinstance(value, str) else bool(_flag(value))


def _is_false(value: Any) -> bool:
    return (
        value.strip().lower() in ("no", "false") if isinstance(value, str) else value is None or _flag(value) is False
    )


def _flag(value: Any) -> bool | None:
    return bool(value) if isinstance(value, bool | int | float) else None


OPERATORS: Final[dict[str, Operator]] = {
    **{name: _comparison(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "is-empty": _unary(_is_empty),
    "is-none": _unary(lambda value: value is None),
    "is-true": _unary(_is_true),
    "is-false": _unary(_is_false),
    "in-net": Operator(Signature((Argument("address"), Argument("subnet", check=_network))), _in_net, literal="subnet"),
    "matches": _search(whole=True),
    "contains": _search(whole=False),
    "one-of": Operator(Signature((Argument("value"), Argument("values", default=[], check=_list))), _one_of),
}


MULTIPLE: Final = ("any", "all", "first", "last")
INTROSPECTION_MULTIPLE: Final = ("any", "all", "first")
INTROSPECTION_OPERATORS: Final = ("eq", "ne", "lt", "le", "gt", "ge", "is-empty", "in-net", "matches", "contains")

_SCHEMES: Final = ("data", "node")


class CheckResult(msgspec.Struct):
    """What one check evaluated, for the dry run; ``missing`` names data that does not exist."""

    args: Document | None
    holds: bool
    missing: str | None = None


class RuleCondition(Protocol):
    """One condition of a rule."""

    def holds(self, data: RuleData, checks: list[CheckResult] | None = None) -> bool:
        """Whether it matches; ``RuleError`` if that cannot be determined. ``checks`` receives every check."""


class _OperatorCheck(msgspec.Struct, frozen=True):
    """One operator, possibly inverted."""

    operator: Operator
    inverted: bool

    def __call__(self, args: Document, data: RuleData, checks: list[CheckResult] | None) -> bool:
        try:
            holds = self.operator.test(args, data.budget) is not self.inverted
        except MissingDataError as exc:
            return note(checks, args, holds=False, missing=exc.name)
        return note(checks, args, holds=holds)


def note(checks: list[CheckResult] | None, args: Document | None, *, holds: bool, missing: str | None = None) -> bool:
    if checks is not None:
        checks.append(CheckResult(args, holds, missing))
    return holds


class BareMetalCondition(msgspec.Struct, frozen=True):
    """Arguments with placeholders, possibly in a loop."""

    check: _OperatorCheck
    arguments: Arguments
    loop: template.Render | None
    multiple: str

    def holds(self, data: RuleData, checks: list[CheckResult] | None = None) -> bool:
        if self.loop is None:
            return self._once(data, checks)
        items = list(template.loop_items(self.loop, data))
        if self.multiple in ("first", "last"):
            chosen = items[:1] if self.multiple == "first" else items[-1:]
            return any(self._once(item, checks) for item in chosen)
        results = (self._once(item, checks) for item in items)
        return any(results) if self.multiple == "any" else all(results)

    def _once(self, data: RuleData, checks: list[CheckResult] | None) -> bool:
        data.budget.step()
        try:
            args = self.arguments(data)
        except MissingDataError as exc:
            if not self.check.operator.judges_missing:
                return note(checks, None, holds=False, missing=exc.name)
            return self.check({"value": None}, data, checks)
        return self.check(args, data, checks)


class IntrospectionCondition(msgspec.Struct, frozen=True):
    """A path into the data, and what each value there is compared with."""

    check: _OperatorCheck
    root: str
    path: JsonPath
    value: Any
    multiple: str

    def holds(self, data: RuleData, checks: list[CheckResult] | None = None) -> bool:
        root, mask = data.root(self.root)
        try:
            values = self.path.find(root, mask=mask)
        except PathCostError as exc:
            raise RuleError(str(exc)) from None
        if not values:
            if not self.check.operator.judges_missing:
                return note(checks, None, holds=False, missing=f"{self.root}://{self.path.text}")
            values = [None]
        results = self._check_each(values[:1] if self.multiple == "first" else values, data, mask, checks)
        return all(results) if self.multiple == "all" else any(results)

    def _check_each(
        self, values: list[Any], data: RuleData, mask: bool, checks: list[CheckResult] | None
    ) -> Iterator[bool]:
        for value in values:
            data.budget.step()
            yield self.check(self._args(data.budget.copy(value, mask=mask)), data, checks)

    def _args(self, value: Any) -> Document:
        match self.check.operator.literal:
            case None:
                return {"value": value}
            case "values":
                return {"values": [value, self.value], "force_strings": False}
            case "subnet":
                return {"address": value, "subnet": self.value}
            case literal:
                return {"value": value, literal: self.value}


def bare_metal(condition: Document) -> RuleCondition:
    """Return a condition of the Bare Metal API; ``InvalidRuleError``."""
    check = _operator(condition.get("op"), tuple(OPERATORS))
    loop = template.compile_loop(condition.get("loop"), BARE_METAL_ROOTS)
    multiple = _multiple(condition.get("multiple"), MULTIPLE)
    roots = BARE_METAL_ROOTS if loop else BARE_METAL_ROOTS - {"item"}
    arguments = check.operator.arguments.compile(condition.get("args"), roots, looped=loop is not None)
    return BareMetalCondition(check, arguments, loop, multiple)


def introspection(condition: Document) -> RuleCondition:
    """Return a condition of the Introspection API; ``InvalidRuleError``."""
    check = _operator(condition.get("op"), INTROSPECTION_OPERATORS)
    args = by_name(condition)
    root, path = _field(args.pop("field", None))
    literal = check.operator.literal
    if literal is not None and "value" not in args:
        raise InvalidRuleError(["value is missing"])
    value = args.pop("value", None) if literal is not None else None
    if args:
        raise InvalidRuleError([f"unknown argument {name[:64]!r}" for name in sorted(args)])
    _check_literal(check.operator, value)
    return IntrospectionCondition(
        check, root, path, value, _multiple(condition.get("multiple"), INTROSPECTION_MULTIPLE)
    )


def by_name(item: Document) -> Document:
    """Return a copy of the other dialect's arguments, which are always named."""
    args = item.get("args")
    if not isinstance(args, dict):
        raise InvalidRuleError(["args must be an object"])
    return dict(args)


def _operator(op: Any, names: tuple[str, ...]) -> _OperatorCheck:
    text = str(op).strip()
    name = text.removeprefix("!").strip()
    if name not in names:
        raise InvalidRuleError([f"unknown op {text[:64]!r}; available: {', '.join(names)}; a leading ! inverts it"])
    return _OperatorCheck(OPERATORS[name], text.startswith("!"))


def _multiple(value: Any, choices: tuple[str, ...]) -> str:
    multiple = value or "any"
    if multiple not in choices:
        raise InvalidRuleError([f"invalid multiple {str(value)[:40]!r}; expected one of {', '.join(choices)}"])
    return str(multiple)


def _field(field: Any) -> tuple[str, JsonPath]:
    if not isinstance(field, str) or not field.strip():
        raise InvalidRuleError(["field must be a path, for example inventory.memory.physical_mb or node://driver"])
    scheme, separator, path = field.partition("://")
    if not separator:
        scheme, path = "data", field
    if scheme not in _SCHEMES:
        raise InvalidRuleError([f"invalid scheme {scheme[:40]}:// in field; expected data:// or node://"])
    try:
        return scheme, JsonPath(path)
    except InvalidPathError as exc:
        raise InvalidRuleError([f"field: {exc}"]) from None


def _check_literal(operator: Operator, value: Any) -> None:
    argument = next((argument for argument in operator.arguments.arguments if argument.name == operator.literal), None)
    if argument is None or argument.check is None or argument.name == "values":
        return
    problem = argument.check(value)
    if problem is not None:
        raise InvalidRuleError([f"value: {problem}"])
