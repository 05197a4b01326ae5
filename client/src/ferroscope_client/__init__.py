"""A client of the Bare Metal API: the library that the command line ``ferroscope`` uses, and that line itself.

``connect`` returns a ``Client`` with the credentials of this user. ``Client`` makes calls, pages through lists, and
waits; what it raises is a ``Failure``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ferroscope_client.client import Client as Client
    from ferroscope_client.client import ServiceError as ServiceError
    from ferroscope_client.client import ServiceUnreachableError as ServiceUnreachableError
    from ferroscope_client.client import WaitTimeoutError as WaitTimeoutError
    from ferroscope_client.client import connect as connect
    from ferroscope_client.client import node_path as node_path
    from ferroscope_client.errors import Failure as Failure

__version__ = "1.0.0rc1"

_OF_CLIENT: Final = frozenset({
    "Client", "Failure", "ServiceError", "ServiceUnreachableError", "WaitTimeoutError", "connect", "node_path",
})  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the library when it is used: the service imports other modules of this package only."""
    if name not in _OF_CLIENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ferroscope_client import client

    return getattr(client, name)
