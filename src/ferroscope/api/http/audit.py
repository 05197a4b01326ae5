"""Audit of API calls: which calls have an event, and where it is written.

The store writes the event of a change in the transaction of the change (``contracts.store``). This module writes the
events of calls without a transaction, such as refused calls. Anonymous callers can cause those, so only some have an
event. The others are counted, and once a minute each source gets an event with their number. Events are also written as
lines of JSON in the form of CADF, if configured.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from ferroscope.api.auth.identity import ANYBODY, Identity
from ferroscope.api.http.arrivals import SAFE
from ferroscope.api.rate_limit import Buckets
from ferroscope.config.options import AuditSettings
from ferroscope.contracts.errors import StoreError
from ferroscope.contracts.store import Audited, Clock
from ferroscope.core.audit import REFUSED, UNKNOWN, AuditEvent, cadf, shown_claim
from ferroscope.db import Store, Transaction
from ferroscope_client.core.private_file import open_private
from ferroscope_client.core.values import limit_key, many

# The key in the WSGI environment under which the caller's identity is stored as soon as it is known.
IDENTITY: Final = "ferroscope.identity"

_log = structlog.get_logger(__name__)

_TOO_MANY: Final = 429

# A lease is renewed every second or two; only its acquisition and release are of interest.
_FREQUENT: Final = frozenset({"PUT /v1/leases/{name}"})
_NOBODY: Final = frozenset({UNKNOWN, ANYBODY.user})
# Refused calls of each kind that have an event: from one source, and in one process; in a burst, and then per second.
# An attacker who continues for a year causes some millions, which is a gigabyte.
_BURST_EVENTS_BY_SOURCE: Final = 30
_BURST_EVENTS: Final = 120
_EVENTS_PER_SECOND_BY_SOURCE: Final = 1 / 60
_EVENTS_PER_SECOND: Final = 1 / 10
# Seconds between the events that count the other calls, and how many sources they distinguish.
_COUNT_SECONDS: Final = 60.0
_MAX_COUNTED_SOURCES: Final = 8
_OTHERS: Final = "others"


def is_recorded(endpoint: str) -> bool:
    """Whether a call has an event and a receipt because it may change something; those of ramdisks have none."""
    return endpoint not in _FREQUENT and endpoint.partition(" ")[0] not in SAFE


class _AuditBudget:
    """How many refused calls of a kind have an event: by source or user, and in the whole process."""

    def __init__(self) -> None:
        self._by_key, self._all = (
            Buckets(_EVENTS_PER_SECOND_BY_SOURCE, _BURST_EVENTS_BY_SOURCE),
            Buckets(_EVENTS_PER_SECOND, _BURST_EVENTS),
        )

    def admits(self, key: Hashable, now: float) -> bool:
        """Whether one more call has an event."""
        return not self._by_key.take(key, now) and not self._all.take("", now)


class Audit:
    """Writes events. Thread-safe.

    Each kind of refused calls has a budget of its own. So anonymous calls do not hide the names that an attacker tries,
    and neither hides the refused calls of known users.
    """

    def __init__(self, settings: AuditSettings, store: Store, clock: Clock, *, process: str) -> None:
        self._settings, self._store, self._clock, self._process = settings, store, clock, process
        self._anonymous, self._tried_names, self._known_users = _AuditBudget(), _AuditBudget(), _AuditBudget()
        self._logins = Buckets(_EVENTS_PER_SECOND, _BURST_EVENTS_BY_SOURCE)
        self._lock = threading.Lock()
        self.left_out: dict[str, int] = {}  # calls that have no event, by source
        self._counted_at = clock.monotonic()

    def write_outcome(
        self, audited: Audited | None, status: int, event: Callable[[], AuditEvent], *, ramdisk: bool = False
    ) -> None:
        """Write the event of a call that has ended, unless the store wrote it with the change."""
        if self.left_out:
            self.write_counts()
        if audited is not None and audited.recorded:
            if self._settings.log_file:
                self.write_line(audited.event)
        elif status in (401, 403) or (status == _TOO_MANY and not ramdisk):
            self.write_refusal(msgspec.structs.replace(event(), status=status))
        elif audited is not None and status < 400:
            self.append(msgspec.structs.replace(audited.event, status=status))

    def write_refusal(self, event: AuditEvent) -> None:
        """Write the event of a refused call, or count it; too many failed logins (429) are only counted."""
        if event.status != _TOO_MANY and self._admits(event):
            self.append(event)
        else:
            self.count(event.source)

    def _admits(self, event: AuditEvent) -> bool:
        now, source = self._clock.monotonic(), limit_key(event.source)
        if event.method != "none":
            return self._known_users.admits((event.user, event.method), now)
        return (self._anonymous if event.user in _NOBODY else self._tried_names).admits(source, now)

    def logged_in(self, event: AuditEvent) -> None:
        """Write the event of a login, or count it if this user logs in very often."""
        if self.admits_login(event.user, event.method):
            self.append(event)
        else:
            self.count(event.source)

    def admits_login(self, user: str, method: str) -> bool:
        """Whether one more login of this user gets an event, whatever others cause."""
        return not self._logins.take((user, method), self._clock.monotonic())

    def count(self, source: str) -> None:
        """Count a call that has no event."""
        source = limit_key(source)
        with self._lock:
            if source not in self.left_out and len(self.left_out) >= _MAX_COUNTED_SOURCES:
                source = _OTHERS
            self.left_out[source] = self.left_out.get(source, 0) + 1

    def write_counts(self) -> None:
        """Write how many calls had no event, if it is time to."""
        now = self._clock.monotonic()
        with self._lock:
            if not self.left_out or now - self._counted_at < _COUNT_SECONDS:
                return
            counted, self.left_out, self._counted_at = self.left_out, {}, now
        self.append(
            *(
                AuditEvent(
                    request_id="", user=UNKNOWN, method="none", source=source, call=REFUSED, status=_TOO_MANY,
                    target=f"{many(number, 'more call')}",
                )
                for source, number in counted.items()
            )
        )  # fmt: skip

    def append(self, *events: AuditEvent) -> None:
        """Write events in a transaction of their own."""

        def work(tx: Transaction) -> float:
            for event in events:
                tx.audit.append(event)
            return tx.now

        try:
            at = self._store.write(work, durable=False)
        except StoreError as exc:
            at = self._clock.time()
            _log.warning("audit event not stored", call=events[0].call, user=events[0].user, error=str(exc))
        if self._settings.log_file:
            for event in events:
                self.write_line(msgspec.structs.replace(event, at=at))

    def write_line(self, event: AuditEvent) -> None:
        """Append a line to the file, which is opened each time, so that it can be rotated at any time."""
        name = self._settings.log_file
        line = msgspec.json.encode(cadf(event, self._process)).decode() + "\n"
        try:
            if name == "-":
                sys.stdout.write(line)
                sys.stdout.flush()
            else:
                with open_private(Path(name), "a") as file:
                    file.write(line)
        except OSError as exc:
            _log.error("cannot write to [audit] log_file", file=name, error=exc.strerror)


def event_of(
    environ: Mapping[str, Any],
    *,
    request_id: str,
    source: str,
    policy: str,
    call: str,
    target: str,
    status: int,
    claims: str = "",
) -> AuditEvent:
    """Return the event of a call; ``claims``: who the caller claims to be, in case they could not be authenticated."""
    identity: Identity | None = environ.get(IDENTITY)
    return AuditEvent(
        request_id=request_id,
        user=shown_claim(claims) if identity is None else identity.user,
        method="none" if identity is None else identity.method,
        project=None if identity is None else identity.project_name or identity.project_id,
        source=source,
        policy=policy,
        call=call,
        target=target,
        status=status,
    )
