"""One pxe-filter per boot network and host: two would close each other's filter.

The process binds an abstract Unix socket, which the kernel releases when the process ends, however it ends. The names
are per network namespace, like firewalls. Source: unix(7).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from ferroscope.config.errors import StartError


@contextmanager
def instance_lock(network: str) -> Iterator[None]:
    """Hold the lock as the network's only pxe-filter on this host; ``StartError`` if another one runs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        try:
            lock.bind(_name(network))
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            raise StartError(
                f"another pxe-filter of the network {network} runs on this host; they would close each other's "
                f"filter; stop one of them: ss -xap | grep ferroscope-pxe-filter/{network}"
            ) from None
        yield


def is_running(network: str) -> bool:
    """Whether a pxe-filter of this network runs on this host."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_name(network))
        except OSError:
            return False
        return True


def _name(network: str) -> str:
    return f"\0ferroscope-pxe-filter/{network}"
