"""Loops: a check or an action once for each item of a list that is written in the rule, or found in the data.

An object is one item, as the Bare Metal API has it. Placeholders in written items are rendered; items
that come from data are data, whatever braces they hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from ferroscope.rules import template
from ferroscope.rules.arguments import is_variable
from ferroscope.rules.data import Data
from ferroscope.rules.errors import InvalidRuleError, RuleError
from ferroscope.rules.limits import MAX_LOOP


def compile_loop(loop: Any, roots: Collection[str]) -> template.Render | None:
    """Return what renders the items; None where there is no loop. ``InvalidRuleError``."""
    if loop in (None, [], {}):
        return None
    if isinstance(loop, list) and len(loop) > MAX_LOOP:
        raise InvalidRuleError([f"loop has {len(loop)} items; at most {MAX_LOOP}"])
    if not isinstance(loop, list | dict) and not is_variable(loop, roots):
        raise InvalidRuleError(["loop must be a list, an object, or a placeholder like {inventory[interfaces]}"])
    try:
        return template.plan(loop, set(roots) - {"item"})
    except InvalidRuleError as exc:
        raise InvalidRuleError([f"loop: {problem}" for problem in exc.problems]) from None


def each(loop: template.Render, data: Data) -> Iterator[Data]:
    """Yield the data for each item; ``RuleError`` where the loop is over something else than a list."""
    items = loop(data)
    if isinstance(items, dict):
        items = [items]
    if not isinstance(items, list):
        raise RuleError(f"the loop is over {type(items).__name__}, which is no list")
    if len(items) > MAX_LOOP:
        raise RuleError(f"the loop has {len(items)} items; at most {MAX_LOOP}")
    for item in items:
        yield data.with_item(item)
