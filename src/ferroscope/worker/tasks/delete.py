"""Delete: the node is no longer tracked. The machine is left as it is; nobody asked us to touch it."""

from __future__ import annotations

from ferroscope.core.delivery import Done, Outcome
from ferroscope.worker.context import TaskContext


def delete(_context: TaskContext) -> Outcome:
    """The node, with everything that belongs to it, goes when this is settled."""
    return Done()
