"""A node's ports as the hooks so far want them, and how to want something else.

Hooks see each other's changes here: what one adds, the next may complete.
"""

from __future__ import annotations

from ferroscope.core.model import Port
from ferroscope.hooks.base import HookContext


def current(task: HookContext) -> dict[str, Port]:
    """Return the ports by MAC, with every change of the hooks so far."""
    changes = task.port_changes
    kept = [changes.updated.get(port.uuid, port) for port in task.ports if port.uuid not in changes.removed]
    return {port.address: port for port in (*kept, *changes.added)}


def save(task: HookContext, port: Port) -> None:
    """Want ``port`` as it is here: a changed copy of one from ``current``, or a new one."""
    changes = task.port_changes
    for index, added in enumerate(changes.added):
        if added.uuid == port.uuid:
            changes.added[index] = port
            return
    if any(stored.uuid == port.uuid for stored in task.ports):
        changes.updated[port.uuid] = port
    else:
        changes.added.append(port)


def remove(task: HookContext, port: Port) -> None:
    """Want ``port`` gone."""
    changes = task.port_changes
    changes.updated.pop(port.uuid, None)
    before = len(changes.added)
    changes.added[:] = [added for added in changes.added if added.uuid != port.uuid]
    if len(changes.added) == before:
        changes.removed.add(port.uuid)
