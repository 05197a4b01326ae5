"""An inspection rule as it is stored: conditions on inspection data, and actions where they hold.

Conditions and actions are kept in the form of the Bare Metal API (``op`` and ``args``), whichever
API a rule came by; ``dialect`` says how they are to be read. What they mean is ``ferroscope.rules``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ferroscope.domain.model import Document

PHASES: Final = ("main",)


class RuleDialect(StrEnum):
    """Whose language a rule is written in: Ironic's inspection rules, or ironic-inspector's introspection rules."""

    BARE_METAL = "bare-metal"
    INTROSPECTION = "introspection"


class Rule(msgspec.Struct, kw_only=True):
    """One rule.

    Greater ``priority`` first. ``scope``: only for nodes whose ``properties.inspection_scope`` is the
    same; None: for all. The conditions and actions of a ``sensitive`` rule are never shown again.
    """

    uuid: str
    dialect: RuleDialect = RuleDialect.BARE_METAL
    description: str | None = None
    priority: int = 0
    phase: str = "main"
    sensitive: bool = False
    scope: str | None = None
    conditions: list[Document] = []
    actions: list[Document] = []
    created_at: float = 0.0
    updated_at: float | None = None
