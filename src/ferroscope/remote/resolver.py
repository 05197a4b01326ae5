"""Host names to IP addresses, within a deadline: the system's resolver has none of its own.

A look-up that hangs is left to a thread of its own and its caller goes on; all who ask for the
same name meanwhile share that one thread, so a dead name server costs a thread a name at the most.
Nothing is cached beyond that: the system's resolver knows what may be. Which addresses may be spoken to is
asked here, of what a name means at this moment: a name that was looked at before may mean another one by now.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterable
from typing import Final

MAX_LOOKUPS: Final = 64


class UnresolvedError(Exception):
    """The name has no address, or none was found in time; ``timed_out`` tells which."""

    def __init__(self, message: str, *, timed_out: bool) -> None:
        self.timed_out = timed_out
        super().__init__(message)


class ForbiddenAddressError(Exception):
    """The host has addresses, and none of them is in a network that is allowed."""


class Networks:
    """Networks that may be spoken to; an empty one is every network. ``ValueError`` names what is none."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._networks = tuple(ipaddress.ip_network(text) for text in texts)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        if not self._networks:
            return True
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        plain = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(plain in network for network in self._networks)


ANYWHERE: Final = Networks()


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


def resolve(host: str, seconds: float, allowed: Networks = ANYWHERE) -> tuple[str, ...]:
    """Return every allowed address of ``host``, v4 and v6, in the system's order.

    ``UnresolvedError``; ``ForbiddenAddressError`` where it has addresses, but no allowed one.
    """
    found = _resolve(host, seconds)
    permitted = tuple(address for address in found if address in allowed)
    if not permitted:
        raise ForbiddenAddressError(f"{host} is in none of the networks that are allowed")
    return permitted


def _resolve(host: str, seconds: float) -> tuple[str, ...]:
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
