"""The data that everything shares: nodes (see ``node``), ports, inspections, requests, claims, journal entries.

msgspec structs are the only carriers: SQL rows, request bodies and answers are built from these.
Times are seconds since the Unix epoch by the database's clock; addresses are lower case.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ferroscope.core.node import Document as Document
from ferroscope.core.node import Node as Node
from ferroscope.core.states import Event, State

REQUEST_VERSION = 1

# What an inspection ``reapplies`` whose data an operator gave.
GIVEN = "given"


class Port(msgspec.Struct, kw_only=True):
    """A NIC of a node; ``address`` is its MAC, unique over all nodes."""

    uuid: str
    node: str
    address: str
    name: str | None = None
    pxe_enabled: bool = True
    physical_network: str | None = None
    local_link_connection: Document = {}
    extra: Document = {}
    internal: Document = {}
    attributes: Document = {}
    created_at: float = 0.0
    updated_at: float | None = None


class Inspection(msgspec.Struct, kw_only=True):
    """One attempt to learn a node's hardware.

    ``digest`` identifies the callback that was accepted (SHA-256 of its body, hexadecimal), so
    that a repetition is known as such. ``manage_boot`` is false where the operator boots the
    ramdisk on their own. ``reason`` and ``error`` are set when it ended in error. ``reapplies`` is set
    where no machine was asked: the UUID of the inspection whose data is processed once more, or
    ``GIVEN``, where the data came with the request. ``clock_since``: since when the time that its present
    phase may take is running; None while it is not, because the inspection waits for us and not for its
    machine or its BMC. ``queued``: for how many seconds it has waited for workers.
    """

    uuid: str
    node: str
    state: State
    started_at: float
    waiting_since: float | None = None
    finished_at: float | None = None
    reason: str | None = None
    error: str | None = None
    digest: str | None = None
    manage_boot: bool = True
    reapplies: str | None = None
    clock_since: float | None = None
    queued: float = 0.0
    processing_since: float | None = None


class Request(msgspec.Struct, kw_only=True, frozen=True):
    """A queued request: let ``event`` happen to ``node``.

    ``id`` is given by the store and orders the requests of one node. ``attempt`` counts the
    deliveries. ``begun`` is true once the target state of a strict event is saved under this
    request; ``progress`` holds the intent of each effect outside. A
    ``due_at`` of 0 means at once. ``bmc`` and ``network`` are where the node's BMC was when the request
    was put (see ``lanes.bmc_of``). The event of another release is a text that is no ``Event``.
    """

    node: str
    event: Event
    inspection: str | None = None
    payload: Document = {}
    id: int = 0
    version: int = REQUEST_VERSION
    attempt: int = 0
    begun: bool = False
    progress: Document = {}
    created_at: float = 0.0
    due_at: float = 0.0
    bmc: str | None = None
    network: str | None = None


class Claim(msgspec.Struct, kw_only=True, frozen=True):
    """The right of one member to carry out one attempt of a request, and the lock of its node.

    ``token`` is random: together with ``attempt`` it fences a worker that wakes up too late.
    """

    request: Request
    holder: str
    token: str


class Severity(StrEnum):
    """How much a journal entry matters to an operator."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class Entry(msgspec.Struct, kw_only=True, frozen=True):
    """One step in the event journal of a node, in words that a person reads."""

    node: str
    step: str
    message: str
    inspection: str | None = None
    severity: Severity = Severity.INFO
    reason: str | None = None
    process: str = ""
    detail: Document = {}
    at: float = 0.0
    id: int = 0
    uuid: str = ""


class ClockStep(msgspec.Struct, kw_only=True, frozen=True):
    """The database's clock was set by ``seconds``; ``at`` is when, by the clock after it. ``process`` noticed."""

    id: int
    seconds: float
    at: float = 0.0
    process: str = ""


class Member(msgspec.Struct, kw_only=True, frozen=True):
    """A running process; alive while ``expires_at`` lies ahead by the database's clock, by ``ttl`` seconds at most.

    ``status`` says what it did last; ``detail`` is what else it tells of itself (see
    ``telemetry.members``): a reader must bear with anything missing there.
    """

    id: str
    host: str
    pid: int
    role: str
    started_at: float = 0.0
    expires_at: float = 0.0
    ttl: float = 600.0
    status: str = ""
    detail: Document = {}

    @property
    def works(self) -> bool:
        """Whether it carries requests out."""
        return self.role in ("all", "worker")

    def is_alive(self, now: float) -> bool:
        """Whether it was heard of lately; ``now`` by the database's clock, which may have been set back."""
        return now < self.expires_at <= now + self.ttl + 1.0


# A lease: a named, time-limited right of one holder, with an epoch that fences its writes.
#
# Expiry is judged by the database's clock alone; the holder trusts its own clock for a shorter
# time, measured from before it asked. Safety rests on the epoch, never on a clock.


class Lease(msgspec.Struct, kw_only=True, frozen=True):
    """``epoch`` grows by one with every new holder; ``token`` is random for every acquisition.

    ``holder`` is None, and ``remaining`` 0, where the lease is free. ``remaining`` is in seconds,
    by the database's clock when it was read. ``data`` is whatever the holder wants to be known; ``source``
    is from where somebody took it by the API.
    """

    name: str
    holder: str | None
    epoch: int
    token: str
    duration: float
    acquired_at: float
    renewed_at: float
    expires_at: float
    remaining: float = 0.0
    data: str = ""
    source: str | None = None

    @property
    def held(self) -> bool:
        """Whether somebody had it when it was read."""
        return self.holder is not None and self.remaining > 0


class LeaseProfile(msgspec.Struct, kw_only=True, frozen=True):
    """How long a lease lives, how often it is renewed, how often candidates look; in seconds.

    ``margin`` is what the holder's trust ends earlier than the lease: the room for a clock that
    runs slower than the database's, and for the work to stop.
    """

    ttl: float = 6.0
    renew: float = 1.5
    poll: float = 0.5
    margin: float = 1.0


DEFAULT = LeaseProfile()
FAST = LeaseProfile(ttl=3.0, renew=0.5, poll=0.25, margin=0.5)


def trusted_until(asked_at: float, profile: LeaseProfile) -> float:
    """Return until when the holder may act on a lease for which it asked at ``asked_at``."""
    return asked_at + profile.ttl - profile.margin


# An inspection rule as it is stored: conditions on inspection data, and actions where they hold.
#
# Conditions and actions are kept in the form of the Bare Metal API (``op`` and ``args``), whichever
# API a rule came by; ``dialect`` says how they are to be read. What they mean is ``ferroscope.rules``.

PHASES: Final = ("main",)


class RuleDialect(StrEnum):
    """Whose language a rule is written in: Ironic's inspection rules, or ironic-inspector's introspection rules."""

    BARE_METAL = "bare-metal"
    INTROSPECTION = "introspection"


class Rule(msgspec.Struct, kw_only=True):
    """One rule.

    Greater ``priority`` first. ``scope``: only for nodes whose ``properties.inspection_scope`` is the
    same; None: for all. The conditions and actions of a ``sensitive`` rule are never shown again.
    """

    uuid: str
    dialect: RuleDialect = RuleDialect.BARE_METAL
    description: str | None = None
    priority: int = 0
    phase: str = "main"
    sensitive: bool = False
    scope: str | None = None
    conditions: list[Document] = []
    actions: list[Document] = []
    created_at: float = 0.0
    updated_at: float | None = None
