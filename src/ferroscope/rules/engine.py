"""Runs rules on one inspection's copies: which apply, in which order, and how failures are handled.

Higher priority first; with equal priority stored rules before built-in ones, older before newer. The conditions of
introspection rules are all evaluated before any rule acts, those of other rules in their turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, Protocol

import msgspec

from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.rules.compile import CompiledRule
from ferroscope.rules.conditions import Seen
from ferroscope.rules.context import Acting, RuleContext
from ferroscope.rules.data import Data, NameTakenError, RefusedError, RuleError, RuleFailedError

MaskSecrets = Literal["always", "never", "sensitive"]

SCOPE: Final = "inspection_scope"
_MAX_MESSAGE: Final = 2000


class RuleSet(msgspec.Struct, frozen=True):
    """The rules of one revision, in the order of execution."""

    revision: int
    rules: tuple[CompiledRule, ...]

    @staticmethod
    def of(revision: int, rules: Iterable[CompiledRule]) -> RuleSet:
        """Return ``rules`` in order of execution."""
        order = sorted(rules, key=lambda one: (-one.rule.priority, one.built_in, one.rule.created_at, one.rule.uuid))
        return RuleSet(revision, tuple(order))


class RuleTrace(Protocol):
    """Observer of a run, for the dry run."""

    def scoped_out(self, rule: CompiledRule) -> None: ...
    def asked(self, rule: CompiledRule, number: int, holds: bool, seen: list[Seen]) -> None: ...
    def acts(self, rule: CompiledRule, number: int, args: Document) -> None: ...


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
        _name_is_free(named_by, rule_context)
    return applied


def masked(rule: CompiledRule, mask: MaskSecrets) -> bool:
    """Whether secrets in inspection data are masked for this rule."""
    return mask == "always" or (mask == "sensitive" and not rule.rule.sensitive)


def title(rule: CompiledRule) -> str:
    """Return a rule's name for messages; a sensitive one is only its UUID."""
    described = rule.rule.description if not rule.rule.sensitive else None
    return f"{rule.rule.uuid} ({described})" if described else rule.rule.uuid


def _in_scope(rule: CompiledRule, node: Node, trace: RuleTrace | None) -> bool:
    inside = not rule.rule.scope or node.properties.get(SCOPE) == rule.rule.scope
    if not inside and trace is not None:
        trace.scoped_out(rule)
    return inside


@contextlib.contextmanager
def _blaming(rule: CompiledRule) -> Iterator[None]:
    """Turn any error in a step of the rule into a ``RuleFailedError`` that names it."""
    try:
        yield
    except RefusedError as exc:
        raise _failed(rule, "refused the machine", exc, Reason.REFUSED_BY_RULE) from None
    except NameTakenError as exc:
        raise _failed(rule, "cannot be applied", exc, Reason.NAME_TAKEN) from None
    except RuleError as exc:
        raise _failed(rule, "cannot be applied", exc, Reason.RULE_FAILED) from None


def _holds(rule: CompiledRule, rule_context: RuleContext, mask: MaskSecrets, trace: RuleTrace | None) -> bool:
    with _blaming(rule):
        data = rule_context.data.masking(masked(rule, mask))
        return all(_asked(rule, number, data, trace) for number in range(len(rule.conditions)))


def _asked(rule: CompiledRule, number: int, data: Data, trace: RuleTrace | None) -> bool:
    if trace is None:
        return rule.conditions[number].holds(data)
    seen: list[Seen] = []
    holds = rule.conditions[number].holds(data, seen)
    trace.asked(rule, number, holds, seen)
    return holds


def _act(rule: CompiledRule, rule_context: RuleContext, mask: MaskSecrets, trace: RuleTrace | None) -> None:
    acting = Acting(rule_context, rule.rule.uuid, rule.rule.sensitive)
    with _blaming(rule):
        data = rule_context.data.masking(masked(rule, mask))
        for number, action in enumerate(rule.actions):
            for each in action.each(data):
                args = action.arguments(each)
                if trace is not None:
                    trace.acts(rule, number, args)
                action.run(acting, args)


def _name_is_free(named_by: CompiledRule, rule_context: RuleContext) -> None:
    """Check that the name set by rules is free; if it is taken before the commit, the store rejects it."""
    with _blaming(named_by):
        name = rule_context.node.name
        owner = None if name is None else rule_context.context.named(name)
        if owner is not None:
            raise NameTakenError(str(name), owner)


def _failed(rule: CompiledRule, what: str, exc: Exception, reason: Reason) -> RuleFailedError:
    told = "" if rule.rule.sensitive else f": {exc}"
    return RuleFailedError(rule.rule.uuid, f"the rule {title(rule)} {what}{told}"[:_MAX_MESSAGE], reason)


def titles(rules: Sequence[CompiledRule]) -> str:
    """Return the rules' names for a message."""
    return ", ".join(title(rule) for rule in rules)
