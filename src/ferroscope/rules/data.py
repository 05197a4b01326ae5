"""The data that rules can read (the node, its ports, inventory, plugin data, a loop item), and what actions work on.

All of it is JSON data; no attribute of a Python object can be reached. Secrets of the node are always masked, those in
inspection data unless the configuration disables that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from ferroscope.core import introspection_data
from ferroscope.core.model import Document, Node, Port
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookContext
from ferroscope_client.core import json_safety
from ferroscope_client.core.json_safety import ready
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import MASK, is_secret, without_user

# Errors: in the rule itself, on the data it is applied to, and refusals by a rule.


class InvalidRuleError(Exception):
    """The rule is invalid; ``problems`` has each invalid field and what is expected."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class RuleError(Exception):
    """The rule cannot be applied to this data: the inspection fails."""


class NameTakenError(RuleError):
    """The rule sets a node name that is already in use."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"node name {name!r} is already in use by node {owner}")


class MissingDataError(RuleError):
    """A placeholder or a path refers to data that does not exist."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name} does not exist")


class WriteRefusedError(Exception):
    """The action ``fail`` refused the machine; the message is the operator's."""


class RuleFailedError(Exception):
    """A rule ended the inspection: the rule, a message that may be shown, and the reason."""

    def __init__(self, rule: str, message: str, reason: Reason = Reason.RULE_FAILED) -> None:
        self.rule = rule
        self.message = message
        self.reason = reason
        super().__init__(message)


# Limits for a rule, and for all rules of one inspection together.
#
# Operators write the rules, but machines supply the data: neither may block a worker or fill its memory.

MAX_RULES: Final = 1000
MAX_CONDITIONS: Final = 100
MAX_ACTIONS: Final = 100
MAX_VALUES: Final = 10_000
MAX_LOOP: Final = 1000
MAX_TEXT: Final = 8192
MAX_DEPTH: Final = 32
MAX_PATH: Final = 16
MAX_REGEX: Final = 1024
MAX_EXPANSION: Final = 4096
MAX_SUBJECT: Final = 65536
MAX_CALLS: Final = 20

REGEX_SECONDS: Final = 0.1


class RuleBudget(msgspec.Struct):
    """What is left for the rules of one inspection.

    ``steps``: checks and actions, each loop item counted. ``size``: characters and items passed to actions and
    comparisons. ``regex``: seconds spent in regular expressions.
    """

    steps: int = 100_000
    size: int = 16 * 1024 * 1024
    regex: float = 1.0
    calls: int = MAX_CALLS

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise RuleError("limit exceeded: more than 100000 checks and actions for one inspection")

    def take(self, size: int) -> None:
        self.size -= size
        if self.size < 0:
            raise RuleError("limit exceeded: more than 16 MiB of rule data for one inspection")

    def copy(self, value: Any, *, mask: bool, depth: int = MAX_DEPTH) -> Any:
        """Return a deep copy; with ``mask``, fields with a secret's name are masked."""
        if isinstance(value, str):
            self.take(len(value))
            return without_user(value) if mask else value
        if not isinstance(value, dict | list):
            return value
        if depth <= 0:
            raise RuleError(f"the data is nested more than {MAX_DEPTH} levels deep")
        self.take(len(value) + 1)
        if isinstance(value, list):
            return [self.copy(item, mask=mask, depth=depth - 1) for item in value]
        return {
            str(key): MASK if mask and item and is_secret(str(key)) else self.copy(item, mask=mask, depth=depth - 1)
            for key, item in value.items()
        }


Step = str | int

# Ironic has no ``all_interfaces``, but rules that were written for ironic-inspector's data use it (openstack/kayobe).
BARE_METAL_ROOTS: Final = frozenset({"node", "ports", "inventory", "plugin_data", "all_interfaces", "item"})
INTROSPECTION_ROOTS: Final = frozenset({"data"})

# Not for rules: internal data of drivers and the service, which includes tokens.
_NODE_FIELDS: Final = tuple(
    name for name in Node.__struct_fields__ if name not in ("internal", "attributes", "sources", "version", "state")
)
_PORT_FIELDS: Final = tuple(name for name in Port.__struct_fields__ if name not in ("internal", "attributes", "node"))


class IntrospectionView:
    """The root ``data`` of introspection rules: the inspection data under ironic-inspector's names."""

    def __init__(self, inventory: Document, plugin_data: Document) -> None:
        self._inventory, self._plugin_data = inventory, plugin_data
        self._made: Document | None = None

    def get(self) -> Document:
        """Return the data, which must not be changed."""
        if self._made is None:
            named = introspection_data.names(self._inventory, self._plugin_data)
            self._made = {**self._plugin_data, **named, "inventory": self._inventory}
        return self._made

    def forget(self) -> None:
        """The plugin data may have changed."""
        self._made = None


class RuleData:
    """The roots of placeholders and paths, always in their current state."""

    __slots__ = ("_item", "_mask", "_ports", "budget", "inventory", "node", "plugin_data", "view")

    def __init__(
        self,
        node: Node,
        ports: Callable[[], Sequence[Port]],
        inventory: Document,
        plugin_data: Document,
        budget: RuleBudget,
        *,
        mask: bool,
        item: Any = None,
        view: IntrospectionView | None = None,
    ) -> None:
        self.node = node
        self.inventory = inventory
        self.plugin_data = plugin_data
        self.budget = budget
        self._ports = ports
        self._mask = mask
        self._item = item
        self.view = view or IntrospectionView(inventory, plugin_data)

    def masking(self, mask: bool) -> RuleData:
        """Return the same data, with secrets in inspection data masked or not."""
        return self._like(mask, self._item)

    def with_item(self, item: Any) -> RuleData:
        """Return the same data for one item of a loop."""
        return self._like(self._mask, item)

    def _like(self, mask: bool, item: Any) -> RuleData:
        return RuleData(
            self.node, self._ports, self.inventory, self.plugin_data, self.budget, mask=mask, item=item, view=self.view
        )

    def root(self, name: str) -> tuple[Any, bool]:
        """Return the value of root ``name``, which must not be changed, and whether it is to be masked."""
        match name:
            case "inventory":
                return self.inventory, self._mask
            case "plugin_data":
                return self.plugin_data, self._mask
            case "item":
                return self._item, False  # already masked at the start of the loop
            case "data":
                return self.view.get(), self._mask
            case "all_interfaces":
                return self.view.get().get(name), self._mask
            case "node":
                return _node(self.node), True
            case _:
                return [_port(port) for port in self._ports()], True

    def get(self, root: str, steps: Sequence[Step], name: str) -> Any:
        """Return a copy of the value at ``steps`` below ``root``; ``MissingDataError`` with ``name``."""
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


ready(Port)


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP GET requested by a rule, made before anything is committed; times are in seconds."""

    rule: str
    sensitive: bool
    url: str
    headers: dict[str, str]
    proxy: str | None
    timeout: float
    retries: int
    backoff: float


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """A message logged by a rule; ``level`` is one of Python's level names."""

    rule: str
    level: str
    message: str


class Unmatched(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that was not applied because the data has no such field; ``field`` is None if the rule is sensitive."""

    rule: str
    field: str | None


class RuleTaskContext(HookContext, Protocol):
    """What rules need from their caller, in addition to hooks."""

    def find_node_by_name(self, name: str) -> str | None:
        """Return the UUID of the other node with this name; None if there is none."""


class RuleContext:
    """One inspection's copies, shared by all rules. ``drivers``: the drivers that a node may have."""

    def __init__(
        self, context: RuleTaskContext, inventory: Document, plugin_data: Document, *, drivers: Collection[str]
    ) -> None:
        self.context = context
        self.plugin_data = plugin_data
        self.drivers = drivers
        self.budget = RuleBudget()
        self.calls: list[ApiCall] = []
        self.logged: list[Logged] = []
        self.unmatched: list[Unmatched] = []
        self.data = RuleData(context.node, self.ports, inventory, plugin_data, self.budget, mask=True)

    @property
    def node(self) -> Node:
        return self.context.node

    def ports(self) -> list[Port]:
        """Return the ports as changed by hooks and rules so far."""
        return list(helpers.current(self.context).values())

    def port(self, ident: Any) -> Port:
        """Return a copy of the port with this UUID or MAC, to be changed and passed to ``save_port``."""
        wanted = str(ident).strip().lower()
        for port in self.ports():
            if wanted in (port.uuid, port.address):
                return json_safety.decode_own(msgspec.json.encode(port), Port)
        raise RuleError(f"the node has no port {str(ident)[:64]!r}; use its UUID or MAC address")

    def save_port(self, port: Port) -> None:
        helpers.save(self.context, port)


class Acting(msgspec.Struct, frozen=True):
    """The rule on whose behalf an action runs."""

    rule_context: RuleContext
    rule: str
    sensitive: bool
