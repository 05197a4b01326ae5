"""Ferroscope: highly available bare-metal inspection.

The package is laid out by role: ``domain`` decides, ``ports`` say what is needed from outside,
``adapters`` provide it, ``api``, ``worker``, ``periodic`` and ``pxe`` are the roles, ``runtime`` wires them together.
"""

from __future__ import annotations

__version__ = "0.1.0"
