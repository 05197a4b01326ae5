"""What a hook is, and what it may touch. Plugins import this module and ``errors``, no more.

The names and the two phases are those of the inspection hooks of the Bare Metal service, so
that a hook written for it needs little change. There is no ``save``: the worker commits what
every hook changed in one transaction, or nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol

import msgspec

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document, Node, Port, Severity
from ferroscope.core.reasons import Reason


class PortChanges(msgspec.Struct):
    """New ports, changed ports by UUID, and UUIDs of ports to delete; see ``port_edits``."""

    added: list[Port] = msgspec.field(default_factory=list)
    updated: dict[str, Port] = msgspec.field(default_factory=dict)
    removed: set[str] = msgspec.field(default_factory=set)


class HookContext(Protocol):
    """What the pipeline needs from its caller; the worker's task context is one."""

    @property
    def node(self) -> Node:
        """The node: a copy, to be changed in place (``task.node.properties["x"] = ...``)."""

    @property
    def ports(self) -> Sequence[Port]:
        """The node's ports as they are stored. Not to be changed: use ``port_edits``."""

    @property
    def port_changes(self) -> PortChanges: ...

    def note(
        self,
        name: str,
        message: str,
        *,
        severity: Severity = Severity.INFO,
        reason: str | None = None,
        detail: Document | None = None,
    ) -> None:
        """Note a step on the node's timeline. ``name`` is the hook's own name."""

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        """Return which of these MACs are ports of other nodes: MAC -> that node's UUID."""

    def previous_inventory(self) -> Document | None:
        """Return the inventory of the node's newest inspection that finished before this one; None: there is none.

        It is read when it is asked for, wherever it is stored; not to be changed.
        """


class HookTask(HookContext, Protocol):
    """What a hook receives: the context, and the ``[inspector]`` options."""

    @property
    def settings(self) -> InspectorSettings: ...


class InspectionHook:
    """One step of processing; both phases do nothing unless overridden.

    One instance serves every node and every worker thread, so it keeps nothing about a node.
    ``inventory`` is read-only; ``plugin_data`` may be changed and is stored. Refuse data with
    ``HookError``; any other exception is recorded as a fault of the hook and fails the node too.
    """

    dependencies: ClassVar[tuple[str, ...]] = ()
    """Entry point names of the hooks that must stand before this one in ``[inspector] hooks``."""

    def configure(self, settings: InspectorSettings) -> None:
        """Read and check the options that this hook has, once, when a worker starts.

        Raise ``HookSetupError``, saying what to write instead: the worker then does not start.
        """

    def preprocess(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        """Check and prepare the data; the failures of all hooks are reported together."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        """Change the node, its ports and ``plugin_data``; the first failure ends the pipeline."""


# How a hook refuses data, and how a wrong list of hooks is refused when the service starts.


class HookError(Exception):
    """The data is not acceptable: the inspection ends in error with this reason and message.

    ``hook`` is the name of the hook that refused, filled in by the pipeline; None where several
    did, which ``message`` then lists.
    """

    def __init__(self, reason: Reason, message: str, *, hook: str | None = None) -> None:
        self.reason = reason
        self.message = message
        self.hook = hook
        super().__init__(message)

    def __str__(self) -> str:
        return self.message


class HookSetupError(Exception):
    """``[inspector] hooks`` cannot be carried out as configured; the message says what to write instead."""


class ReadOnlyError(TypeError):
    """A hook tried to change the inventory."""
