"""The store, the queue and the bus in the memory of one process: shipped, not a mock.

For trials, tests and simulations: what is in it dies with its process. It keeps every promise
of the ports but durability, and takes its time and its random identifiers from outside, so
that a simulation can run it step by step.
"""

from __future__ import annotations

from ferroscope.adapters.memory.bus import LocalBus
from ferroscope.adapters.memory.queue import MemoryQueue
from ferroscope.adapters.memory.store import MemoryStore

__all__ = ["LocalBus", "MemoryQueue", "MemoryStore"]
