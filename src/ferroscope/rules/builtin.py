"""Built-in rules: a YAML file with a list of rules in the Bare Metal API's form, read and checked at the start.

They run beside the stored ones, cannot be changed through an API, and may have any priority.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from ferroscope.core.model import PHASES, Rule
from ferroscope.rules.compile import CompiledRule, compile_rule
from ferroscope.rules.errors import InvalidRuleError
from ferroscope.rules.limits import MAX_RULES

_MAX_SIZE: Final = 4 * 1024 * 1024


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    actions: list[dict[str, Any]]
    conditions: list[dict[str, Any]] | None = None
    uuid: str | None = None
    description: str | None = None
    priority: int = 0
    phase: str | None = None
    sensitive: bool | None = None
    scope: str | None = None


def load(path: str) -> tuple[CompiledRule, ...]:
    """Return the rules of the file, none where ``path`` is empty; ``InvalidRuleError`` names every problem."""
    if not path:
        return ()
    return read(path, _content(path))


def read(path: str, content: bytes, *, one: bool = False) -> tuple[CompiledRule, ...]:
    """Return the rules that ``content`` has; ``path`` is what messages call it. ``InvalidRuleError``.

    With ``one`` it may also be a rule by itself, as for ``ferroscope rule create``.
    """
    try:
        written = yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise InvalidRuleError([f"{path} is not YAML: {' '.join(str(exc).split())[:300]}"]) from None
    if one and isinstance(written, dict):
        written = [written]
    if not isinstance(written, list) or len(written) > MAX_RULES:
        raise InvalidRuleError([f"{path} must hold a list of at most {MAX_RULES} rules"])
    rules: list[CompiledRule] = []
    problems: list[str] = []
    for number, item in enumerate(written):
        try:
            rules.append(_rule(number, item))
        except InvalidRuleError as exc:
            problems += [f"{path}: rule {number + 1}: {problem}" for problem in exc.problems]
    problems += [f"{path}: two rules have the uuid {uuid}" for uuid in _twice([rule.rule.uuid for rule in rules])]
    if problems:
        raise InvalidRuleError(problems)
    return tuple(rules)


def _content(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_SIZE + 1)
    except OSError as exc:
        raise InvalidRuleError([f"{path} cannot be read: {exc.strerror}"]) from None
    if len(content) > _MAX_SIZE:
        raise InvalidRuleError([f"{path} is larger than {_MAX_SIZE} bytes"])
    return content


def _rule(number: int, item: Any) -> CompiledRule:
    try:
        given = msgspec.convert(item, _Written)
    except msgspec.ValidationError as exc:
        raise InvalidRuleError([str(exc)]) from None
    if (given.phase or "main") not in PHASES:
        raise InvalidRuleError([f"phase must be one of {', '.join(PHASES)}; it was {str(given.phase)[:40]!r}"])
    if given.uuid is not None and not 0 < len(given.uuid) <= 64:
        raise InvalidRuleError(["uuid must have 1 to 64 characters"])
    try:
        actions = msgspec.json.decode(msgspec.json.encode(given.actions))
        conditions = msgspec.json.decode(msgspec.json.encode(given.conditions or []))
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidRuleError([f"it holds what JSON cannot: {exc}"]) from None
    rule = Rule(
        uuid=given.uuid or f"00000000-0000-0000-0000-{number:012x}",
        description=given.description,
        priority=given.priority,
        sensitive=bool(given.sensitive),
        scope=given.scope,
        conditions=conditions,
        actions=actions,
        created_at=float(number),
    )
    return compile_rule(rule, built_in=True)


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
