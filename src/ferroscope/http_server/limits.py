"""Tracks all connections of an HTTP server, and selects which to close if there are too many.

Clients may be slow, silent or hostile, from one address or from thousands. So no new connection is rejected: if a limit
is reached, another one is closed instead. A shared limit is enforced on the source that uses most of it, so that one
source cannot end the requests of others. A connection whose request is being processed waits for us, and is never
closed. Connections are used only by the server's thread.

Where a request comes from: the connection's address, or the one that a trusted proxy reports.
"""

from __future__ import annotations

import ipaddress
import re
import resource
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from ferroscope.config.options import ApiSettings
from ferroscope.http_server.agreed import SOURCE
from ferroscope_client.core.values import limit_key, parse_ip

# File descriptors for everything except client connections: the database, BMCs, logs.
_OTHER_FILES: Final = 256
_PORT: Final = re.compile(r":\d{1,5}", re.ASCII)
_MAX_FILES: Final = 65_536
# The most requests queued for a thread. Beyond this, nothing more is read from any client.
_MAX_QUEUED_REQUESTS: Final = 512


def parse_forwarded(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address from X-Forwarded-For. Some proxies add the port, and brackets around an IPv6 address."""
    text = text.strip()
    host, bracket, port = text.removeprefix("[").partition("]") if text.startswith("[") else text.partition(":")
    if bracket == "]":
        return parse_ip(host) if not port or _PORT.fullmatch(port) else None
    return parse_ip(host) if _PORT.fullmatch(f":{port}") and "." in host else parse_ip(text)


class TrustedProxies:
    """The proxies whose X-Forwarded-For is trusted; none by default."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """``ValueError`` names the first invalid network."""
        self._networks = tuple(ipaddress.ip_network(text) for text in texts)

    def __contains__(self, source: str) -> bool:
        if not self._networks:
            return False
        address = parse_ip(source)
        return address is not None and any(address in network for network in self._networks)

    def source(self, env: Mapping[str, Any]) -> str:
        """Return the caller's address: the last one in X-Forwarded-For that is not a trusted proxy; "" if unknown."""
        peer = str(env.get("REMOTE_ADDR", ""))
        if peer not in self:
            address = parse_ip(peer)
            return "" if address is None else str(address)
        source = peer
        for text in reversed(str(env.get("HTTP_X_FORWARDED_FOR", "")).split(",")):
            address = parse_forwarded(text)
            if address is None:
                break
            source = str(address)
            if source not in self:
                break
        return source

    def host(self, env: Mapping[str, Any]) -> str:
        """Return the host name under which a trusted proxy was called, "" if there is none or it does not say."""
        if str(env.get("REMOTE_ADDR", "")) not in self:
            return ""
        return str(env.get("HTTP_X_FORWARDED_HOST", "")).rpartition(",")[2].strip()


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, connections and bytes; ``buffered`` limits partial requests, and separately the queued ones."""

    header_timeout: float = 15.0
    body_timeout: float = 60.0
    idle_timeout: float = 60.0
    connections: int = 4096
    per_source: int = 256
    requests_per_source: int = 384
    body_size: int = 2 * 1024 * 1024
    buffered: int = 64 * 1024 * 1024


def limits(settings: ApiSettings) -> ServerLimits:
    """Return the limits of the api, within this process's limit of open files."""
    return ServerLimits(
        header_timeout=settings.header_timeout,
        body_timeout=settings.body_timeout,
        idle_timeout=settings.idle_timeout,
        connections=max(16, min(settings.max_connections, more_files() - _OTHER_FILES)),
        per_source=settings.max_connections_per_source,
        requests_per_source=settings.max_requests_per_source,
        body_size=settings.max_body_size,
        buffered=max(settings.max_buffered, settings.max_body_size),
    )


def more_files() -> int:
    """Raise this process's soft limit of open files as far as useful and allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(_MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return _MAX_FILES if soft == resource.RLIM_INFINITY else soft


class LimitedConnection(Protocol):
    """A connection: the source it counts for, the client whose request it has, and the bytes buffered for that.

    ``source`` is "" for a proxy. ``client`` is that source, or the one that a proxy reports.
    """

    source: str
    client: str
    held: int
    deadline: float

    def evict(self) -> None:
        """Close at once."""

    def resume(self, paused: float) -> None:
        """Resume reading; ``paused``: for how many seconds it was paused."""


class OpenConnections:
    """All connections; ``waiting`` are those that wait for their client, the longest idle first."""

    def __init__(self, limits: ServerLimits, trusted: TrustedProxies) -> None:
        self.limits = limits
        self.members: dict[LimitedConnection, None] = {}
        self.evicted = 0
        self._trusted = trusted
        self._waiting: dict[LimitedConnection, None] = {}
        self._sources: dict[str, dict[LimitedConnection, None]] = {}
        self._holding: dict[str, dict[LimitedConnection, None]] = {}  # by client, the oldest first
        self._held_by: dict[str, int] = {}
        self._held = 0
        self._queued = self._queued_bytes = 0
        self._requests_of: dict[str, int] = {}
        self._queued_bytes_of: dict[str, int] = {}
        self._paused: dict[LimitedConnection, float] = {}

    def count_for(self, address: str) -> str:
        """Return the address that a connection counts for; "" for a proxy, which many clients share."""
        return "" if address in self._trusted else limit_key(address)

    def client_of(self, address: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return the client whose request has these headers, as the source that its limits count for."""
        reported = ", ".join(value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for")
        return limit_key(self._trusted.source({"REMOTE_ADDR": address, "HTTP_X_FORWARDED_FOR": reported}))

    def join(self, member: LimitedConnection) -> None:
        """Add a new connection, and close those that exceed the limits."""
        self.members[member] = None
        self.note_client_active(member)
        if len(self.members) > self.limits.connections:
            self._evict_idle(member)
        if member.source and len(self._sources[member.source]) > self.limits.per_source:
            self._evict_first(self._sources[member.source], member)

    def is_full(self) -> bool:
        """Whether the limit is reached and no connection may be closed."""
        return len(self.members) >= self.limits.connections and not self._waiting

    def note_client_active(self, member: LimitedConnection) -> None:
        """Note that the client was active; from now on we wait for the client."""
        self._waiting.pop(member, None)
        self._waiting[member] = None
        if member.source:
            of_source = self._sources.setdefault(member.source, {})
            of_source.pop(member, None)
            of_source[member] = None

    def note_answering(self, member: LimitedConnection) -> None:
        """Note that the client waits for us."""
        self._waiting.pop(member, None)
        of_source = self._sources.get(member.source)
        if of_source is not None:
            of_source.pop(member, None)
            if not of_source:
                del self._sources[member.source]

    def leave(self, member: LimitedConnection) -> None:
        """Remove a connection; safe to call twice."""
        self.members.pop(member, None)
        self._paused.pop(member, None)
        self.note_answering(member)
        self._count_held(member, 0)

    def hold(self, member: LimitedConnection, size: int) -> None:
        """Note how many bytes are buffered for a partial request or an unread response.

        If all together hold too many, the oldest connection of the client that holds most is closed, except ``member``.
        """
        self._count_held(member, size)
        while self._held > self.limits.buffered:
            most = max(self._held_by, key=self._held_by.__getitem__)
            if not self._evict_first((holder for holder in self._holding[most] if holder is not member), None):
                return

    def _count_held(self, member: LimitedConnection, size: int) -> None:
        client, more = member.client, size - member.held
        self._held += more
        member.held = size
        if size:
            self._holding.setdefault(client, {}).setdefault(member, None)
        elif (members := self._holding.get(client)) is not None:
            members.pop(member, None)
            if not members:
                del self._holding[client]
        if client in self._holding:
            self._held_by[client] = self._held_by.get(client, 0) + more
        else:
            self._held_by.pop(client, None)

    def make_room(self, count: int) -> None:
        """Close ``count`` connections that wait for their clients."""
        for _ in range(count):
            if not self._evict_idle(None):
                return

    def admit(self, environ: dict[str, Any]) -> str | None:
        """Count a request that waits or runs for its source, until ``release``; return that source.

        None, and nothing is counted, if the source already has too many of them.
        """
        environ[SOURCE] = address = self._trusted.source(environ)
        source = limit_key(address)
        count = self._requests_of.get(source, 0)
        if source and count >= self.limits.requests_per_source:
            return None
        self._requests_of[source] = count + 1
        return source

    def release(self, source: str) -> None:
        """Note that a request of this source was answered."""
        self._requests_of[source] -= 1
        if not self._requests_of[source]:
            del self._requests_of[source]

    def add_queued(self, source: str, size: int) -> None:
        """Note that a complete request of ``size`` bytes is queued for a thread."""
        self._queued += 1
        self._queued_bytes += size
        if size:
            self._queued_bytes_of[source] = self._queued_bytes_of.get(source, 0) + size

    def remove_queued(self, source: str, size: int, now: float) -> None:
        """Note that it was answered; resume paused connections."""
        self._queued -= 1
        self._queued_bytes -= size
        if left := self._queued_bytes_of.pop(source, 0) - size:
            self._queued_bytes_of[source] = left
        resumed = [member for member in self._paused if not self.is_busy(member.client)]
        for member in resumed:
            member.resume(now - self._paused.pop(member))

    def is_busy(self, client: str) -> bool:
        """Whether so much is queued that nothing more is read from this client until some requests are answered.

        A client that has queued as much as is left gets no more. So one client leaves half of it to the others.
        """
        requests, size = self._requests_of.get(client, 0), self._queued_bytes_of.get(client, 0)
        return self._queued + requests > _MAX_QUEUED_REQUESTS or self._queued_bytes + size > self.limits.buffered

    def pause(self, member: LimitedConnection, now: float) -> None:
        """Note that reading is paused; ``resume`` is called when it may continue."""
        self._paused.setdefault(member, now)

    def is_paused(self, member: LimitedConnection) -> bool:
        """Whether nothing is read from this connection, so that its client cannot keep its deadline."""
        return member in self._paused

    def _evict_idle(self, but: LimitedConnection | None) -> bool:
        """Close the longest idle connection of the source that has most, or of all if none has several."""
        most = max(self._sources.values(), key=len, default=self._waiting)
        return self._evict_first(most if len(most) > 1 else self._waiting, but)

    def _evict_first(self, among: Iterable[LimitedConnection], but: LimitedConnection | None) -> bool:
        first = next(iter(among), None)
        if first is None or first is but:
            return False
        self.leave(first)
        self.evicted += 1
        first.evict()
        return True
