"""Sources of secrets that are stored elsewhere: ``secret://SOURCE/PATH`` in ``driver_info``.

A source is a class of an installed package, found by the entry point of its name in the group ``ferroscope.secrets``
and called with ``SecretOptions``. Only sources in ``[secrets] sources`` are loaded, when a worker starts.

* Callers of the API choose PATH, and where the secret is sent: a source must only return what is meant for BMCs, and
  never what else the service can read.
* A secret is resolved when a BMC is called, and kept in memory for 30 seconds.
* Threads: one object serves all threads of a process.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

import msgspec

from ferroscope.contracts.queue import StopFlag


class SecretSourceError(Exception):
    """The secret cannot be resolved. ``transient``: whether a retry may succeed. The message must not contain it."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        self.transient = transient
        super().__init__(message)


# Half of a BMC command's default timeout: a source that hangs fails the call of a BMC in time for another attempt.
RESOLVE_SECONDS: Final = 5.0


class SecretOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a source is called with; ``file_directory`` is that of ``[secrets]``.

    ``timeout``: seconds for a call; after that, its result is discarded. ``stop`` is set when the process is stopping.
    ``env_prefix``: the source ``env`` reads no variable without it, so that the service's own secrets stay its own.
    """

    timeout: float = RESOLVE_SECONDS
    file_directory: str = ""
    env_prefix: str = "FERROSCOPE_SECRET_"
    stop: StopFlag = msgspec.field(default_factory=threading.Event)


class SecretSource(Protocol):
    """Resolves the references with its name."""

    def resolve(self, path: str) -> str:
        """Return the secret at ``path``, what follows ``secret://SOURCE/``; ``SecretSourceError``."""
