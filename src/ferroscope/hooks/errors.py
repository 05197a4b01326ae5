"""How a hook refuses data, and how a wrong list of hooks is refused when the service starts."""

from __future__ import annotations

from ferroscope.core.reasons import Reason


class HookError(Exception):
    """The data is not acceptable: the inspection ends in error with this reason and message.

    ``hook`` is the name of the hook that refused, filled in by the pipeline; None where several
    did, which ``message`` then lists.
    """

    def __init__(self, reason: Reason, message: str, *, hook: str | None = None) -> None:
        self.reason = reason
        self.message = message
        self.hook = hook
        super().__init__(message)

    def __str__(self) -> str:
        return self.message


class HookSetupError(Exception):
    """``[inspector] hooks`` cannot be carried out as configured; the message says what to write instead."""


class ReadOnlyError(TypeError):
    """A hook tried to change the inventory."""
