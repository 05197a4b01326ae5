"""``rules``: the CPU time that rules cost one inspection, with nothing else around them.

Twenty rules of the usual kinds on one inventory: half of them apply. It is compared with the hooks' own time.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document, Node, Rule
from ferroscope.hooks.pipeline import from_settings
from ferroscope.rules import engine
from ferroscope.rules.data import RuleContext
from ferroscope.rules.engine import RuleSet, compile_rule
from ferroscope.rules.explain import DryContext
from ferroscope_sim.inventory import document

_NODE: Final = "11111111-1111-4111-8111-111111111111"


class Cost(msgspec.Struct, frozen=True):
    """Medians, in milliseconds of CPU: of ``rules`` rules, of the hooks, and of compiling the rules once."""

    size: int
    rules: int
    applied: int
    run: float
    hooks: float
    compile: float


def measure(number: int, size: int, runs: int) -> Cost:
    """Return what ``number`` rules cost on an inventory of about ``size`` bytes, in the median of ``runs``."""
    sent: Document = dict(document(0, size=size))
    inventory = sent.pop("inventory")
    pipeline = from_settings(InspectorSettings())
    rules = [example(index) for index in range(number)]
    began = time.process_time()
    compiled = RuleSet.of(1, [compile_rule(rule) for rule in rules])
    compiling = time.process_time() - began
    hooks, run, applied = [], [], 0
    for _ in range(runs):
        context = DryContext(Node(uuid=_NODE, driver="fake-hardware", name="one"), [])
        first = time.process_time()
        plugin_data = pipeline.run(context, inventory, dict(sent))
        second = time.process_time()
        applied = len(engine.run(compiled, RuleContext(context, inventory, plugin_data, drivers=("sim",)), "always"))
        third = time.process_time()
        hooks.append(second - first)
        run.append(third - second)
    encoded = len(msgspec.json.encode(inventory))
    return Cost(encoded, number, applied, _median(run), _median(hooks), compiling * 1000)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] * 1000


def example(index: int) -> Rule:
    """Return a rule of one of the usual kinds."""
    kind: dict[str, Any] = _KINDS[index % len(_KINDS)]
    return Rule(uuid=f"{index:08d}-0000-4000-8000-000000000000", priority=index, **kind)


_KINDS: Final[tuple[dict[str, Any], ...]] = (
    {
        "conditions": [{"op": "ge", "args": {"values": ["{inventory[memory][physical_mb]}", 1024]}}],
        "actions": [{"op": "set-attribute", "args": {"path": "extra/memory", "value": "{inventory[memory]}"}}],
    },
    {
        "conditions": [
            {
                "op": "matches",
                "args": {"value": "{inventory[system_vendor][manufacturer]}", "regex": "No Such Vendor.*"},
            }
        ],
        "actions": [{"op": "set-attribute", "args": {"path": "driver", "value": "sim"}}],
    },
    {
        "conditions": [
            {"op": "contains", "args": {"value": "{item[name]}", "regex": "^e"}, "loop": "{inventory[interfaces]}"}
        ],
        "actions": [{"op": "set-capability", "args": {"name": "nics", "value": "named"}}],
    },
    {
        "conditions": [{"op": "in-net", "args": {"address": "{inventory[bmc_address]}", "subnet": "203.0.113.0/24"}}],
        "actions": [{"op": "add-trait", "args": {"name": "CUSTOM_LAB"}}],
    },
)
