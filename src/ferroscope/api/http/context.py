"""What every handler receives: the settings, and its dependencies in four groups.

It has no state of a call; one context serves all threads of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from ferroscope.api.auth.authentication import Authentication
from ferroscope.api.auth.failures import guesses
from ferroscope.api.auth.policy import NoPolicy, Policy
from ferroscope.api.http.arrivals import Hosts
from ferroscope.api.http.audit import Audit
from ferroscope.api.http.large_lists import Room, Turns
from ferroscope.api.http.recent import TtlCache
from ferroscope.api.http.sending import Places, Readers
from ferroscope.api.rate_limit import Buckets, Callers, PerMinute, RateLimiter, RefusalCache
from ferroscope.config.options import ApiSettings, Settings
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.remote import Forwarder
from ferroscope.contracts.store import Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.lookup import Evidence
from ferroscope.core.model import Node
from ferroscope.db import Store, Transaction
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.http_server.limits import TrustedProxies
from ferroscope.rules.builtin import RuleCache
from ferroscope.storage.reader import Archive
from ferroscope.telemetry.log import QuietLog
from ferroscope_client.core.database_fault import DatabaseFailure

R = TypeVar("R")

# Seconds for which a process counts as unable to write after a call failed to. Then it may try another call.
_SUSPECT_SECONDS: Final = 5.0


class FailureReader(Protocol):
    """Why this process has not written its heartbeat recently; ``at_once``: also why it has not written the last."""

    def __call__(self, *, at_once: bool = False) -> DatabaseFailure | None: ...


class Writes(msgspec.Struct):
    """Whether the last changing calls could be written. Times are monotonic seconds.

    ``failure``: why the last one, at ``failed_at``, could not be written; None if it was. Reading this costs the
    database nothing.
    """

    failure: DatabaseFailure | None = None
    failed_at: float = 0.0


class DatabaseInfo(msgspec.Struct, frozen=True):
    """The database in the status: its kind, its schema's version, and the version that this release needs."""

    kind: str
    schema: str | None
    schema_needed: str


class DataAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored.

    ``archive`` reads inspection data wherever it is stored. ``describe`` queries the database's kind and schema.
    ``page``: the most bytes of a page of a list; ``turns`` limits the large lists that are made at once.
    ``recent`` shares what a call has just read with other calls.
    ``heartbeat_failure`` returns why this process has not written its heartbeat, None if it has none; ``writes`` what
    its last calls have found. ``outages`` limits the logging of an outage.
    """

    store: Store
    archive: Archive
    describe: Callable[[], DatabaseInfo]
    page: int
    recent: TtlCache
    turns: Turns = msgspec.field(default_factory=Turns)
    heartbeat_failure: FailureReader | None = None
    writes: Writes = msgspec.field(default_factory=Writes)
    outages: QuietLog = msgspec.field(default_factory=lambda: QuietLog(burst=1))

    def read_write_failure(self, now: float, *, at_once: bool) -> DatabaseFailure | None:
        """Return why this process cannot write to the database; ``at_once``: or could not a moment ago."""
        if self.heartbeat_failure is not None and (failure := self.heartbeat_failure(at_once=at_once)) is not None:
            return failure
        return self.writes.failure if at_once and now - self.writes.failed_at < _SUSPECT_SECONDS else None

    def read_list(self, work: Callable[[Transaction, Room], R]) -> R:
        """Run ``work``, which reads a list and may be run twice, on a consistent snapshot."""
        return self.turns.read(self.store, self.page, work)


class AccessControl(msgspec.Struct, frozen=True, kw_only=True):
    """Who may call what, and how often.

    ``authentication`` determines who makes a call, ``policy`` decides what an identity may do. ``audit`` records calls;
    None if it is disabled. ``proxies`` are trusted to say where calls come from; ``hosts`` are the names that may be
    called. ``callers`` limits failures by source, ``admission`` the calls of one caller.
    ``refusals`` limits the logging of refused callbacks, ``floods`` that of a flood of unknown machines.
    ``refusal_cache`` limits the queries that a flood causes. ``sources`` counts the machines that each source has had
    discovered. ``places`` limits the files that are being sent at once, ``readers`` knows which version each source
    reads. ``guesses`` limits what one project may learn about the passwords of another's BMC.
    """

    authentication: Authentication
    hosts: Hosts
    admission: RateLimiter
    policy: Policy = msgspec.field(default_factory=NoPolicy)
    audit: Audit | None = None
    proxies: TrustedProxies = msgspec.field(default_factory=TrustedProxies)
    callers: Callers = msgspec.field(default_factory=Callers)
    refusals: QuietLog = msgspec.field(default_factory=QuietLog)
    floods: QuietLog = msgspec.field(default_factory=lambda: QuietLog(burst=1))
    refusal_cache: RefusalCache = msgspec.field(default_factory=RefusalCache)
    sources: PerMinute = msgspec.field(default_factory=PerMinute)
    places: Places = msgspec.field(default_factory=Places)
    readers: Readers = msgspec.field(default_factory=Readers)
    guesses: Buckets = msgspec.field(default_factory=lambda: guesses(ApiSettings()))


class AttachedCalls(Protocol):
    """An attached Ironic, which the nodes belong to: what it does in calls of the API."""

    def check_change(self, endpoint: str) -> None:
        """Refuse a call that changes what only Ironic may change; an ``ApiError``."""

    def prepare(self, context: ApiContext, ident: str, *, manage_boot: bool = True) -> None:
        """Update our copy of the node before an inspection is requested; an ``ApiError``.

        ``manage_boot``: the service boots the machine.
        """

    def search(self, context: ApiContext, evidence: Evidence) -> bool:
        """Copy the node of a machine that is unknown here; return whether Ironic has one."""


class ApiServices(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls are about: machines, and their inspection.

    ``drivers`` by name, for listing and validation only. ``attached`` None: the nodes are our own.
    ``forwarder`` forwards callbacks that nobody waits for here; None: they are refused. ``conductor_of`` returns the
    host that a node shows as its conductor. ``rules`` and ``pipeline`` are for dry runs; the latter raises
    ``HookSetupError``.
    """

    drivers: Mapping[str, Bmc]
    rules: RuleCache
    pipeline: Callable[[], Pipeline]
    attached: AttachedCalls | None = None
    forwarder: Forwarder | None = None
    conductor_of: Callable[[Node], str | None] = lambda _node: None


class ProcessContext(msgspec.Struct, frozen=True, kw_only=True):
    """This process.

    ``name``: in the journal. ``log`` is a structlog logger; ``clock`` is the host's. ``new_uuid`` and ``new_token`` are
    random and unguessable. ``metrics`` renders all metrics, None if they are disabled. ``draining`` is set when the
    process is about to stop and a load balancer must send it no new calls.
    """

    name: str
    log: Any
    clock: Clock
    new_uuid: Callable[[], str]
    new_token: Callable[[], str]
    meter: Meter = SILENT
    metrics: Callable[[], bytes] | None = None
    draining: StopFlag = msgspec.field(default_factory=threading.Event)


class ApiContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of the handlers."""

    settings: Settings
    data: DataAccess
    access: AccessControl
    services: ApiServices
    process: ProcessContext
