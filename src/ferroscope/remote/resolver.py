"""Resolves host names and connects to them within a time limit; the system's resolver has none.

A lookup that hangs is left to its thread and the caller continues; concurrent callers for the same name share that
thread, so a dead name server costs at most one thread per name. Nothing is cached beyond that; the system's resolver
may cache. Allowed networks are checked here, at the time of use: an earlier check could have seen another address.

A caller who may enroll a node chooses a name, and may run a name server that never answers. So lookups of BMCs' names
leave some threads for the names in the configuration, and lookups in one domain leave some for other domains. A caller
waits for a thread as long as it may wait for the name.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Sequence
from typing import Final

from ferroscope.remote.addresses import ANYWHERE, Networks
from ferroscope.remote.deadline import Deadline
from ferroscope_client.core.host_spelling import refusal_of_host

MAX_LOOKUPS: Final = 64
MAX_BMC_LOOKUPS: Final = 48
MAX_DOMAIN_LOOKUPS: Final = 16


class UnresolvedError(Exception):
    """The name has no address, or resolving it timed out."""


class NoLookupError(UnresolvedError):
    """No thread was free to resolve the name, so nothing is known about it."""


class ForbiddenAddressError(Exception):
    """The host has addresses, but none in an allowed network."""


class _Lookup:
    """A lookup in progress, which several callers may wait for."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.done = threading.Event()
        self.addresses: tuple[str, ...] = ()
        self.error = ""

    def run(self) -> None:
        try:
            infos = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
            self.addresses = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
        except (OSError, UnicodeError) as exc:
            self.error = getattr(exc, "strerror", None) or str(exc)
        finally:
            with _freed:
                _running.pop(self.host, None)
                _freed.notify_all()
            self.done.set()


_freed = threading.Condition()
_running: dict[str, _Lookup] = {}


def resolve(host: str, seconds: float, allowed: Networks = ANYWHERE, *, bmc: bool = False) -> tuple[str, ...]:
    """Return every allowed address of ``host``, v4 and v6, in the system's order; ``bmc``: a caller may have named it.

    Names that are limited to networks count as such, too.

    ``UnresolvedError``; ``ForbiddenAddressError`` if it has addresses, but none is allowed.
    """
    addresses = _resolve(host, seconds, MAX_BMC_LOOKUPS if bmc or allowed.is_limited else MAX_LOOKUPS)
    permitted = tuple(filter(allowed.permits, addresses))
    if not permitted:
        raise ForbiddenAddressError(f"{host} is not in any allowed network")
    return permitted


def connect(addresses: Sequence[str], port: int, deadline: Deadline) -> socket.socket:
    """Return a connection to the first address that accepts one, each with its share of the time; ``OSError``."""
    for number, address in enumerate(addresses):
        try:
            connection = socket.create_connection((address, port), deadline.seconds_left() / (len(addresses) - number))
        except OSError as exc:
            failure = exc
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    raise failure


def _resolve(host: str, seconds: float, max_lookups: int) -> tuple[str, ...]:
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        pass
    if why := refusal_of_host(host):
        raise UnresolvedError(why)
    end = time.monotonic() + seconds
    lookup = _join(host, max_lookups, seconds)
    if not lookup.done.wait(max(end - time.monotonic(), 0.0)):
        raise UnresolvedError(f"resolving {host} timed out after {seconds:.1f} s")
    if not lookup.addresses:
        raise UnresolvedError(f"cannot resolve {host}: {lookup.error}")
    return lookup.addresses


def _join(host: str, max_lookups: int, seconds: float) -> _Lookup:
    """Return the lookup of the name that is in progress, or begin it within this time; ``NoLookupError``."""
    domain = _domain(host)

    def may_begin() -> bool:
        in_domain = sum(_domain(name) == domain for name in _running)
        return host in _running or (len(_running) < max_lookups and in_domain < MAX_DOMAIN_LOOKUPS)

    with _freed:
        if not _freed.wait_for(may_begin, max(seconds, 0.0)):
            raise NoLookupError(f"{host} waited {seconds:.1f} s for other names to be resolved; is a name server down?")
        if host in _running:
            return _running[host]
        lookup = _running[host] = _Lookup(host)
    threading.Thread(target=lookup.run, name=f"resolve {host}", daemon=True).start()
    return lookup


def _domain(host: str) -> str:
    return host.rstrip(".").partition(".")[2].lower()
