"""The data that everything shares: nodes (see ``node``), ports, inspections, requests, claims, journal entries.

msgspec structs are the only carriers: SQL rows, request bodies and answers are built from these.
Times are seconds since the Unix epoch by the database's clock; addresses are lower case.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ferroscope.domain.node import Document as Document
from ferroscope.domain.node import Node as Node
from ferroscope.domain.states import Event, State

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

    ``sentence`` says what it did last; ``detail`` is what else it tells of itself (see
    ``observe.party``): a reader must bear with anything missing there.
    """

    id: str
    host: str
    pid: int
    role: str
    started_at: float = 0.0
    expires_at: float = 0.0
    ttl: float = 600.0
    sentence: str = ""
    detail: Document = {}

    @property
    def works(self) -> bool:
        """Whether it carries requests out."""
        return self.role in ("all", "worker")

    def is_alive(self, now: float) -> bool:
        """Whether it was heard of lately; ``now`` by the database's clock, which may have been set back."""
        return now < self.expires_at <= now + self.ttl + 1.0
