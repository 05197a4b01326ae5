"""Runs rules on one inspection's copies: which apply, in which order, and what becomes of a failure.

Greater priority first; at equal priority stored rules before built-in ones, older before newer. The
conditions of introspection rules are all asked before any rule acts, those of the others when it is their turn.
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
from ferroscope.rules.context import Acting, Bench
from ferroscope.rules.data import Data, NameTakenError, RefusedError, RuleError, RuleFailedError

MaskSecrets = Literal["always", "never", "sensitive"]

SCOPE: Final = "inspection_scope"
_MAX_MESSAGE: Final = 2000


class RuleSet(msgspec.Struct, frozen=True):
    """The rules of one revision in the order in which they run."""

    revision: int
    rules: tuple[CompiledRule, ...]

    @staticmethod
    def of(revision: int, rules: Iterable[CompiledRule]) -> RuleSet:
        """Return ``rules`` in their order."""
        order = sorted(rules, key=lambda one: (-one.rule.priority, one.built_in, one.rule.created_at, one.rule.uuid))
        return RuleSet(revision, tuple(order))


class Witness(Protocol):
    """Sees what happens, for the dry run."""

    def scoped_out(self, rule: CompiledRule) -> None: ...
    def asked(self, rule: CompiledRule, number: int, holds: bool, seen: list[Seen]) -> None: ...
    def acts(self, rule: CompiledRule, number: int, args: Document) -> None: ...


def run(rules: RuleSet, bench: Bench, mask: MaskSecrets, witness: Witness | None = None) -> list[CompiledRule]:
    """Apply the rules to what is on the bench; return those that applied.

    ``RuleFailedError`` names the one that failed.
    """
    concerned = [rule for rule in rules.rules if _in_scope(rule, bench.node, witness)]
    eager = {rule.rule.uuid: _holds(rule, bench, mask, witness) for rule in concerned if rule.eager}
    applied, named_by, name = [], None, bench.node.name
    for rule in concerned:
        if eager[rule.rule.uuid] if rule.eager else _holds(rule, bench, mask, witness):
            _act(rule, bench, mask, witness)
            applied.append(rule)
        if bench.node.name != name:
            named_by, name = rule, bench.node.name
    if named_by is not None:
        _name_is_free(named_by, bench)
    return applied


def masked(rule: CompiledRule, mask: MaskSecrets) -> bool:
    """Whether secrets in inspection data are masked for this rule."""
    return mask == "always" or (mask == "sensitive" and not rule.rule.sensitive)


def title(rule: CompiledRule) -> str:
    """Return how a rule is called where people read it; a sensitive one is its UUID alone."""
    described = rule.rule.description if not rule.rule.sensitive else None
    return f"{rule.rule.uuid} ({described})" if described else rule.rule.uuid


def _in_scope(rule: CompiledRule, node: Node, witness: Witness | None) -> bool:
    inside = not rule.rule.scope or node.properties.get(SCOPE) == rule.rule.scope
    if not inside and witness is not None:
        witness.scoped_out(rule)
    return inside


@contextlib.contextmanager
def _blaming(rule: CompiledRule) -> Iterator[None]:
    """Whatever ends a step of the rule becomes a ``RuleFailedError`` that names it."""
    try:
        yield
    except RefusedError as exc:
        raise _failed(rule, "refused the machine", exc, Reason.REFUSED_BY_RULE) from None
    except NameTakenError as exc:
        raise _failed(rule, "cannot be carried out", exc, Reason.NAME_TAKEN) from None
    except RuleError as exc:
        raise _failed(rule, "cannot be carried out", exc, Reason.RULE_FAILED) from None


def _holds(rule: CompiledRule, bench: Bench, mask: MaskSecrets, witness: Witness | None) -> bool:
    with _blaming(rule):
        data = bench.data.masking(masked(rule, mask))
        return all(_asked(rule, number, data, witness) for number in range(len(rule.conditions)))


def _asked(rule: CompiledRule, number: int, data: Data, witness: Witness | None) -> bool:
    if witness is None:
        return rule.conditions[number].holds(data)
    seen: list[Seen] = []
    holds = rule.conditions[number].holds(data, seen)
    witness.asked(rule, number, holds, seen)
    return holds


def _act(rule: CompiledRule, bench: Bench, mask: MaskSecrets, witness: Witness | None) -> None:
    acting = Acting(bench, rule.rule.uuid, rule.rule.sensitive)
    with _blaming(rule):
        data = bench.data.masking(masked(rule, mask))
        for number, action in enumerate(rule.actions):
            for each in action.each(data):
                args = action.arguments(each)
                if witness is not None:
                    witness.acts(rule, number, args)
                action.run(acting, args)


def _name_is_free(named_by: CompiledRule, bench: Bench) -> None:
    """Look whose the name is that rules gave the node in the end; what is committed meanwhile, the store refuses."""
    with _blaming(named_by):
        name = bench.node.name
        owner = None if name is None else bench.context.named(name)
        if owner is not None:
            raise NameTakenError(str(name), owner)


def _failed(rule: CompiledRule, what: str, exc: Exception, reason: Reason) -> RuleFailedError:
    told = "" if rule.rule.sensitive else f": {exc}"
    return RuleFailedError(rule.rule.uuid, f"the rule {title(rule)} {what}{told}"[:_MAX_MESSAGE], reason)


def titles(rules: Sequence[CompiledRule]) -> str:
    """Return the rules as one sentence names them."""
    return ", ".join(title(rule) for rule in rules)
