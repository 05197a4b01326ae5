"""The fixtures of whole clusters."""

from __future__ import annotations

from tests.support.cluster.fixtures import place

__all__ = ["place"]
