"""Compiles stored rules into executable ones, and finds all their errors.

The same code validates the input of the APIs, checks built-in rules at start, and prepares the rules of a worker, so
no rule is stored that could not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ferroscope.core.model import Document, Rule, RuleDialect
from ferroscope.rules import conditions, template
from ferroscope.rules.actions import ACTIONS, INTROSPECTION_ACTIONS, Action, named
from ferroscope.rules.context import Acting
from ferroscope.rules.data import (
    BARE_METAL_ROOTS,
    INTROSPECTION_ROOTS,
    MAX_ACTIONS,
    MAX_CONDITIONS,
    MAX_TEXT,
    Data,
    InvalidRuleError,
)
from ferroscope.rules.template import Arguments


class CompiledAction(msgspec.Struct, frozen=True):
    """``op`` is its name, ``arguments`` renders its arguments."""

    op: str
    action: Action
    arguments: Arguments
    loop: template.Render | None

    def each(self, data: Data) -> Iterable[Data]:
        """Yield the data for each execution."""
        return (data,) if self.loop is None else template.each(self.loop, data)

    def run(self, acting: Acting, args: Document) -> None:
        acting.rule_context.budget.step()
        self.action.run(acting, args)


class CompiledRule(msgspec.Struct, frozen=True):
    """An executable rule. ``built_in``: it is from the configuration."""

    rule: Rule
    conditions: tuple[conditions.Condition, ...]
    actions: tuple[CompiledAction, ...]
    built_in: bool = False

    @property
    def eager(self) -> bool:
        """Whether its conditions are evaluated before any rule acts, as in ironic-inspector."""
        return self.rule.dialect is RuleDialect.INTROSPECTION


def compile_rule(rule: Rule, *, built_in: bool = False) -> CompiledRule:
    """Return the executable rule; ``InvalidRuleError`` with every problem and its place."""
    problems: list[str] = []
    bare_metal = rule.dialect is RuleDialect.BARE_METAL
    asked = _all(
        "conditions",
        rule.conditions,
        MAX_CONDITIONS,
        conditions.bare_metal if bare_metal else conditions.introspection,
        problems,
    )
    acted = _all("actions", rule.actions, MAX_ACTIONS, _bare_metal if bare_metal else _introspection, problems)
    if not rule.actions:
        problems.append("actions: a rule needs at least one action")
    if problems:
        raise InvalidRuleError(problems)
    return CompiledRule(rule, tuple(asked), tuple(acted), built_in)


def _all(
    where: str, items: Sequence[Document], most: int, make: Callable[[Document], Any], problems: list[str]
) -> list[Any]:
    if len(items) > most:
        problems.append(f"{where}: too many items ({len(items)}); at most {most}")
        return []
    made = []
    for number, item in enumerate(items):
        try:
            made.append(make(item))
        except InvalidRuleError as exc:
            problems += [f"{where}[{number}]: {problem}" for problem in exc.problems]
    return made


def _bare_metal(item: Document) -> CompiledAction:
    op = item.get("op")
    action = named(op, tuple(ACTIONS))
    if action is None:
        raise InvalidRuleError([f"unknown op {str(op)[:64]!r}; available: {', '.join(ACTIONS)}"])
    loop = template.compile_loop(item.get("loop"), BARE_METAL_ROOTS)
    roots = BARE_METAL_ROOTS if loop else BARE_METAL_ROOTS - {"item"}
    arguments = action.arguments.compile(item.get("args"), roots, looped=loop is not None)
    _check_together(action, action.arguments.named(item.get("args")))
    return CompiledAction(str(op), action, arguments, loop)


def _introspection(item: Document) -> CompiledAction:
    op = item.get("op")
    action = named(op, INTROSPECTION_ACTIONS)
    if action is None or action.introspection is None:
        raise InvalidRuleError([f"unknown action {str(op)[:64]!r}; available: {', '.join(INTROSPECTION_ACTIONS)}"])
    given = conditions.by_name(item)
    unknown = sorted(set(given) - set(action.introspection))
    if unknown:
        raise InvalidRuleError(
            [f"unknown argument {name[:64]!r}; available: {', '.join(action.introspection)}" for name in unknown]
        )
    if op == "fail" and "message" in given:
        # Messages are literal: in this dialect only values have placeholders.
        text = str(given["message"])[:MAX_TEXT]
        return CompiledAction(str(op), action, lambda _data: {"msg": text}, None)
    if op == "set-attribute" and str(given.get("path", "")).strip("/") == "driver":
        given.setdefault("reset_interfaces", True)
    try:
        arguments = action.arguments.compile(given, INTROSPECTION_ROOTS, looped=False)
    except InvalidRuleError as exc:
        raise InvalidRuleError([problem.removeprefix("args.") for problem in exc.problems]) from None
    _check_together(action, given)
    return CompiledAction(str(op), action, arguments, None)


def _check_together(action: Action, args: Document) -> None:
    problem = None if action.check is None else action.check(args)
    if problem is not None:
        raise InvalidRuleError([problem])
