"""The published clients."""

from __future__ import annotations

from tests.system.clients.conftest import clients

__all__ = ["clients"]
