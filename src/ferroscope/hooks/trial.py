"""What a hook receives as its task, and how everything that an optional hook did is taken back.

The view hands out less than the worker's context has: no store, no BMC, the inspector's options
only. Notes pass through it, so that no plugin's message is endless or unprintable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document, Node, Port, Severity
from ferroscope.hooks.base import HookContext, PortChanges
from ferroscope.hooks.documents import copied
from ferroscope.hooks.text import shown

MAX_MESSAGE: Final = 2000

Note = tuple[str, str, Severity, str | None, Document | None]


class HookView:
    """``base.HookTask`` over the caller's context; ``held`` notes wait until they are released."""

    __slots__ = ("_context", "_held", "settings")

    def __init__(self, context: HookContext, settings: InspectorSettings, held: list[Note] | None = None) -> None:
        self._context = context
        self._held = held
        self.settings = settings

    @property
    def node(self) -> Node:
        return self._context.node

    @property
    def ports(self) -> Sequence[Port]:
        return self._context.ports

    @property
    def port_changes(self) -> PortChanges:
        return self._context.port_changes

    def note(
        self,
        name: str,
        message: str,
        *,
        severity: Severity = Severity.INFO,
        reason: str | None = None,
        detail: Document | None = None,
    ) -> None:
        message = shown(message, limit=MAX_MESSAGE, lines=True)
        if self._held is None:
            self._context.note(name, message, severity=severity, reason=reason, detail=detail)
        else:
            self._held.append((name, message, severity, reason, detail))

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        return self._context.ports_elsewhere(macs)

    def previous_inventory(self) -> Document | None:
        return self._context.previous_inventory()

    def holding(self) -> HookView:
        """Return a view within this one whose notes are held."""
        return HookView(self, self.settings, [])

    def release(self, *, failed: bool = False) -> None:
        """Note what was held; where it ``failed``, only the warnings: nothing else has come to pass."""
        for name, message, severity, reason, detail in self._held or ():
            if severity is not Severity.INFO or not failed:
                self._context.note(name, message, severity=severity, reason=reason, detail=detail)


def snapshot(task: HookContext) -> Callable[[], None]:
    """Return what takes node and port changes back to where they are now."""
    node, changes = task.node, task.port_changes
    fields = {name: getattr(node, name) for name in node.__struct_fields__}
    fields = {name: copied(value) if isinstance(value, dict) else value for name, value in fields.items()}
    added, updated, removed = list(changes.added), dict(changes.updated), set(changes.removed)

    def restore() -> None:
        for name, value in fields.items():
            setattr(node, name, value)
        changes.added[:] = added
        changes.updated.clear()
        changes.updated.update(updated)
        changes.removed.clear()
        changes.removed.update(removed)

    return restore
