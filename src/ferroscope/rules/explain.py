"""The dry run: runs the rules on copies of a node, and reports everything they check and would change.

It uses the worker's engine; nothing is stored, logged or called. Of a sensitive rule only the result is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from ferroscope.core.model import Document, Node, Port, Severity
from ferroscope.hooks import helpers
from ferroscope.hooks.base import PortChanges
from ferroscope.rules import engine, masking
from ferroscope.rules.conditions import CheckResult
from ferroscope.rules.data import RuleContext, RuleFailedError
from ferroscope.rules.engine import CompiledRule, MaskSecrets, RuleSet
from ferroscope_client.core import json_safety, values
from ferroscope_client.core.json_safety import ready
from ferroscope_client.core.values import MASK, is_secret

# The difference between two documents, as a list of paths.

MAX_CHANGES: Final = 1000
# Characters. With one long name, the paths of all values below it would take gigabytes.
_MAX_PATH: Final = 1000


class ValueChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One changed value; a value that does not exist is omitted. Secrets are masked."""

    path: str
    before: Any | msgspec.UnsetType = msgspec.UNSET
    after: Any | msgspec.UnsetType = msgspec.UNSET


def changes(before: Any, after: Any) -> list[ValueChange]:
    """Return the changes between two JSON documents, at most ``MAX_CHANGES`` of them."""
    limited: list[ValueChange] = []
    for change in _walk("", before, after):
        limited.append(change)
        if len(limited) == MAX_CHANGES:
            break
    return limited


def _walk(path: str, before: Any, after: Any) -> Iterator[ValueChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            below = f"{path}/{key[:_MAX_PATH]}"[:_MAX_PATH]
            if key not in after:
                yield ValueChange(below, before=_mask_value(key, before[key]))
            elif key not in before:
                yield ValueChange(below, after=_mask_value(key, after[key]))
            elif is_secret(key) and before[key] != after[key]:
                yield ValueChange(below, before=MASK, after=MASK)
            else:
                yield from _walk(below, before[key], after[key])
    elif before != after:
        yield ValueChange(path, before=_mask_value("", before), after=_mask_value("", after))


def _mask_value(key: str, value: Any) -> Any:
    return values.mask({key: value})[key]


ready(Node, Port)

_MAX_LISTED_CHECKS: Final = 50
_NOT_COMPARED: Final = ("internal", "version", "updated_at", "created_at")

Result = Literal["applied", "does not apply", "out of scope", "failed", "not reached"]


class ConditionResult(msgspec.Struct):
    """One condition: whether it matches, and its first checks (several in a loop)."""

    op: str
    holds: bool
    checks: list[CheckResult]
    left_out: int = 0


class ActionResult(msgspec.Struct):
    """One execution of an action, with its rendered arguments."""

    op: str
    args: Document


class RuleExplained(msgspec.Struct, kw_only=True):
    """One rule; of a sensitive one ``conditions`` and ``actions`` are null. ``error``: why it failed."""

    uuid: str
    description: str | None
    priority: int
    dialect: str
    scope: str | None
    sensitive: bool
    built_in: bool
    result: Result
    error: str | None = None
    conditions: list[ConditionResult] | None
    actions: list[ActionResult] | None


class PortChange(msgspec.Struct, frozen=True):
    """The changes to one port."""

    address: str
    changes: list[ValueChange]


class RuleExplanation(msgspec.Struct, kw_only=True):
    """``failed``: the inspection would end in error, and none of the changes would be made."""

    failed: bool
    rules: list[RuleExplained]
    node: list[ValueChange]
    ports: list[PortChange]
    plugin_data: list[ValueChange]
    calls: list[str]


class DryContext:
    """``rules.data.RuleTaskContext`` on copies.

    ``elsewhere`` returns which MACs are ports of other nodes, ``find_node_by_name`` which other node has a name,
    ``previous`` is the previous inventory.
    """

    def __init__(
        self,
        node: Node,
        ports: Sequence[Port],
        *,
        elsewhere: Callable[[Iterable[str]], dict[str, str]] = lambda _macs: {},
        find_node_by_name: Callable[[str], str | None] = lambda _name: None,
        previous: Callable[[], Document | None] = lambda: None,
    ) -> None:
        self.node = json_safety.decode_own(msgspec.json.encode(node), Node)
        self.ports = [json_safety.decode_own(msgspec.json.encode(port), Port) for port in ports]
        self.port_changes = PortChanges()
        self._elsewhere = elsewhere
        self._find_node_by_name = find_node_by_name
        self._previous = previous

    def note(
        self,
        name: str,
        message: str,
        *,
        severity: Severity = Severity.INFO,
        reason: str | None = None,
        detail: Document | None = None,
    ) -> None:
        """Discard it; a dry run leaves no trace."""

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        return self._elsewhere(macs)

    def find_node_by_name(self, name: str) -> str | None:
        return self._find_node_by_name(name)

    def previous_inventory(self) -> Document | None:
        return self._previous()


class _Witness:
    def __init__(self, rules: RuleSet) -> None:
        self.reports = {rule.rule.uuid: _report(rule) for rule in rules.rules}

    def note_out_of_scope(self, rule: CompiledRule) -> None:
        self.reports[rule.rule.uuid].result = "out of scope"

    def note_condition(self, rule: CompiledRule, number: int, holds: bool, checks: list[CheckResult]) -> None:
        report = self.reports[rule.rule.uuid]
        if not holds:
            report.result = "does not apply"
        if report.conditions is not None:
            condition = rule.rule.conditions[number]
            listed = [_masked_check(condition, check) for check in checks[:_MAX_LISTED_CHECKS]]
            report.conditions.append(
                ConditionResult(str(condition.get("op")), holds, listed, max(0, len(checks) - _MAX_LISTED_CHECKS))
            )

    def note_action(self, rule: CompiledRule, number: int, args: Document) -> None:
        report = self.reports[rule.rule.uuid]
        report.result = "applied"
        if report.actions is not None and len(report.actions) < _MAX_LISTED_CHECKS:
            masked = masking.mask_rendered(rule.rule.actions[number], args)
            report.actions.append(ActionResult(rule.actions[number].op, _printable(masked)))


def _masked_check(condition: Document, check: CheckResult) -> CheckResult:
    args = None if check.args is None else masking.mask_rendered(condition, check.args)
    return CheckResult(args, check.holds, check.missing)


def explain(
    rules: RuleSet,
    context: DryContext,
    inventory: Document,
    plugin_data: Document,
    *,
    mask: MaskSecrets,
    drivers: Collection[str],
) -> RuleExplanation:
    """Run the rules on ``context``'s copies and on ``plugin_data``, and return a full report."""
    node, ports, data = _node(context.node), _ports(context), json_safety.decode_own(msgspec.json.encode(plugin_data))
    trace = _Witness(rules)
    rule_context = RuleContext(context, inventory, plugin_data, drivers=drivers)
    failed = False
    try:
        for rule in engine.run(rules, rule_context, mask, trace):
            trace.reports[rule.rule.uuid].result = "applied"
    except RuleFailedError as exc:
        failed = True
        trace.reports[exc.rule].result = "failed"
        trace.reports[exc.rule].error = exc.message
    return RuleExplanation(
        failed=failed,
        rules=list(trace.reports.values()),
        node=[] if failed else changes(node, _node(context.node)),
        ports=[] if failed else _port_changes(ports, _ports(context)),
        plugin_data=[] if failed else changes(data, plugin_data),
        calls=[] if failed else [call.url.partition("?")[0] for call in rule_context.calls if not call.sensitive],
    )


def _report(rule: CompiledRule) -> RuleExplained:
    hidden = rule.rule.sensitive
    return RuleExplained(
        uuid=rule.rule.uuid,
        description=rule.rule.description,
        priority=rule.rule.priority,
        dialect=str(rule.rule.dialect),
        scope=rule.rule.scope,
        sensitive=hidden,
        built_in=rule.built_in,
        result="not reached",
        conditions=None if hidden else [],
        actions=None if hidden else [],
    )


def _printable(args: Document) -> Document:
    return {name: value for name, value in args.items() if value is not None}


def _node(node: Node) -> Any:
    return {name: value for name, value in msgspec.to_builtins(node).items() if name not in _NOT_COMPARED}


def _ports(context: DryContext) -> dict[str, Any]:
    return {
        mac: {name: value for name, value in msgspec.to_builtins(port).items() if name not in _NOT_COMPARED}
        for mac, port in helpers.current(context).items()
    }


def _port_changes(before: dict[str, Any], after: dict[str, Any]) -> list[PortChange]:
    port_changes = [PortChange(mac, changes(before.get(mac, {}), port)) for mac, port in after.items()]
    return [change for change in port_changes if change.changes]
