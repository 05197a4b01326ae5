"""The service for the command line."""

from __future__ import annotations

from tests.system.cli.conftest import listener, service, shell

__all__ = ["listener", "service", "shell"]
