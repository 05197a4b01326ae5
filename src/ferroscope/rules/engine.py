"""Compiles rules, and runs them on one inspection's copies: which apply, in which order, and how failures are handled.

Higher priority first; with equal priority stored rules before built-in ones, older before newer. The conditions of
introspection rules are all evaluated before any rule acts, those of other rules in their turn.

The same code validates the input of the APIs, checks built-in rules at start, and prepares the rules of a worker, so
no rule is stored that could not run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from ferroscope.core.model import Document, Node, Rule, RuleDialect
from ferroscope.hardware.expectations import CompiledExpectation
from ferroscope.rules import conditions, template
from ferroscope.rules.actions import ACTIONS, INTROSPECTION_ACTIONS, RuleAction, find_action
from ferroscope.rules.conditions import CheckResult
from ferroscope.rules.data import (
    BARE_METAL_ROOTS,
    INTROSPECTION_ROOTS,
    MAX_ACTIONS,
    MAX_CONDITIONS,
    MAX_TEXT,
    Acting,
    InvalidRuleError,
    NameTakenError,
    RuleContext,
    RuleData,
    RuleError,
    RuleFailedError,
    Unmatched,
    WriteRefusedError,
)
from ferroscope.rules.template import Arguments
from ferroscope_client.core.reasons import Reason


class CompiledAction(msgspec.Struct, frozen=True):
    """``op`` is its name, ``arguments`` renders its arguments."""

    op: str
    action: RuleAction
    arguments: Arguments
    loop: template.Render | None

    def executions(self, data: RuleData) -> Iterable[RuleData]:
        """Yield the data for each execution."""
        return (data,) if self.loop is None else template.loop_items(self.loop, data)

    def run(self, acting: Acting, args: Document) -> None:
        acting.rule_context.budget.step()
        self.action.run(acting, args)
        acting.rule_context.data.view.forget()


class CompiledRule(msgspec.Struct, frozen=True):
    """An executable rule. ``built_in``: it is from the configuration."""

    rule: Rule
    conditions: tuple[conditions.RuleCondition, ...]
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
    compiled = _compile_all(
        "conditions",
        rule.conditions,
        MAX_CONDITIONS,
        conditions.bare_metal if bare_metal else conditions.introspection,
        problems,
    )
    actions = _compile_all(
        "actions", rule.actions, MAX_ACTIONS, _bare_metal if bare_metal else _introspection, problems
    )
    if not rule.actions:
        problems.append("actions: a rule needs at least one action")
    if problems:
        raise InvalidRuleError(problems)
    return CompiledRule(rule, tuple(compiled), tuple(actions), built_in)


def _compile_all(
    where: str, items: Sequence[Document], limit: int, make: Callable[[Document], Any], problems: list[str]
) -> list[Any]:
    if len(items) > limit:
        problems.append(f"{where}: too many items ({len(items)}); at most {limit}")
        return []
    compiled = []
    for number, item in enumerate(items):
        try:
            compiled.append(make(item))
        except InvalidRuleError as exc:
            problems += [f"{where}[{number}]: {problem}" for problem in exc.problems]
    return compiled


def _bare_metal(item: Document) -> CompiledAction:
    op = item.get("op")
    action = find_action(op, tuple(ACTIONS))
    if action is None:
        raise InvalidRuleError([f"unknown op {str(op)[:64]!r}; available: {', '.join(ACTIONS)}"])
    loop = template.compile_loop(item.get("loop"), BARE_METAL_ROOTS)
    roots = BARE_METAL_ROOTS if loop else BARE_METAL_ROOTS - {"item"}
    arguments = action.arguments.compile(item.get("args"), roots, looped=loop is not None)
    _check_combination(action, action.arguments.by_name(item.get("args")))
    return CompiledAction(str(op), action, arguments, loop)


def _introspection(item: Document) -> CompiledAction:
    op = item.get("op")
    action = find_action(op, INTROSPECTION_ACTIONS)
    if action is None or action.introspection is None:
        raise InvalidRuleError([f"unknown action {str(op)[:64]!r}; available: {', '.join(INTROSPECTION_ACTIONS)}"])
    args = conditions.by_name(item)
    unknown = sorted(set(args) - set(action.introspection))
    if unknown:
        raise InvalidRuleError(
            [f"unknown argument {name[:64]!r}; available: {', '.join(action.introspection)}" for name in unknown]
        )
    if op == "fail" and "message" in args:
        # Messages are literal: in this dialect only values have placeholders.
        text = str(args["message"])[:MAX_TEXT]
        return CompiledAction(str(op), action, lambda _data: {"msg": text}, None)
    if op == "set-attribute" and str(args.get("path", "")).strip("/") == "driver":
        args.setdefault("reset_interfaces", True)
    try:
        arguments = action.arguments.compile(args, INTROSPECTION_ROOTS, looped=False)
    except InvalidRuleError as exc:
        raise InvalidRuleError([problem.removeprefix("args.") for problem in exc.problems]) from None
    _check_combination(action, args)
    return CompiledAction(str(op), action, arguments, None)


def _check_combination(action: RuleAction, args: Document) -> None:
    problem = None if action.check is None else action.check(args)
    if problem is not None:
        raise InvalidRuleError([problem])


MaskSecrets = Literal["always", "never", "sensitive"]

SCOPE: Final = "inspection_scope"
_MAX_MESSAGE: Final = 2000


class RuleSet(msgspec.Struct, frozen=True):
    """The rules of one revision, in the order of execution, and what hardware is expected."""

    revision: int
    rules: tuple[CompiledRule, ...]
    expectations: tuple[CompiledExpectation, ...] = ()

    @staticmethod
    def of(revision: int, rules: Iterable[CompiledRule], expectations: Iterable[CompiledExpectation] = ()) -> RuleSet:
        """Return ``rules`` in order of execution."""
        order = sorted(
            rules, key=lambda rule: (-rule.rule.priority, rule.built_in, rule.rule.created_at, rule.rule.uuid)
        )
        return RuleSet(revision, tuple(order), tuple(expectations))


class RuleTrace(Protocol):
    """Observer of a run, for the dry run."""

    def note_out_of_scope(self, rule: CompiledRule) -> None: ...
    def note_condition(self, rule: CompiledRule, number: int, holds: bool, checks: list[CheckResult]) -> None: ...
    def note_action(self, rule: CompiledRule, number: int, args: Document) -> None: ...


def run(
    rules: RuleSet, rule_context: RuleContext, mask: MaskSecrets, trace: RuleTrace | None = None
) -> list[CompiledRule]:
    """Apply the rules to this inspection's copies; return those that applied.

    ``RuleFailedError`` has the one that failed.
    """
    concerned = [rule for rule in rules.rules if _in_scope(rule, rule_context.node, trace)]
    eager = {rule.rule.uuid: _holds(rule, rule_context, mask, trace) for rule in concerned if rule.eager}
    applied, named_by, name = [], None, rule_context.node.name
    for rule in concerned:
        if eager[rule.rule.uuid] if rule.eager else _holds(rule, rule_context, mask, trace):
            _act(rule, rule_context, mask, trace)
            applied.append(rule)
        if rule_context.node.name != name:
            named_by, name = rule, rule_context.node.name
    if named_by is not None:
        _check_name_is_free(named_by, rule_context)
    return applied


def is_masked(rule: CompiledRule, mask: MaskSecrets) -> bool:
    """Whether secrets in inspection data are masked for this rule."""
    return mask == "always" or (mask == "sensitive" and not rule.rule.sensitive)


def title(rule: CompiledRule) -> str:
    """Return a rule's name for messages; a sensitive one is only its UUID."""
    described = rule.rule.description if not rule.rule.sensitive else None
    return f"{rule.rule.uuid} ({described})" if described else rule.rule.uuid


def _in_scope(rule: CompiledRule, node: Node, trace: RuleTrace | None) -> bool:
    inside = not rule.rule.scope or node.properties.get(SCOPE) == rule.rule.scope
    if not inside and trace is not None:
        trace.note_out_of_scope(rule)
    return inside


@contextlib.contextmanager
def _blaming(rule: CompiledRule) -> Iterator[None]:
    """Turn any error in a step of the rule into a ``RuleFailedError`` that names it."""
    try:
        yield
    except WriteRefusedError as exc:
        raise _failure(rule, "refused the machine", exc, Reason.REFUSED_BY_RULE) from None
    except NameTakenError as exc:
        raise _failure(rule, "cannot be applied", exc, Reason.NAME_TAKEN) from None
    except RuleError as exc:
        raise _failure(rule, "cannot be applied", exc, Reason.RULE_FAILED) from None


def _holds(rule: CompiledRule, rule_context: RuleContext, mask: MaskSecrets, trace: RuleTrace | None) -> bool:
    with _blaming(rule):
        data = rule_context.data.masking(is_masked(rule, mask))
        for number, condition in enumerate(rule.conditions):
            checks: list[CheckResult] = []
            holds = condition.holds(data, checks)
            if trace is not None:
                trace.note_condition(rule, number, holds, checks)
            if not holds:
                missing = next((check.missing for check in checks if check.missing is not None), None)
                if missing is not None:
                    field = None if rule.rule.sensitive else missing
                    rule_context.unmatched.append(Unmatched(rule=rule.rule.uuid, field=field))
                return False
        return True


def _act(rule: CompiledRule, rule_context: RuleContext, mask: MaskSecrets, trace: RuleTrace | None) -> None:
    acting = Acting(rule_context, rule.rule.uuid, rule.rule.sensitive)
    with _blaming(rule):
        data = rule_context.data.masking(is_masked(rule, mask))
        for number, action in enumerate(rule.actions):
            for item_data in action.executions(data):
                args = action.arguments(item_data)
                if trace is not None:
                    trace.note_action(rule, number, args)
                action.run(acting, args)


def _check_name_is_free(named_by: CompiledRule, rule_context: RuleContext) -> None:
    """Check that the name set by rules is free; if it is taken before the commit, the store rejects it."""
    with _blaming(named_by):
        name = rule_context.node.name
        owner = None if name is None else rule_context.context.find_node_by_name(name)
        if owner is not None:
            raise NameTakenError(str(name), owner)


def _failure(rule: CompiledRule, problem: str, exc: Exception, reason: Reason) -> RuleFailedError:
    detail = "" if rule.rule.sensitive else f": {exc}"
    return RuleFailedError(rule.rule.uuid, f"the rule {title(rule)} {problem}{detail}"[:_MAX_MESSAGE], reason)


def titles(rules: Sequence[CompiledRule]) -> str:
    """Return the rules' names for a message."""
    return ", ".join(title(rule) for rule in rules)
