"""Built-in rules: a YAML file with a list of rules in the Bare Metal API's form, validated at start.

They run together with the stored rules, cannot be changed through an API, and may have any priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec
import structlog
import yaml

from ferroscope.contracts.store import Query
from ferroscope.core.model import PHASES, Rule
from ferroscope.db import Transaction
from ferroscope.hardware import expectations
from ferroscope.hardware.expectations import CompiledExpectation, ExpectationError
from ferroscope.rules.actions import url as problem_of_url
from ferroscope.rules.conditions import CheckResult, RuleCondition
from ferroscope.rules.data import MAX_RULES, InvalidRuleError, RuleData, RuleError
from ferroscope.rules.engine import CompiledRule, RuleSet, compile_rule
from ferroscope_client.core import json_safety
from ferroscope_client.core.expectation import Expectation

_MAX_SIZE: Final = 4 * 1024 * 1024


class _RuleInFile(msgspec.Struct, forbid_unknown_fields=True):
    actions: list[dict[str, Any]]
    conditions: list[dict[str, Any]] | None = None
    uuid: str | None = None
    description: str | None = None
    priority: int = 0
    phase: str | None = None
    sensitive: bool | None = None
    scope: str | None = None


def load(path: str) -> tuple[CompiledRule, ...]:
    """Return the rules of the file, none if ``path`` is empty; ``InvalidRuleError`` lists all problems."""
    if not path:
        return ()
    return read(path, _content(path))


def read(path: str, content: bytes, *, single: bool = False) -> tuple[CompiledRule, ...]:
    """Return the rules in ``content``; ``path`` is its name in messages. ``InvalidRuleError``.

    With ``single`` it may also be a single rule, as for ``ferroscope rule create``.
    """
    try:
        items = yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise InvalidRuleError([f"{path} is not valid YAML: {' '.join(str(exc).split())[:300]}"]) from None
    if single and isinstance(items, dict):
        items = [items]
    if not isinstance(items, list) or len(items) > MAX_RULES:
        raise InvalidRuleError([f"{path} must contain a list of at most {MAX_RULES} rules"])
    rules: list[CompiledRule] = []
    problems: list[str] = []
    for number, item in enumerate(items):
        try:
            rules.append(_rule(number, item))
        except InvalidRuleError as exc:
            problems += [f"{path}: rule {number + 1}: {problem}" for problem in exc.problems]
    problems += [f"{path}: duplicate rule uuid {uuid}" for uuid in _duplicates([rule.rule.uuid for rule in rules])]
    if problems:
        raise InvalidRuleError(problems)
    return tuple(rules)


def _content(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_SIZE + 1)
    except OSError as exc:
        raise InvalidRuleError([f"cannot read {path}: {exc.strerror}"]) from None
    if len(content) > _MAX_SIZE:
        raise InvalidRuleError([f"{path} is larger than {_MAX_SIZE} bytes"])
    return content


def _rule(number: int, item: Any) -> CompiledRule:
    try:
        fields = msgspec.convert(item, _RuleInFile)
    except msgspec.ValidationError as exc:
        raise InvalidRuleError([str(exc)]) from None
    if (fields.phase or "main") not in PHASES:
        raise InvalidRuleError([f"phase must be one of {', '.join(PHASES)}; it was {str(fields.phase)[:40]!r}"])
    if fields.uuid is not None and not 0 < len(fields.uuid) <= 64:
        raise InvalidRuleError(["uuid must have 1 to 64 characters"])
    try:
        actions = json_safety.decode_own(msgspec.json.encode(fields.actions))
        conditions = json_safety.decode_own(msgspec.json.encode(fields.conditions or []))
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidRuleError([f"it contains a value that JSON cannot represent: {exc}"]) from None
    rule = Rule(
        uuid=fields.uuid or f"00000000-0000-0000-0000-{number:012x}",
        description=fields.description,
        priority=fields.priority,
        sensitive=bool(fields.sensitive),
        scope=fields.scope,
        conditions=conditions,
        actions=actions,
        created_at=float(number),
    )
    return compile_rule(rule, built_in=True)


def _duplicates(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


# The rules of a process, compiled once per revision of the stored rules, together with the built-in ones.

_log = structlog.get_logger(__name__)


class RuleCache:
    """Shared by all threads: a rule set is replaced as a whole, never changed."""

    def __init__(self, built_in: Sequence[CompiledRule] = ()) -> None:
        self._built_in = tuple(built_in)
        # The rules that were read last.
        self.latest = RuleSet(-1, ())

    def current(self, tx: Transaction) -> RuleSet:
        """Return the rules as this transaction sees them, with one small query unless they have changed."""
        revision, latest = tx.rules.revision(), self.latest
        if latest.revision == revision:
            return latest
        rules = [_compile_stored(rule) for rule in tx.rules.list(Query())]
        expected = [
            compiled
            for expectation in tx.expectations.list()
            if (compiled := _compile_expectation(expectation)) is not None
        ]
        self.latest = rule_set = RuleSet.of(revision, (*rules, *self._built_in), expected)
        return rule_set


def _compile_expectation(expectation: Expectation) -> CompiledExpectation | None:
    """Compile a stored expectation. An expectation that is no longer valid is logged and not checked."""
    try:
        return expectations.compile_expectation(expectation)
    except ExpectationError as exc:
        _log.error("stored expectation is no longer valid", expectation=expectation.name, error=str(exc))
        return None


class _Broken:
    """The only condition of a stored rule that can no longer be compiled; it raises the error."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def holds(self, data: RuleData, checks: list[CheckResult] | None = None) -> bool:
        raise RuleError(f"it is invalid in this version: {self._problem}")


def _compile_stored(rule: Rule) -> CompiledRule:
    """Compile a stored rule; if it is no longer valid, inspections fail rather than run without it."""
    try:
        return compile_rule(rule)
    except InvalidRuleError as exc:
        _log.error("stored rule is no longer valid", rule=rule.uuid)
        broken: RuleCondition = _Broken(str(exc))
        return CompiledRule(rule, (broken,), ())


# Allowed targets of API calls: base URLs from the configuration. Without any, no calls are allowed.

_PORTS = {"http": 80, "https": 443}


def check(targets: Sequence[str]) -> None:
    """Raise ``InvalidRuleError`` for a target that is not a plain URL."""
    for target in targets:
        problem = problem_of_url(target)
        if problem is None and (urlsplit(target).query or urlsplit(target).fragment):
            problem = "must have neither query nor fragment"
        if problem is not None:
            raise InvalidRuleError([f"[inspection_rules] api_call_targets: {target!r} {problem}"])


def is_allowed(url: str, targets: Sequence[str]) -> bool:
    """Whether ``url`` is at or below one of ``targets``: same scheme, host and port, path below theirs."""
    if problem_of_url(url) is not None:
        return False
    parts = urlsplit(url)
    if any(part in (".", "..") or "/" in part or "\\" in part for part in map(_decode_twice, parts.path.split("/"))):
        return False
    return any(_below(parts, urlsplit(target)) for target in targets)


def _decode_twice(part: str) -> str:
    """Return a part of a path decoded twice, as some servers do."""
    return unquote(unquote(part))


def _below(parts: SplitResult, target: SplitResult) -> bool:
    if (parts.scheme, parts.hostname, _port(parts)) != (target.scheme, target.hostname, _port(target)):
        return False
    base = target.path.rstrip("/")
    return parts.path == base or parts.path.startswith(f"{base}/") or (not base and not parts.path)


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]
