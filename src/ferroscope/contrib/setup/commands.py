"""The commands of this part."""

from __future__ import annotations

from typing import Final

from ferroscope.contracts.commands import Command

SETUP: Final = Command(
    "ferroscope.contrib.setup.setup_command:setup",
    "Ask five questions and write the configuration.",
    after=None,
)
