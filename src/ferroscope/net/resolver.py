"""Host names to IP addresses, within a deadline: the system's resolver has none of its own.

A look-up that hangs is left to a thread of its own and its caller goes on; all who ask for the
same name meanwhile share that one thread, so a dead name server costs a thread a name at the most.
Nothing is cached beyond that: the system's resolver knows what may be.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import Final

MAX_LOOKUPS: Final = 64


class UnresolvedError(Exception):
    """The name has no address, or none was found in time; ``timed_out`` tells which."""

    def __init__(self, message: str, *, timed_out: bool) -> None:
        self.timed_out = timed_out
        super().__init__(message)


class _Lookup:
    """One name being looked up, and whoever waits for it."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.done = threading.Event()
        self.found: tuple[str, ...] = ()
        self.error = ""

    def run(self) -> None:
        try:
            infos = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
            self.found = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
        except (OSError, UnicodeError) as exc:
            self.error = getattr(exc, "strerror", None) or str(exc)
        finally:
            with _lock:
                _running.pop(self.host, None)
            self.done.set()


_lock = threading.Lock()
_running: dict[str, _Lookup] = {}


def resolve(host: str, seconds: float) -> tuple[str, ...]:
    """Return every address of ``host``, v4 and v6, in the system's order; ``UnresolvedError``."""
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        pass
    lookup = _join(host)
    if not lookup.done.wait(max(seconds, 0.0)):
        raise UnresolvedError(f"the name {host} was not resolved within {seconds:.1f} s", timed_out=True)
    if not lookup.found:
        raise UnresolvedError(f"the name {host} does not resolve: {lookup.error}", timed_out=False)
    return lookup.found


def _join(host: str) -> _Lookup:
    with _lock:
        lookup = _running.get(host)
        if lookup is not None:
            return lookup
        if len(_running) >= MAX_LOOKUPS:
            raise UnresolvedError(f"{MAX_LOOKUPS} names are being looked up already; is DNS down?", timed_out=True)
        lookup = _running[host] = _Lookup(host)
    threading.Thread(target=lookup.run, name=f"resolve {host}", daemon=True).start()
    return lookup
