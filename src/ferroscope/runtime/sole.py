"""One process of a kind for each boot network of a host: two of them would close each other's gate.

Who is the one holds an abstract Unix socket, which the kernel takes away with its process, whatever ends that. Such
names belong to a network namespace, as firewalls do. Source: unix(7).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from ferroscope.runtime.life import StartError


@contextmanager
def hold(network: str) -> Iterator[None]:
    """Within, this process is the network's pxe-filter on this host; ``StartError`` where another one is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        try:
            held.bind(_name(network))
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            raise StartError(
                f"another pxe-filter of the network {network} runs on this host; they would close each other's gate: "
                f"stop one of them: ss -xap | grep ferroscope-pxe-filter/{network}"
            ) from None
        yield


def taken(network: str) -> bool:
    """Whether a pxe-filter of this network runs on this host."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(_name(network))
        except OSError:
            return False
        return True


def _name(network: str) -> str:
    return f"\0ferroscope-pxe-filter/{network}"
