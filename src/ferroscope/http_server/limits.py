"""Tracks all connections of an HTTP server, and selects which to close if there are too many.

Clients may be slow, silent or hostile, from one address or from thousands. So no new connection is rejected: if a limit
is reached, the connection that has been idle longest is closed instead. A connection whose request is being processed
waits for us, and is never closed. Used only by the server's thread.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from ferroscope.config.options import ApiSettings
from ferroscope.http_server.sources import TrustedProxies, group

# File descriptors needed for everything but client connections: the database, BMCs, logs.
_OTHER_FILES: Final = 256
_MOST_FILES: Final = 65_536
# Requests queued for a thread; above this, nothing more is read from any client.
_MOST_QUEUED: Final = 512


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, connections and bytes; ``buffered`` limits partial requests, and separately the queued ones."""

    header_timeout: float = 15.0
    body_timeout: float = 60.0
    idle_timeout: float = 60.0
    connections: int = 4096
    per_source: int = 256
    requests_per_source: int = 384
    body_size: int = 2 * 1024 * 1024
    buffered: int = 64 * 1024 * 1024


def limits(settings: ApiSettings) -> Limits:
    """Return the limits of the api, within this process's limit of open files."""
    return Limits(
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
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft


class Member(Protocol):
    """A connection: the address it counts for, and the bytes buffered for it."""

    source: str
    held: int
    deadline: float

    def evict(self) -> None:
        """Close at once."""

    def resume(self, paused: float) -> None:
        """Resume reading; ``paused``: for how many seconds it was paused."""


class Connections:
    """All connections; ``waiting`` are those that wait for their client, the longest idle first."""

    def __init__(self, limits: Limits, trusted: TrustedProxies) -> None:
        self.limits = limits
        self.members: dict[Member, None] = {}
        self.evicted = 0
        self._trusted = trusted
        self._waiting: dict[Member, None] = {}
        self._sources: dict[str, dict[Member, None]] = {}
        self._holding: dict[Member, None] = {}  # oldest first
        self._held = 0
        self._queued = self._queued_bytes = 0
        self._requests_of: dict[str, int] = {}
        self._paused: dict[Member, float] = {}

    def count_for(self, address: str) -> str:
        """Return the address that a connection counts for; "" for a proxy, which many clients share."""
        return "" if address in self._trusted else group(address)

    def join(self, member: Member) -> None:
        """Add a new connection, and close those that exceed the limits."""
        self.members[member] = None
        self.client_active(member)
        if len(self.members) > self.limits.connections:
            self._evict_first(self._waiting, member)
        if member.source and len(self._sources[member.source]) > self.limits.per_source:
            self._evict_first(self._sources[member.source], member)

    def is_full(self) -> bool:
        """Whether the limit is reached and no connection may be closed."""
        return len(self.members) >= self.limits.connections and not self._waiting

    def client_active(self, member: Member) -> None:
        """Note that the client was active; from now on we wait for the client."""
        self._waiting.pop(member, None)
        self._waiting[member] = None
        if member.source:
            of_source = self._sources.setdefault(member.source, {})
            of_source.pop(member, None)
            of_source[member] = None

    def answering(self, member: Member) -> None:
        """Note that the client waits for us."""
        self._waiting.pop(member, None)
        of_source = self._sources.get(member.source)
        if of_source is not None:
            of_source.pop(member, None)
            if not of_source:
                del self._sources[member.source]

    def leave(self, member: Member) -> None:
        """Remove a connection; safe to call twice."""
        self.members.pop(member, None)
        self._paused.pop(member, None)
        self.answering(member)
        self.hold(member, 0)

    def hold(self, member: Member, size: int) -> None:
        """Note how many bytes are buffered for a partial request; the oldest ones are closed to make room."""
        self._held += size - member.held
        member.held = size
        if size:
            self._holding.setdefault(member, None)
        else:
            self._holding.pop(member, None)
        while self._held > self.limits.buffered and self._evict_first(self._holding, member):
            pass

    def make_room(self, count: int) -> None:
        """Close the ``count`` connections that have been idle longest."""
        for _ in range(count):
            if not self._evict_first(self._waiting, None):
                return

    def admit(self, environ: Mapping[str, Any]) -> str | None:
        """Count a request that waits or runs for its source, until ``release``; return that source.

        None, and nothing is counted, if the source already has too many of them.
        """
        source = group(self._trusted.source(environ))
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

    def queued(self, size: int) -> None:
        """Note that a complete request of ``size`` bytes is queued for a thread."""
        self._queued += 1
        self._queued_bytes += size

    def answered(self, size: int, now: float) -> None:
        """Note that it was answered; resume paused connections."""
        self._queued -= 1
        self._queued_bytes -= size
        if self._paused and not self.is_busy():
            paused, self._paused = self._paused, {}
            for member, since in paused.items():
                member.resume(now - since)

    def is_busy(self) -> bool:
        """Whether too much is queued; then nothing more is read until some requests are answered."""
        return self._queued > _MOST_QUEUED or self._queued_bytes > self.limits.buffered

    def pause(self, member: Member, now: float) -> None:
        """Note that reading is paused; ``resume`` is called when it may continue."""
        self._paused.setdefault(member, now)

    def _evict_first(self, among: dict[Member, None], but: Member | None) -> bool:
        first = next(iter(among), None)
        if first is None or first is but:
            return False
        self.leave(first)
        self.evicted += 1
        first.evict()
        return True
