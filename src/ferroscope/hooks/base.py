"""The interface of hooks, and the part of a task that they may access. Plugins import only this module.

Names and phases are those of the Bare Metal service's inspection hooks, which also run here (``adapt``). Those hooks
save the node themselves. Here that does nothing: the worker commits the changes of all hooks together, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document, Node, Port, Severity
from ferroscope_client.core.reasons import Reason


class PortChanges(msgspec.Struct):
    """New ports, changed ports by UUID, and UUIDs of ports to delete; see ``hooks.helpers``."""

    added: list[Port] = msgspec.field(default_factory=list)
    updated: dict[str, Port] = msgspec.field(default_factory=dict)
    removed: set[str] = msgspec.field(default_factory=set)


class HookContext(Protocol):
    """What the pipeline needs from its caller; in a worker, ``worker.attempt.Attempt``."""

    @property
    def node(self) -> Node:
        """The node: a copy, to be changed in place (``task.node.properties["x"] = ...``)."""

    @property
    def ports(self) -> Sequence[Port]:
        """The node's ports as stored. Do not change them: use ``hooks.helpers``."""

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
        """Add a step to the node's timeline. ``name`` is the hook's name."""

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        """Return which of these MACs are ports of other nodes: MAC -> UUID of that node."""

    def previous_inventory(self) -> Document | None:
        """Return the inventory of the node's newest inspection that finished before this one; None if there is none.

        It is loaded on demand, wherever it is stored. Do not change it.
        """


class HookTask(HookContext, Protocol):
    """What a hook gets: the context, and the ``[inspector]`` options."""

    @property
    def settings(self) -> InspectorSettings: ...


class InspectionHook:
    """One step of processing; both phases do nothing unless overridden.

    One instance serves all nodes and worker threads, so it must not keep data of a node. ``inventory`` is read-only;
    ``plugin_data`` may be changed and is stored. Reject data with ``HookError``; any other exception is recorded as a
    bug of the hook, and fails the node too.
    """

    dependencies: ClassVar[tuple[str, ...]] = ()
    """Entry point names of the hooks that must precede this one in ``[inspector] hooks``."""

    def configure(self, settings: InspectorSettings) -> None:
        """Read and validate the hook's options, once, when a worker starts.

        ``HookSetupError``, with what to change, keeps the worker from starting.
        """

    def preprocess(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        """Validate and prepare the data; the errors of all hooks are reported together."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        """Change the node, its ports and ``plugin_data``; the first error ends the pipeline."""


class _AdaptedHook(InspectionHook):
    """A hook that does not derive from ``InspectionHook``, such as one of Ironic's."""

    def __init__(self, hook: Any) -> None:
        self._hook = hook
        self.dependencies = tuple(getattr(hook, "dependencies", ()))  # type: ignore[misc]  # its class is not known

    def preprocess(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        if hasattr(self._hook, "preprocess"):
            self._hook.preprocess(task, inventory, plugin_data)

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        self._hook(task, inventory, plugin_data)


def adapt(hook: object) -> InspectionHook | None:
    """Return the hook in our form; None if it is not a hook. Ironic's contract requires only the call."""
    if isinstance(hook, InspectionHook):
        return hook
    return _AdaptedHook(hook) if callable(hook) else None


# Errors of hooks, and of their configuration.


class HookError(Exception):
    """The data is rejected: the inspection ends in error with this reason and message.

    ``hook`` is the name of the hook, set by the pipeline; None if several hooks failed, which ``message`` then lists.
    """

    def __init__(self, reason: Reason, message: str, *, hook: str | None = None) -> None:
        self.reason = reason
        self.message = message
        self.hook = hook
        super().__init__(message)

    def __str__(self) -> str:
        return self.message


class HookSetupError(Exception):
    """``[inspector] hooks`` is invalid; the message says what to change."""


class ReadOnlyError(TypeError):
    """A hook tried to change the inventory."""
