"""Audit of API calls: which calls have an event, and where it is written.

The store writes the event of a change in the transaction of the change (``contracts.events``). This module writes what
has no transaction, such as refused calls: those are limited, because anybody can cause them. Events are also written
as lines of JSON in the form of CADF, if configured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextvars import Token
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from ferroscope.api.auth.identity import Identity
from ferroscope.api.http.rate_limit import PerMinute
from ferroscope.config.options import AuditSettings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.events import PENDING, Audited
from ferroscope.contracts.queue import Clock
from ferroscope.contracts.store import Store
from ferroscope.core.audit import AuditEvent, cadf

# The key in the WSGI environment under which the caller's identity is stored as soon as it is known.
IDENTITY: Final = "ferroscope.identity"

_log = structlog.get_logger(__name__)

# A lease is renewed every second or two; only who acquires and releases it is of interest.
_FREQUENT: Final = frozenset({"PUT /v1/leases/{name}"})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Refused calls per minute that have an event: from one source address, and in one process.
_REFUSED_BY_SOURCE: Final = 30
_REFUSED: Final = 120


class Audit:
    """Writes events. Thread-safe."""

    def __init__(self, settings: AuditSettings, store: Store, clock: Clock, *, process: str) -> None:
        self._settings, self._store, self._clock, self._process = settings, store, clock, process
        self._by_source, self._all = PerMinute(), PerMinute()

    def admits(self, source: str) -> bool:
        """Whether one more refused call from this address gets an event."""
        minute = int(self._clock.monotonic() // 60)
        return self._by_source.made(source, minute) <= _REFUSED_BY_SOURCE and self._all.made("", minute) <= _REFUSED

    def append(self, event: AuditEvent) -> None:
        """Write an event in a transaction of its own."""
        event = msgspec.structs.replace(event, at=self._clock.time())
        try:
            self._store.write(lambda tx: tx.audit.append(event), durable=False)
        except StoreUnavailableError as exc:
            _log.warning("audit event not stored", call=event.call, user=event.user, error=str(exc))
        self.write_line(event)

    def write_line(self, event: AuditEvent) -> None:
        """Append a line to the file, which is opened each time, so that it can be rotated at any time."""
        name = self._settings.log_file
        if not name:
            return
        line = msgspec.json.encode(cadf(event, self._process)).decode() + "\n"
        try:
            if name == "-":
                sys.stdout.write(line)
                sys.stdout.flush()
            else:
                with Path(name).open("a", encoding="utf-8") as file:
                    file.write(line)
        except OSError as exc:
            _log.error("cannot write to [audit] log_file", file=name, error=exc.strerror)


class CallAudit:
    """One call: ``begin`` before its handler, ``end`` after it, ``answered`` with its status."""

    def __init__(self, audit: Audit | None, call: str, *, ramdisk: bool) -> None:
        self._audit = audit
        self._call = call
        self._changes = not ramdisk and call not in _FREQUENT and call.partition(" ")[0] not in _SAFE
        self._audited: Audited | None = None
        self._token: Token[Audited | None] | None = None

    def begin(self, event: Callable[[], AuditEvent]) -> None:
        """Have the event written with the change, if such a call may change something."""
        if self._audit is not None and self._changes:
            self._audited = Audited(event())
            self._token = PENDING.set(self._audited)

    def end(self) -> None:
        """The handler has returned or failed; may be called again."""
        token, self._token = self._token, None
        if token is not None:
            PENDING.reset(token)

    def answered(self, status: int, event: Callable[[], AuditEvent]) -> None:
        """Write the event, unless it was written with the change."""
        if self._audit is None:
            return
        audited = self._audited
        if audited is not None and audited.recorded:
            self._audit.write_line(audited.event)
        elif status in (401, 403):
            refused = event()
            if self._audit.admits(refused.source):
                self._audit.append(msgspec.structs.replace(refused, status=status))
        elif audited is not None and status < 400:
            self._audit.append(msgspec.structs.replace(audited.event, status=status))


def event_of(
    environ: Mapping[str, Any], *, request_id: str, source: str, policy: str, call: str, target: str, status: int
) -> AuditEvent:
    """Return the event of a call; the caller is unknown if they could not be authenticated."""
    identity: Identity | None = environ.get(IDENTITY)
    return AuditEvent(
        request_id=request_id,
        user="unknown" if identity is None else identity.user,
        method="none" if identity is None else identity.method,
        project=None if identity is None else identity.project_name or identity.project_id,
        source=source,
        policy=policy,
        call=call,
        target=target,
        status=status,
    )
