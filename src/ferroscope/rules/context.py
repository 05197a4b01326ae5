"""What actions work on: the task's copies of the node and its ports, the plugin data, and the requested effects."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import msgspec

from ferroscope.core.json_safety import ready
from ferroscope.core.model import Document, Node, Port
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookContext
from ferroscope.rules.data import Budget, Data, RuleError

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


class RuleTaskContext(HookContext, Protocol):
    """What rules need from their caller, in addition to hooks."""

    def named(self, name: str) -> str | None:
        """Return the UUID of the other node with this name; None if there is none."""


class RuleContext:
    """One inspection's copies, shared by all rules. ``drivers``: the drivers that a node may have."""

    def __init__(
        self, context: RuleTaskContext, inventory: Document, plugin_data: Document, *, drivers: Collection[str]
    ) -> None:
        self.context = context
        self.plugin_data = plugin_data
        self.drivers = drivers
        self.budget = Budget()
        self.calls: list[ApiCall] = []
        self.logged: list[Logged] = []
        self.data = Data(context.node, self.ports, inventory, plugin_data, self.budget, mask=True)

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
                return msgspec.json.decode(msgspec.json.encode(port), type=Port)
        raise RuleError(f"the node has no port {str(ident)[:64]!r}; use its UUID or MAC address")

    def save_port(self, port: Port) -> None:
        helpers.save(self.context, port)


class Acting(msgspec.Struct, frozen=True):
    """The rule on whose behalf an action runs."""

    rule_context: RuleContext
    rule: str
    sensitive: bool
