"""How drivers say what is wrong with a node's ``driver_info``: in one way, with one reason. Pure."""

from __future__ import annotations

from collections.abc import Callable

from ferroscope.domain.model import Document
from ferroscope.domain.reasons import Reason
from ferroscope.ports.errors import BmcError


def wrong(message: str) -> BmcError:
    """Return the error (permanent) for a ``driver_info`` that makes no sense."""
    return BmcError(message, transient=False, reason=Reason.DRIVER_INFO_INVALID)


def problem(read: Callable[[Document], object], info: Document) -> str | None:
    """Return what a driver's ``read`` does not like of ``info``, in a sentence, or None."""
    try:
        read(info)
    except BmcError as exc:
        return str(exc)
    return None
