"""What the callers of the store, of the queue and of the bus pass to it and get from it; see ``db``."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Generic, Literal, NewType, Protocol, TypeVar

import msgspec

from ferroscope.contracts.telemetry import TracedCall
from ferroscope.core.audit import AuditEvent
from ferroscope.core.model import LeaseProof
from ferroscope_client.core.node import STORED, Document
from ferroscope_client.core.obstacles import Lane


class Ended(msgspec.Struct, frozen=True):
    """How many inspections finished and how many failed within an interval."""

    finished: int
    failed: int


class OldRows(msgspec.Struct, frozen=True):
    """The keys of the rows to delete on one page of a table; ``after``: where the next page begins.

    ``is_last``: no page follows now. However many rows are kept, reading a page takes as long.
    """

    keys: Sequence[str]
    after: object
    is_last: bool


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list: filters, order and start.

    ``filters`` maps a field to a value, or to a tuple of alternatives; ``before`` maps a field to an exclusive upper
    limit. ``project`` limits nodes, or ports of nodes, to those that may belong to this project as owner or lessee, and
    ``attributes`` limits nodes to those that may have these texts in ``Node.attributes``, and ``present`` to those that
    may have anything there by these names; for certainty look at the nodes. ``fields``: only these are read, and the
    others have their defaults; None: all. ``marker`` is the UUID of the previous
    page's last item; an unknown one raises ``NotFoundError``. Items are ordered by ``sort_key``, then by UUID, so that
    pagination is stable.
    """

    filters: Mapping[str, object] = {}
    before: dict[str, float] = {}
    project: str | None = None
    attributes: dict[str, str] = {}
    present: tuple[str, ...] = ()
    fields: frozenset[str] | None = None
    limit: int | None = None
    marker: str | None = None
    sort_key: str = "created_at"
    descending: bool = False


HARDWARE: Final = {
    "model": False, "serial": False, "cpu": False, "memory": True, "storage": True, "nics": True,
}  # fmt: skip
"""What the summary of a node's hardware has to sort by, the model with its vendor; True: a number."""
SORTS: Final = frozenset(field.name for field in STORED if field.sorts) | HARDWARE.keys()
"""By what ``db.ranking`` sorts nodes."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of an owner take; ``ports`` includes port groups, ``bytes`` also inspection data (0: not read)."""

    nodes: int = 0
    ports: int = 0
    bytes: int = 0


T_co = TypeVar("T_co", covariant=True)


class Later(msgspec.Struct, Generic[T_co], frozen=True):
    """``get`` returns the result, and fetches it if necessary."""

    get: Callable[[], T_co]


Part = Literal["inventory", "unprocessed", "plugin_data", "out_of_band", "logs"]
Packed = NewType("Packed", bytes)

# Level 1 compresses an inventory to a tenth of its size in a third of a millisecond; higher levels gain little.
_ZLIB_LEVEL: Final = 1


def packed(parts: Mapping[Part, bytes]) -> dict[Part, Packed]:
    """Return the parts as the database stores them: compressed by zlib.

    Call it before the transaction. In it, others would wait meanwhile: for the locks that it holds, and on SQLite for
    the only writer.
    """
    return {part: Packed(zlib.compress(content, _ZLIB_LEVEL)) for part, content in parts.items()}


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an inspection's data in the database; ``at`` distinguishes its content from later ones."""

    inspection: str
    part: Part
    node: str
    at: float


ObjectState = Literal["uploading", "stored", "discarded"]


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an inspection's data as an object in ``backend``, under a key that is used only once.

    ``size`` is the object's size in bytes; ``at`` is when it entered its state. ``content_size`` and ``content_sha256``
    are those of the unpacked content; None for objects of a release that did not record them.
    """

    key: str
    backend: str
    inspection: str
    node: str
    part: Part
    state: ObjectState = "uploading"
    size: int = 0
    at: float = 0.0
    content_size: int | None = None
    content_sha256: str | None = None


class SearchMatch(msgspec.Struct, frozen=True):
    """A search result; ``hardware`` is the summary of the node's last inventory (see ``hardware.search_index``)."""

    uuid: str
    name: str | None
    provision_state: str
    maintenance: bool
    hardware: Document


class CableEnd(msgspec.Struct, frozen=True, gc=False):
    """A NIC and the port of a switch to which it is connected; ``machine``: the node's name, or its UUID.

    Texts of the machine, which are in lower case, are empty if they are not known.
    """

    switch: str
    port: str
    node: str
    machine: str
    nic: str
    mac: str
    vlan: int | None = None
    mtu: int | None = None


class SharedMac(msgspec.Struct, frozen=True):
    """A MAC that several machines reported in their last inspections: of how many NICs, and two of their nodes."""

    address: str
    nics: int
    nodes: tuple[str, str]


# Seconds for which a receipt is kept: of a call with a key, and of another one.
KEPT_SECONDS: Final = 86_400.0
_KEPT_BRIEFLY: Final = 600.0


class StoredReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt as it is stored. ``call`` is a digest of the request.

    ``void``: the change was not committed and cannot be any more. ``reply`` is the body of the response, once known.
    """

    id: str
    call: str
    void: bool
    status: int
    reply: str | None
    expires_at: float


class Receipt:
    """The receipt of a call that is being carried out; ``written`` once its first change is committed.

    It is in the transaction of the change, so that the call's outcome can be looked up. An answer to COMMIT may be
    lost. The store then looks for the receipt over a new connection, before it says what became of the change. A
    caller that gives its call a key (the header ``Idempotency-Key``) and repeats it finds its own effect instead of
    having it a second time.

    ``given``: the caller has given a key. ``instead``: a void receipt of the same key is there and is replaced.
    """

    def __init__(self, ident: str = "", call: str = "", *, given: bool = False, instead: bool = False) -> None:
        self.id = ident or uuid.uuid4().hex
        self.call = call
        self.given = given
        self.instead = instead
        self.written = False

    @property
    def kept(self) -> float:
        """Seconds for which it is kept."""
        return KEPT_SECONDS if self.given else _KEPT_BRIEFLY

    def next(self) -> str:
        """Return the ID for the next change: a call may make several."""
        return uuid.uuid4().hex if self.written else self.id


class RepeatedCallError(Exception):
    """The call with this ID has been committed before."""


class Audited:
    """The event of a call; ``recorded`` once it is committed. ``by``: who is shown in the node's timeline, or "".

    It is in the transaction of the change. A call that changes nothing has none; its event is appended afterwards.
    """

    def __init__(self, event: AuditEvent) -> None:
        self.event = event
        self.recorded = False

    @property
    def by(self) -> str:
        return "" if self.event.method == "none" else self.event.user


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of the API demands of each of its transactions; see ``Store.on_behalf_of``.

    ``lease``: the store holds it first, so the change depends on it. ``audited`` and ``receipt`` are written with the
    change. ``traced`` is None if calls are not traced.
    """

    lease: LeaseProof | None = None
    audited: Audited | None = None
    receipt: Receipt | None = None
    traced: TracedCall | None = None


NO_CALL: Final = CallContext()


# The message bus: hints that something is ready. A lost message delays its receiver by a poll interval.


class Channel(StrEnum):
    """The kind of change: a request may be due, a lease may be free, a MAC may now boot, or may no longer boot."""

    REQUESTS = "requests"
    LEASES = "leases"
    ALLOW = "allow"
    DENY = "deny"


# The channels of the PXE filter.
MAC_CHANNELS: Final = (Channel.ALLOW, Channel.DENY)
REQUESTS_OF: Final[dict[Lane | None, str]] = {lane: f"{Channel.REQUESTS} {lane}" for lane in Lane} | {
    None: Channel.REQUESTS
}
"""The channel for the requests of a lane; None: of all lanes."""


class Publisher(Protocol):
    """Where messages go. A message is a channel's name, optionally with details; only a hint.

    One about the requests of a lane advances also the channel of all requests; one about requests without a lane, as
    older releases send, the channels of all lanes.
    """

    def publish(self, message: str) -> None:
        """Wake up all threads that wait for one of the message's channels; never waits for others, never raises."""


class Bus(Publisher, Protocol):
    """A message bus."""

    @property
    def hears(self) -> bool:
        """Whether, as far as is known, messages of other processes are being received."""

    def wait(self, channel: str, seen: int, timeout: float) -> int:
        """Wait until the position of ``channel`` exceeds ``seen``, for at most ``timeout`` seconds.

        Returns the channel's current position, to be passed as ``seen`` next time; begin with 0. To lose no wake-up,
        read the position *before* reading the store.
        """

    def wait_any(self, channels: Sequence[str], seen: int, timeout: float) -> int:
        """Like ``wait``, for several channels; the position is that of all of them together."""

    def close(self) -> None:
        """Stop listening and wake up all waiting threads."""


# The only source of time and of stop requests, so that tests and simulations can control them.


class StopFlag(Protocol):
    """Set once, when the process should stop; implemented by ``threading.Event``."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, for at most ``timeout`` seconds; return whether it is set."""


class Clock(Protocol):
    """``time`` is for display and never compared between hosts; ``monotonic`` measures durations."""

    def time(self) -> float: ...

    def monotonic(self) -> float:
        """Return seconds, including time during which the host is suspended (CLOCK_BOOTTIME)."""


# The maximum number of excluded networks: at most two can occupy half of the slots each.
MOST_WITHOUT: Final = 2


class Take(msgspec.Struct, frozen=True):
    """Which requests to claim: of one lane or of any; with a lane, up to ``MOST_WITHOUT`` networks to exclude."""

    lane: Lane | None = None
    without: tuple[str, ...] = ()


EVERYTHING: Final = Take()


# Coordination services, such as etcd, ZooKeeper or Redis, only give hints on who is alive, sooner than a lease expires.
# The leases in SQL are the only truth about who leads.


class CoordinationUnavailableError(Exception):
    """The coordination service did not answer, or not as it should; the message shows no credentials."""


class CoordinationRefusedError(CoordinationUnavailableError):
    """It answered, and rejected our credentials or rights, or there is no way to ask it."""


class CoordinationService(Protocol):
    """One connection to a coordination service, for one member; used by one thread at a time.

    No locks and no elections of the service are used, because its idea of who holds them may be wrong. What it says
    must never be relied on for safety. All calls end within a few seconds.
    """

    def join(self) -> None:
        """Connect and become one of the members; again after any error. ``CoordinationUnavailableError``."""

    def alive(self) -> frozenset[str]:
        """Prolong our own session, if it has not expired; return the IDs of the members with a session.

        ``CoordinationUnavailableError``.
        """

    def wait(self, timeout: float) -> None:
        """Wait until the members may have changed, for at most ``timeout`` seconds, or until the process stops."""

    def leave(self) -> None:
        """End the session and the connection. Never raises."""
