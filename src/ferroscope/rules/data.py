"""What rules can read: the node, its ports, the inventory, the plugin data, an item of a loop.

All of it is data of JSON's kinds; no attribute of a Python object can be reached from here. Secrets of
the node are masked always, those in inspection data unless the configuration says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ferroscope.core.model import Document, Node, Port
from ferroscope.core.reasons import Reason
from ferroscope.core.values import MASK, is_secret, without_user

# What can be wrong with a rule: with its text, with the data that it meets, or by its own decision.


class InvalidRuleError(Exception):
    """The rule as written cannot be used; ``problems`` names each wrong field and says what is right."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class RuleError(Exception):
    """The rule cannot be carried out on this data: the inspection fails."""


class NameTakenError(RuleError):
    """The name that a rule gives the node is another node's."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"the name {name!r} that it gives the node is that of node {owner} already")


class MissingDataError(RuleError):
    """A placeholder or a path names something that is not there."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no {name}")


class RefusedError(Exception):
    """The rule's own action ``fail`` refused the machine; the message is the operator's."""


class RuleFailedError(Exception):
    """A rule ended the inspection: which one, what of it may be told, and the kind of the failure."""

    def __init__(self, rule: str, message: str, reason: Reason = Reason.RULE_FAILED) -> None:
        self.rule = rule
        self.message = message
        self.reason = reason
        super().__init__(message)


# How much a rule may ask for, and how much all rules together may do in one inspection.
#
# Rules are written by operators, but what they meet comes from machines: neither may take a worker
# away for long or fill its memory.

MAX_RULES: Final = 1000
MAX_CONDITIONS: Final = 100
MAX_ACTIONS: Final = 100
MAX_LOOP: Final = 1000
MAX_TEXT: Final = 8192
MAX_DEPTH: Final = 32
MAX_PATH: Final = 16
MAX_REGEX: Final = 1024
MAX_EXPANSION: Final = 4096
MAX_SUBJECT: Final = 65536
MAX_CALLS: Final = 20

REGEX_SECONDS: Final = 0.1


class Budget(msgspec.Struct):
    """What is left for the rules of one inspection.

    ``steps``: checks and actions carried out, items of loops counted singly. ``size``: characters and
    items handed to actions and comparisons. ``regex``: seconds spent in regular expressions.
    """

    steps: int = 100_000
    size: int = 16 * 1024 * 1024
    regex: float = 1.0
    calls: int = MAX_CALLS

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise RuleError("the rules did too much: more than 100000 checks and actions for one inspection")

    def take(self, size: int) -> None:
        self.size -= size
        if self.size < 0:
            raise RuleError("the rules moved too much data: more than 16 MiB for one inspection")

    def copy(self, value: Any, *, mask: bool, depth: int = MAX_DEPTH) -> Any:
        """Return a copy that shares nothing; with ``mask`` what has a secret's name is masked."""
        if isinstance(value, str):
            self.take(len(value))
            return without_user(value) if mask else value
        if not isinstance(value, dict | list):
            return value
        if depth <= 0:
            raise RuleError(f"the data is nested more than {MAX_DEPTH} deep")
        self.take(len(value) + 1)
        if isinstance(value, list):
            return [self.copy(item, mask=mask, depth=depth - 1) for item in value]
        return {
            str(key): MASK if mask and item and is_secret(str(key)) else self.copy(item, mask=mask, depth=depth - 1)
            for key, item in value.items()
        }


Step = str | int

BARE_METAL_ROOTS: Final = frozenset({"node", "ports", "inventory", "plugin_data", "item"})
INTROSPECTION_ROOTS: Final = frozenset({"data"})

# Not for rules: what drivers and the service note for themselves, tokens among it.
_NODE_FIELDS: Final = tuple(
    name for name in Node.__struct_fields__ if name not in ("internal", "attributes", "version", "state")
)
_PORT_FIELDS: Final = tuple(name for name in Port.__struct_fields__ if name not in ("internal", "attributes", "node"))


class Data:
    """The roots that placeholders and paths begin with, always as they are at this moment."""

    __slots__ = ("_item", "_mask", "_ports", "budget", "inventory", "node", "plugin_data")

    def __init__(
        self,
        node: Node,
        ports: Callable[[], Sequence[Port]],
        inventory: Document,
        plugin_data: Document,
        budget: Budget,
        *,
        mask: bool,
        item: Any = None,
    ) -> None:
        self.node = node
        self.inventory = inventory
        self.plugin_data = plugin_data
        self.budget = budget
        self._ports = ports
        self._mask = mask
        self._item = item

    def masking(self, mask: bool) -> Data:
        """Return the same data, with or without what inspection data hold of secrets."""
        return Data(self.node, self._ports, self.inventory, self.plugin_data, self.budget, mask=mask, item=self._item)

    def with_item(self, item: Any) -> Data:
        """Return the same data for one item of a loop."""
        return Data(self.node, self._ports, self.inventory, self.plugin_data, self.budget, mask=self._mask, item=item)

    def root(self, name: str) -> tuple[Any, bool]:
        """Return what ``name`` stands for, not to be changed, and whether it is to be masked."""
        match name:
            case "inventory":
                return self.inventory, self._mask
            case "plugin_data":
                return self.plugin_data, self._mask
            case "item":
                return self._item, False  # it was masked when the loop began
            case "data":
                return {**self.plugin_data, "inventory": self.inventory}, self._mask
            case "node":
                return _node(self.node), True
            case _:
                return [_port(port) for port in self._ports()], True

    def get(self, root: str, steps: Sequence[Step], name: str) -> Any:
        """Return a copy of what lies at ``steps`` below ``root``; ``MissingDataError`` with ``name``."""
        value, mask = self.root(root)
        for step in steps:
            value = _child(value, step, name)
            if mask and value and isinstance(step, str) and is_secret(step):
                return MASK
        return self.budget.copy(value, mask=mask)


def _child(value: Any, step: Step, name: str) -> Any:
    if isinstance(value, Mapping):
        key = str(step)
        if key in value:
            return value[key]
    elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        return value[step]
    raise MissingDataError(name)


def _node(node: Node) -> Document:
    return {**node.attributes, **{name: getattr(node, name) for name in _NODE_FIELDS}}


def _port(port: Port) -> Document:
    return {**port.attributes, **{name: getattr(port, name) for name in _PORT_FIELDS}}
