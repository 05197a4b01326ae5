"""All connections of an HTTP server, and which of them has to go where there are too many.

A client may be slow, silent or hostile, and may come from one address or from thousands. So nobody is turned away at
the door: where a limit is reached, the connection that has kept us waiting longest is closed in favour of the new one.
A connection whose request is being answered waits for us, and is never closed. Used by the server's thread alone.
"""

from __future__ import annotations

import resource
from typing import Final, Protocol

import msgspec

from ferroscope.api.http.callers import Trusted, group
from ferroscope.config.options import ApiSettings

# Files that a process needs apart from its clients' connections: the database, BMCs, logs.
_OTHER_FILES: Final = 256
_MOST_FILES: Final = 65_536
# Requests that wait for a thread; while there are more, nothing is read from anybody.
_MOST_QUEUED: Final = 512


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, connections and bytes; ``buffered`` is for what waits for clients, and once more for what is queued."""

    header_timeout: float = 15.0
    body_timeout: float = 60.0
    idle_timeout: float = 60.0
    connections: int = 4096
    per_source: int = 256
    body_size: int = 2 * 1024 * 1024
    buffered: int = 64 * 1024 * 1024


def limits(settings: ApiSettings) -> Limits:
    """Return the limits of the api, as far as this process may have open files."""
    return Limits(
        header_timeout=settings.header_timeout,
        body_timeout=settings.body_timeout,
        idle_timeout=settings.idle_timeout,
        connections=max(16, min(settings.max_connections, more_files() - _OTHER_FILES)),
        per_source=settings.max_connections_per_source,
        body_size=settings.max_body_size,
        buffered=max(settings.max_buffered, settings.max_body_size),
    )


def more_files() -> int:
    """Raise this process's soft limit of open files as far as it makes sense and is allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft


class Member(Protocol):
    """A connection: whom it counts for, and the bytes that are kept for it."""

    source: str
    held: int
    deadline: float

    def evict(self) -> None:
        """Close at once."""

    def resume(self, paused: float) -> None:
        """Read on, after so many seconds in which we did not."""


class Crowd:
    """Every connection; ``waiting`` are those that wait for their client, the one silent for longest first."""

    def __init__(self, limits: Limits, trusted: Trusted) -> None:
        self.limits = limits
        self.members: dict[Member, None] = {}
        self.evicted = 0
        self._trusted = trusted
        self._waiting: dict[Member, None] = {}
        self._sources: dict[str, dict[Member, None]] = {}
        self._holding: dict[Member, None] = {}  # the one that began longest ago first
        self._held = 0
        self._queued = self._queued_bytes = 0
        self._paused: dict[Member, float] = {}

    def count_for(self, address: str) -> str:
        """Return as whose a connection from this address counts; "" for a proxy's, which are many people's."""
        return "" if address in self._trusted else group(address)

    def join(self, member: Member) -> None:
        """Take a new connection in, and have those closed for which there is no room any more."""
        self.members[member] = None
        self.heard(member)
        if len(self.members) > self.limits.connections:
            self._evict_first(self._waiting, member)
        if member.source and len(self._sources[member.source]) > self.limits.per_source:
            self._evict_first(self._sources[member.source], member)

    def is_full(self) -> bool:
        """Whether there is no room, and nobody who could be asked to leave."""
        return len(self.members) >= self.limits.connections and not self._waiting

    def heard(self, member: Member) -> None:
        """Note that the client did something just now; from here on it is the client whom we wait for."""
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
        """Forget a connection; once more does no harm."""
        self.members.pop(member, None)
        self._paused.pop(member, None)
        self.answering(member)
        self.hold(member, 0)

    def hold(self, member: Member, size: int) -> None:
        """Note how many bytes are kept until the client goes on; those who hold for longest make room."""
        self._held += size - member.held
        member.held = size
        if size:
            self._holding.setdefault(member, None)
        else:
            self._holding.pop(member, None)
        while self._held > self.limits.buffered and self._evict_first(self._holding, member):
            pass

    def make_room(self, count: int) -> None:
        """Have the ``count`` most silent connections closed."""
        for _ in range(count):
            if not self._evict_first(self._waiting, None):
                return

    def queued(self, size: int) -> None:
        """Note that a whole request of ``size`` bytes waits for a thread."""
        self._queued += 1
        self._queued_bytes += size

    def answered(self, size: int, now: float) -> None:
        """Note that it has been answered; go on reading where that had to wait."""
        self._queued -= 1
        self._queued_bytes -= size
        if self._paused and not self.is_busy():
            paused, self._paused = self._paused, {}
            for member, since in paused.items():
                member.resume(now - since)

    def is_busy(self) -> bool:
        """Whether more is queued than should be: then nothing more is read until some of it is answered."""
        return self._queued > _MOST_QUEUED or self._queued_bytes > self.limits.buffered

    def pause(self, member: Member, now: float) -> None:
        """Note that we do not read from it; ``resume`` is called when we do again."""
        self._paused.setdefault(member, now)

    def _evict_first(self, among: dict[Member, None], but: Member | None) -> bool:
        first = next(iter(among), None)
        if first is None or first is but:
            return False
        self.leave(first)
        self.evicted += 1
        first.evict()
        return True
