"""What rules can read: the node, its ports, the inventory, the plugin data, an item of a loop.

All of it is data of JSON's kinds; no attribute of a Python object can be reached from here. Secrets of
the node are masked always, those in inspection data unless the configuration says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ferroscope.core.model import Document, Node, Port
from ferroscope.core.values import MASK, is_secret
from ferroscope.rules.errors import MissingDataError
from ferroscope.rules.limits import Budget

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
