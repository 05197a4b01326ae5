"""What a task, or the worker on its behalf, says about a request. Typed, never a boolean.

``Done`` and ``Next`` complete the request, ``Fail`` ends the inspection in error, ``Retry``
leaves the request for later, ``Drop`` consumes it without any effect.
"""

from __future__ import annotations

import msgspec

from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import Event


class Done(msgspec.Struct, frozen=True):
    """The task took effect; nothing follows."""


class Next(msgspec.Struct, frozen=True):
    """The task took effect and ``event`` follows from it."""

    event: Event


class Retry(msgspec.Struct, frozen=True):
    """Leave the request on the queue for ``after`` seconds.

    ``counted``: it was an attempt; otherwise only its time had not come.
    """

    after: float
    reason: Reason
    message: str
    counted: bool = True


class Fail(msgspec.Struct, frozen=True):
    """Permanent trouble: the inspection ends in error with this reason."""

    reason: Reason
    message: str


class Drop(msgspec.Struct, frozen=True):
    """The request has no meaning any more: consume it, record why, change nothing."""

    reason: Reason
    message: str


Outcome = Done | Next | Retry | Fail | Drop
