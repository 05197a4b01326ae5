"""One rule at work on a small machine: short words for what the tests of rules do."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.core.model import Document, Node, Port, Rule, RuleDialect
from ferroscope.hooks import helpers
from ferroscope.rules import engine
from ferroscope.rules.data import RuleContext
from ferroscope.rules.engine import MaskSecrets, RuleSet, compile_rule
from ferroscope.rules.explain import DryContext

MAC = "52:54:00:00:00:01"
DRIVERS = ("fake-hardware", "redfish")

INVENTORY: Document = {
    "cpu": {"count": 8, "architecture": "x86_64", "flags": ["vmx", "aes"]},
    "memory": {"physical_mb": 65536},
    "bmc_address": "192.0.2.7",
    "bmc_password": "hunter2",
    "hostname": "",
    "interfaces": [
        {"name": "eno1", "mac_address": MAC, "has_carrier": True, "speed": 25000},
        {"name": "eno2", "mac_address": "52:54:00:00:00:02", "has_carrier": False, "speed": 1000},
    ],
    "system_vendor": {"manufacturer": "Dell Inc.", "product_name": "R640 {node.uuid}", "serial_number": "S 1/2"},
}


class Site:
    """A node with one port, an inventory and plugin data, for one run of rules."""

    def __init__(self, plugin_data: Document | None = None, inventory: Document | None = None, **node: Any) -> None:
        fields = {"uuid": "a1", "driver": "fake-hardware", "name": "one", **node}
        self.inventory = msgspec.json.decode(msgspec.json.encode(INVENTORY if inventory is None else inventory))
        self.plugin_data: Document = plugin_data if plugin_data is not None else {}
        self.context = DryContext(Node(**fields), [Port(uuid="p1", node="a1", address=MAC)])
        self.rule_context = RuleContext(self.context, self.inventory, self.plugin_data, drivers=DRIVERS)

    @property
    def node(self) -> Node:
        return self.context.node

    @property
    def port(self) -> Port:
        return helpers.current(self.context)[MAC]

    def run(self, *rules: Rule, mask: MaskSecrets = "always") -> list[str]:
        """Run the rules and return the UUIDs of those that applied."""
        found = engine.run(RuleSet.of(1, [compile_rule(rule) for rule in rules]), self.rule_context, mask)
        return [rule.rule.uuid for rule in found]


def rule(*actions: Document, conditions: list[Document] | None = None, **fields: Any) -> Rule:
    """Return a rule of the Bare Metal API; without actions it notes in plugin data that it applied."""
    acts = list(actions) or [{"op": "set-plugin-data", "args": {"path": "applied", "value": True}}]
    return Rule(**{"uuid": "r1", "conditions": conditions or [], "actions": acts, **fields})


def old_rule(*actions: Document, conditions: list[Document] | None = None, **fields: Any) -> Rule:
    """Return a rule of the Introspection API, in its stored form."""
    acts = list(actions) or [{"op": "set-attribute", "args": {"path": "/extra/applied", "value": True}}]
    return Rule(
        **{
            "uuid": "r1",
            "dialect": RuleDialect.INTROSPECTION,
            "conditions": conditions or [],
            "actions": acts,
            **fields,
        }
    )


def holds(op: str, args: Any, site: Site | None = None, **more: Any) -> bool:
    """Whether a condition of the Bare Metal API holds."""
    return (site or Site()).run(rule(conditions=[{"op": op, "args": args, **more}])) == ["r1"]


def found(field: str, op: str, value: Any = None, site: Site | None = None, **more: Any) -> bool:
    """Whether a condition of the Introspection API holds."""
    args = {"field": field} if op.endswith("is-empty") else {"field": field, "value": value}
    return (site or Site()).run(old_rule(conditions=[{"op": op, "args": args, **more}])) == ["r1"]


def rendered(value: Any, site: Site | None = None, **more: Any) -> Any:
    """Return what an argument comes out as."""
    site = site or Site()
    site.run(rule({"op": "set-plugin-data", "args": {"path": "out", "value": value}, **more}))
    return site.plugin_data["out"]
