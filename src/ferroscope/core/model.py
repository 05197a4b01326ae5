"""The shared data types: nodes (see ``node``), ports, inspections, requests, claims, journal entries.

SQL rows, request bodies and responses are all built from these msgspec structs. Times are seconds since the Unix
epoch by the database's clock; addresses are lower case.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from ferroscope.core.states import Event
from ferroscope_client.core.node import Document as Document
from ferroscope_client.core.node import Node as Node
from ferroscope_client.core.states import State

REQUEST_VERSION = 1

# ``Inspection.reapplies`` if the data was supplied with the request.
GIVEN = "given"

# The step of the timeline that describes the changes of the hardware.
HARDWARE_CHANGED: Final = "hardware changed"
# The step of a callback that an ironic-inspector accepted, and the key of its detail that has the node's UUID there.
FORWARDED: Final = "callback-forwarded"
ACCEPTED_AS: Final = "accepted_as"


class Port(msgspec.Struct, kw_only=True):
    """A NIC of a node; ``address`` is its MAC, unique across all nodes. ``portgroup``: the UUID of its port group."""

    uuid: str
    node: str
    address: str
    name: str | None = None
    pxe_enabled: bool = True
    physical_network: str | None = None
    portgroup: str | None = None
    local_link_connection: Document = {}
    extra: Document = {}
    internal: Document = {}
    attributes: Document = {}
    created_at: float = 0.0
    updated_at: float | None = None


# Resources that are only stored for their users: nothing here interprets them.


class Chassis(msgspec.Struct, kw_only=True):
    """A group of nodes, such as the blades of one enclosure."""

    uuid: str
    description: str | None = None
    extra: Document = {}
    created_at: float = 0.0
    updated_at: float | None = None


class Portgroup(msgspec.Struct, kw_only=True):
    """Ports of one node that are bonded; ``address`` is the MAC of the bond, unique across all port groups."""

    uuid: str
    node: str
    address: str | None = None
    name: str | None = None
    mode: str = "active-backup"
    properties: Document = {}
    standalone_ports_supported: bool = True
    physical_network: str | None = None
    category: str | None = None
    extra: Document = {}
    internal: Document = {}
    created_at: float = 0.0
    updated_at: float | None = None


class Inspection(msgspec.Struct, kw_only=True):
    """One inspection of a node.

    ``digest`` is the SHA-256 (hexadecimal) of the accepted callback body, used to recognize repeats. ``manage_boot`` is
    false if the operator boots the ramdisk. ``reason`` and ``error`` are set if it ended in error. ``reapplies``: the
    UUID of the inspection whose stored data is processed again, or ``GIVEN`` if the data was supplied with the
    request; no machine is involved. ``clock_since``: when the timeout of the current phase started; None while the
    inspection waits for us rather than for its machine or BMC. ``queued``: seconds spent waiting for workers.
    ``changes``: how many differences from the previous hardware it found. ``traceparent``: see ``contracts.telemetry``.
    ``secret`` and ``secret_delivery``: see ``callback_secret``; None if it has no secret. Never show ``secret``.
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
    changes: int = 0
    traceparent: str | None = None
    secret: str | None = None
    secret_delivery: str | None = None


class Request(msgspec.Struct, kw_only=True, frozen=True):
    """A queued request: apply ``event`` to ``node``.

    ``id`` is assigned by the store and orders the requests of one node. ``attempt`` counts the deliveries; ``lost`` has
    those that other members ended, as text (see ``losses``). ``begun`` is true once the target state of a strict event
    has been saved for this request; ``progress`` records the intent of each external effect. A ``due_at`` of 0 means
    immediately. ``bmc`` and ``network`` are the location of the node's BMC when the request was queued (see
    ``lanes.bmc_of``). An event of another release may be a string that is not an ``Event``.
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
    lost: str | None = None


class Claim(msgspec.Struct, kw_only=True, frozen=True):
    """The right of one member to carry out one attempt of a request, which also locks its node.

    ``token`` is random: with ``attempt``, it fences off a worker that resumes too late.
    """

    request: Request
    holder: str
    token: str


class Severity(StrEnum):
    """How important a journal entry is to an operator."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class Entry(msgspec.Struct, kw_only=True, frozen=True):
    """One step in a node's event journal, with a human-readable message."""

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
    """A step of the database's clock by ``seconds``, detected by ``process``; ``at`` is the time after the step."""

    id: int
    seconds: float
    at: float = 0.0
    process: str = ""


def as_document(value: Any) -> dict[Any, Any]:
    """Return the value if it is a document, otherwise {}: a member of another release may report anything."""
    return value if isinstance(value, dict) else {}


class Member(msgspec.Struct, kw_only=True, frozen=True):
    """A running process; alive while ``expires_at`` is in the future by the database's clock, by at most ``ttl``
    seconds.

    ``status`` is the last status reported; ``detail`` is more that it reports about itself (see ``telemetry.members``),
    in which any key may be missing. ``boot`` identifies the boot of its host, ``steady_since`` is since when its
    heartbeats have had no gap, ``left_at`` when it left, ``died_at`` when it was seen to die.
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
    boot: str | None = None
    steady_since: float | None = None
    left_at: float | None = None
    died_at: float | None = None

    @property
    def name(self) -> str:
        """Its name in logs and journals."""
        return f"{self.role}@{self.host}:{self.pid}"

    @property
    def works(self) -> bool:
        """Whether it carries out requests."""
        return self.role in ("all", "worker")

    @property
    def loops(self) -> dict[str, str]:
        """The last status of each of its loops."""
        return {str(name): str(text) for name, text in as_document(self.detail.get("loops")).items()}

    @property
    def lanes(self) -> dict[str, dict[str, int]]:
        """The counters of each lane of its worker."""
        return {
            str(lane): {str(name): number for name, number in as_document(counts).items() if isinstance(number, int)}
            for lane, counts in as_document(self.detail.get("lanes")).items()
        }

    def is_alive(self, now: float) -> bool:
        """Whether its heartbeat is recent; ``now`` by the database's clock, which may have been set back."""
        return now < self.expires_at <= now + self.ttl + 1.0


# A lease: a named, time-limited right of one holder, with an epoch that fences its writes.
#
# Only the database's clock decides when a lease expires. The holder trusts its own clock for a shorter time, measured
# from before it asked. Safety rests on the epoch, never on a clock.


class Lease(msgspec.Struct, kw_only=True, frozen=True):
    """The public part of a lease; ``epoch`` increases by one with every new holder.

    ``holder`` is None, and ``remaining`` 0, if the lease is free. ``remaining`` is in seconds, by the database's clock
    when it was read. ``data`` is published by the holder; ``source`` is the address of an API caller that acquired it.
    """

    name: str
    holder: str | None
    epoch: int
    duration: float
    acquired_at: float
    renewed_at: float
    expires_at: float
    remaining: float = 0.0
    data: str = ""
    source: str | None = None

    @property
    def held(self) -> bool:
        """Whether it had a holder when it was read."""
        return self.holder is not None and self.remaining > 0


class LeaseProof(msgspec.Struct, kw_only=True, frozen=True):
    """The proof that a program holds a lease. ``token`` is random for every acquisition; only the holder knows it."""

    name: str
    epoch: int
    token: str


class LeaseClaim(LeaseProof, kw_only=True, frozen=True):
    """What the holder gets: the proof, and the lease as it was stored with that."""

    lease: Lease


class Candidate(msgspec.Struct, frozen=True):
    """A program that asked for a lease while another one held it.

    Unless it asks again, it counts until ``expires_at``.
    """

    holder: str
    asked_at: float


class LeaseProfile(msgspec.Struct, kw_only=True, frozen=True):
    """How long a lease lives, how often it is renewed, and how often candidates poll; in seconds.

    ``margin`` is how much earlier than the lease the holder stops trusting it: room for a clock that runs slower than
    the database's, and for the work to stop.
    """

    ttl: float = 6.0
    renew: float = 1.5
    poll: float = 0.5
    margin: float = 1.0


DEFAULT = LeaseProfile()
FAST = LeaseProfile(ttl=3.0, renew=0.5, poll=0.25, margin=0.5)


def trusted_until(asked_at: float, profile: LeaseProfile) -> float:
    """Return the monotonic time until which a holder that asked at ``asked_at`` may rely on the lease."""
    return asked_at + profile.ttl - profile.margin


# An inspection rule as stored: conditions on inspection data, and actions to take if they match.
#
# Conditions and actions are kept in the Bare Metal API's form (``op`` and ``args``), whichever API created the rule;
# ``dialect`` says how to interpret them. ``ferroscope.rules`` evaluates them.

PHASES: Final = ("main",)


class RuleDialect(StrEnum):
    """The rule language: Ironic's inspection rules, or ironic-inspector's introspection rules."""

    BARE_METAL = "bare-metal"
    INTROSPECTION = "introspection"


class Rule(msgspec.Struct, kw_only=True):
    """One rule.

    Higher ``priority`` runs first. ``scope``: apply only to nodes with the same ``properties.inspection_scope``; None:
    to all nodes. The conditions and actions of a ``sensitive`` rule are never shown again.
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
