"""How much a rule may ask for, and how much all rules together may do in one inspection.

Rules are written by operators, but what they meet comes from machines: neither may take a worker
away for long or fill its memory.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.core.values import MASK, is_secret, without_user
from ferroscope.rules.errors import RuleError

MAX_RULES: Final = 1000
MAX_CONDITIONS: Final = 100
MAX_ACTIONS: Final = 100
MAX_LOOP: Final = 1000
MAX_TEXT: Final = 8192
MAX_DEPTH: Final = 32
MAX_PATH: Final = 16
MAX_REGEX: Final = 1024
MAX_EXPANSION: Final = 4096
MAX_SUBJECT: Final = 65536
MAX_CALLS: Final = 20

REGEX_SECONDS: Final = 0.1


class Budget(msgspec.Struct):
    """What is left for the rules of one inspection.

    ``steps``: checks and actions carried out, items of loops counted singly. ``size``: characters and
    items handed to actions and comparisons. ``regex``: seconds spent in regular expressions.
    """

    steps: int = 100_000
    size: int = 16 * 1024 * 1024
    regex: float = 1.0
    calls: int = MAX_CALLS

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise RuleError("the rules did too much: more than 100000 checks and actions for one inspection")

    def take(self, size: int) -> None:
        self.size -= size
        if self.size < 0:
            raise RuleError("the rules moved too much data: more than 16 MiB for one inspection")

    def copy(self, value: Any, *, mask: bool, depth: int = MAX_DEPTH) -> Any:
        """Return a copy that shares nothing; with ``mask`` what has a secret's name is masked."""
        if isinstance(value, str):
            self.take(len(value))
            return without_user(value) if mask else value
        if not isinstance(value, dict | list):
            return value
        if depth <= 0:
            raise RuleError(f"the data is nested more than {MAX_DEPTH} deep")
        self.take(len(value) + 1)
        if isinstance(value, list):
            return [self.copy(item, mask=mask, depth=depth - 1) for item in value]
        return {
            str(key): MASK if mask and item and is_secret(str(key)) else self.copy(item, mask=mask, depth=depth - 1)
            for key, item in value.items()
        }
