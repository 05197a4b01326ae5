"""The store: nodes, ports, inspections, requests, data and journal, changed in transactions.

Everything that belongs together is written by one ``Store.write``, which commits all of it or
nothing. A write that returned is durable: it survives the death of any process and, where the
database is configured so, of its host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from ferroscope.domain import search
from ferroscope.domain.discovery import Rejection
from ferroscope.domain.facts import Fact
from ferroscope.domain.gate import KnownMac, MacChange
from ferroscope.domain.lease import Lease
from ferroscope.domain.lookup import Candidates, Evidence
from ferroscope.domain.model import Claim, Entry, Inspection, Member, Node, Port, Request
from ferroscope.domain.provision import Provision
from ferroscope.domain.states import Event, State, Transition
from ferroscope.ports.rules import Rules

T = TypeVar("T")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list: filters, order, and where the page begins.

    ``filters`` maps a field to a value, or to a tuple of which one must match; ``before`` maps a
    field to a number that it must be below. ``marker`` is the UUID of the last item of the page
    before; an unknown one raises ``NotFoundError``. Order is by ``sort_key``, then by UUID, so
    that paging is stable.
    """

    filters: dict[str, Any] = {}
    before: dict[str, float] = {}
    limit: int | None = None
    marker: str | None = None
    sort_key: str = "created_at"
    descending: bool = False


class Nodes(Protocol):
    """The registry of nodes."""

    def add(self, node: Node) -> None:
        """Store a new node; ``ConflictError`` where its uuid or name is taken."""

    def get(self, ident: str, *, lock: bool = False) -> Node:
        """Return the node with this UUID or name; ``NotFoundError``.

        With ``lock`` nobody else may change it before this transaction ends.
        """

    def update(self, node: Node) -> Node:
        """Save all fields and return the node with its new ``version`` and ``updated_at``.

        ``StaleError`` where the stored version is not ``node.version``, ``ConflictError``
        where the name is taken.
        """

    def remove(self, uuid: str) -> None:
        """Delete the node and all that belongs to it, its BMC addresses too; discard its objects."""

    def list(self, query: Query) -> Sequence[Node]:
        """Return one page of nodes."""


class Ports(Protocol):
    """The NICs of all nodes."""

    def add(self, ports: Iterable[Port]) -> None:
        """Store new ports; ``ConflictError`` (field ``address`` or ``uuid``), then none is stored."""

    def get(self, ident: str) -> Port:
        """Return the port with this UUID or MAC; ``NotFoundError``."""

    def update(self, port: Port) -> Port:
        """Save all fields and return the port with its new ``updated_at``; ``ConflictError``."""

    def remove(self, uuids: Iterable[str]) -> None:
        """Delete these ports; those that do not exist are ignored."""

    def list(self, query: Query) -> Sequence[Port]:
        """Return one page of ports."""


class Inspections(Protocol):
    """Every inspection of every node."""

    def add(self, inspection: Inspection) -> None: ...

    def get(self, uuid: str) -> Inspection:
        """``NotFoundError`` where there is none."""

    def update(self, uuid: str, **changes: Any) -> None:
        """Set these fields of the inspection, if there is one."""

    def remove_ended(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` inspections that ended before this time, oldest first.

        Their data and journal go too, their objects are discarded. A node's newest inspection
        stays, and so does the newest that finished. Returns how many went.
        """

    def remove_surplus(self, number: int, limit: int) -> int:
        """Delete up to ``limit`` ended inspections of nodes that have more than ``number`` newer ones.

        What goes with them, and which stay in any case, is as of ``remove_ended``.
        """

    def list(self, query: Query) -> Sequence[Inspection]: ...


class Requests(Protocol):
    """The queue's side of a transaction; ``ports.queue`` is its other side."""

    def put(self, request: Request, *, instead_of: Claim | None = None) -> Claim | None:
        """Put a request on the queue; it is there when, and only when, the transaction commits.

        With ``instead_of`` the claimed request turns into this one, still claimed and as its
        first attempt: the returned claim replaces the old one. ``ClaimLostError`` as in ``hold``.
        """

    def hold(self, claim: Claim, *, begun: bool = False, progress: dict[str, Any] | None = None) -> None:
        """Fence: from here to the end of the transaction the claim is mine, and nobody can take it.

        It *writes* the request's row (reading would not keep a new claim from being committed in
        between). ``begun`` and ``progress`` are noted on the request. ``ClaimLostError`` where the
        claim, this attempt of it, is not mine any more: then nothing may be written.
        """

    def consume(self, claim: Claim) -> None:
        """Take the request off the queue and free its node; ``ClaimLostError`` as in ``hold``."""

    def retry(self, claim: Claim, after: float, *, counted: bool = True) -> None:
        """Give the request back, to be delivered in ``after`` seconds; ``ClaimLostError``.

        An attempt that is not ``counted`` (the process was asked to stop) does not bring the
        request nearer to its last one.
        """

    def pending(self, node: str) -> Sequence[Request]:
        """Return the requests of the node, oldest first, claimed or not."""


Part = Literal["inventory", "unprocessed", "plugin_data"]


class InspectionData(Protocol):
    """What the ramdisk sent and what hooks made of it, as JSON bytes, one of each per inspection.

    ``inventory`` is never changed; ``unprocessed`` is everything else that came with it;
    ``plugin_data`` is that after the hooks.
    """

    def save(self, inspection: str, node: str, parts: dict[Part, bytes]) -> None:
        """Store or replace these parts."""

    def load(self, inspection: str, parts: Sequence[Part]) -> dict[Part, bytes]:
        """Return those of the parts that are stored here; ``objects`` knows of those elsewhere."""

    def held(self, limit: int, *, after: tuple[str, str] = ("", "")) -> Sequence[Held]:
        """Return parts of inspections that have ended, in the order of (inspection, part), from there on."""

    def of_node(self, node: str) -> Sequence[Held]:
        """Return every part of the node that is stored here, without their content."""

    def drop(self, held: Held) -> bool:
        """Delete this part if it is still the one that was read; whether it was."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an inspection's data in the database; ``at`` tells this content from a later one."""

    inspection: str
    part: Part
    node: str
    at: float


ObjectState = Literal["uploading", "stored", "discarded"]


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an inspection's data as an object of ``backend``, under a key that is used once only.

    ``size`` is that of the object, in bytes; ``at`` is when it came into its state.
    """

    key: str
    backend: str
    inspection: str
    node: str
    part: Part
    state: ObjectState = "uploading"
    size: int = 0
    at: float = 0.0


class Objects(Protocol):
    """What is, or may be, in the object stores. Whoever uploads writes so before, so nothing is forgotten there.

    ``uploading`` becomes ``stored`` or ``discarded``, ``stored`` becomes ``discarded``; a discarded
    object is deleted there, and only then forgotten here.
    """

    def add(self, objects: Iterable[StoredObject]) -> None:
        """Note that these are about to be uploaded."""

    def keep(self, key: str) -> bool:
        """Let an uploading object be stored; False where it was discarded meanwhile."""

    def find(self, inspection: str, parts: Sequence[Part]) -> Sequence[StoredObject]:
        """Return the stored objects of these parts."""

    def of_node(self, node: str) -> Sequence[StoredObject]:
        """Return the stored objects of all the node's inspections."""

    def discard(self, inspection: str, parts: Sequence[Part]) -> None:
        """Discard the stored objects of these parts: there is newer data, or none is wanted."""

    def discard_keys(self, keys: Iterable[str]) -> None:
        """Discard these objects, whatever their state."""

    def give_up(self, before: float) -> int:
        """Discard what has been uploading since before this time; return how many these were."""

    def forget(self, keys: Iterable[str]) -> None:
        """Forget discarded objects that are deleted."""

    def list(self, state: ObjectState, limit: int, *, backend: str = "", after: str = "") -> Sequence[StoredObject]:
        """Return objects in this state (of this backend only, unless empty), by key, from there on."""


class Match(msgspec.Struct, frozen=True):
    """A node that a search found."""

    uuid: str
    name: str | None


class Facts(Protocol):
    """What searches look at: rows of each node, written with the results that they are derived from."""

    def replace(self, node: str, facts: Sequence[Fact], *, had: bool) -> None:
        """Store these rows instead of the node's; ``had``: whether it may have any."""

    def of(self, node: str) -> Sequence[Fact]:
        """Return the node's rows, by kind and position."""

    def search(self, query: search.Query, limit: int, *, after: str = "") -> Sequence[Match]:
        """Return nodes that have facts for which the query holds, by UUID, from there on.

        What the query means is ``domain.search.matches``; every adapter agrees with it.
        """

    def some(self, nodes: Sequence[str], kinds: Sequence[str]) -> dict[str, list[Fact]]:
        """Return the rows of these kinds of each of these nodes that has any."""


class Journal(Protocol):
    """The event journal: append only, except that it goes when its node goes."""

    def append(self, entries: Iterable[Entry]) -> None:
        """Note these steps with the transaction's time, in order."""

    def list(self, query: Query) -> Sequence[Entry]:
        """Return one page, filtered by ``node``, ``inspection``, ``uuid`` or ``severity``, by ``id``."""


class Addresses(Protocol):
    """The indexes by which a machine that calls back is found."""

    def candidates(self, evidence: Evidence) -> Candidates:
        """Return the nodes that match, in a constant number of indexed queries."""

    def set_bmc(self, node: str, addresses: Iterable[str]) -> None:
        """Replace the BMC addresses of the node."""


class Discoveries(Protocol):
    """Machines that became nodes by calling; whoever makes one asks ``made`` first."""

    def made(self, period: int) -> int:
        """Return how many were made in this period, counted from 0 in each.

        From here to the end of the transaction nobody else can make one. ``ConflictError`` where
        somebody did at this very moment: look again, in a new transaction.
        """

    def add(self, node: str, addresses: Iterable[str]) -> None:
        """Count one, and let these MACs mean this node where no port has them.

        ``ConflictError`` (field ``address``) where one of them means a discovered node already.
        """

    def unclaimed(self) -> int:
        """Return how many discovered nodes are still in ``enroll``, approved or not."""

    def macs(self, node: str) -> Sequence[str]:
        """Return the MACs with which the node was discovered."""


class Rejections(Protocol):
    """The MACs of machines that shall not be discovered again."""

    def add(self, node: str, addresses: Iterable[str]) -> None:
        """Note these MACs as rejected now."""

    def find(self, addresses: Sequence[str]) -> Sequence[Rejection]:
        """Return those of these MACs that were rejected, the newest first."""

    def list(self) -> Sequence[Rejection]:
        """Return all, the newest first."""

    def remove(self, address: str) -> bool:
        """Forget this one; whether there was one."""

    def forget(self, before: float) -> None:
        """Forget what was rejected before this time."""


class Leases(Protocol):
    """Named rights of one holder at a time; time is the database's."""

    def acquire(self, name: str, holder: str, duration: float, *, data: str = "") -> Lease:
        """Take the lease where it is free or expired: a new epoch, a new term.

        ``LeaseHeldError`` where somebody, the same holder too, has it.
        """

    def renew(self, lease: Lease, duration: float, *, data: str | None = None) -> Lease:
        """Extend the lease from now on, also after it expired while nobody else took it.

        ``LeaseLostError`` unless epoch and term are those of ``lease``.
        """

    def release(self, lease: Lease) -> None:
        """Free the lease, so that a successor need not wait; ``LeaseLostError``."""

    def hold(self, lease: Lease) -> None:
        """Fence: from here to the end of the transaction no newer epoch can be issued.

        It *writes* the lease's row; a leader's transaction begins with this. ``LeaseLostError``.
        """

    def list(self, prefix: str = "") -> Sequence[Lease]:
        """Return the leases whose name begins with ``prefix``, free ones too, by name."""


class Members(Protocol):
    """The party: every running process."""

    def beat(self, member: Member, ttl: float) -> None:
        """Announce the member, alive for another ``ttl`` seconds of the database's clock."""

    def leave(self, ident: str) -> None:
        """Forget the member; whatever it held is free at once."""

    def list(self) -> Sequence[Member]:
        """Return all members, dead ones too until they are swept."""


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one event on the queue; ``oldest`` is when the first of them was put there."""

    event: Event
    waiting: int
    claimed: int
    oldest: float


class Population(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes are in one state."""

    state: State
    provision_state: Provision
    nodes: int


class Figures(Protocol):
    """Counts over everything, for people and monitoring: each is one query, and decides nothing."""

    def nodes(self) -> Sequence[Population]:
        """Return how many nodes are in each state in which there are any."""

    def backlog(self) -> Sequence[Backlog]:
        """Return what is on the queue, by event."""


class Macs(Protocol):
    """Which MACs may boot, and what was changed about that: what a PXE gate needs of nodes and ports.

    Whatever adds, moves or removes a port, or removes a node, notes the MACs by itself; who changes
    a node's state calls ``changed``. Both tell the channels ``allow`` and ``deny``.
    """

    def changed(self, node: str, *, booting: bool) -> None:
        """Note that from this transaction on the node's MACs may boot, or may not."""

    def since(self, seq: int, limit: int) -> Sequence[MacChange]:
        """Return changes with greater numbers, in their order; see ``domain.gate.ChangeWindow``."""

    def newest(self, *, node: str | None = None, before: float | None = None) -> int:
        """Return the greatest number, of this node's MACs only, or of what is older than ``before``; else 0."""

    def known(self, *, after: str = "", limit: int = 0, macs: Sequence[str] = ()) -> Sequence[KnownMac]:
        """Return the MACs of known nodes: these ``macs``, or the next ``limit`` ones, by MAC."""

    def forget(self, before: float) -> int:
        """Delete changes that are older, some thousands at a time; return how many went."""


class Transaction(Protocol):
    """One unit of work; ``now`` is the database's clock, in seconds since the epoch."""

    def moved(self, transition: Transition) -> None:
        """Count this transition of a node when, and only when, the transaction commits."""

    @property
    def now(self) -> float: ...
    @property
    def nodes(self) -> Nodes: ...
    @property
    def ports(self) -> Ports: ...
    @property
    def inspections(self) -> Inspections: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def data(self) -> InspectionData: ...
    @property
    def objects(self) -> Objects: ...
    @property
    def facts(self) -> Facts: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def addresses(self) -> Addresses: ...
    @property
    def discoveries(self) -> Discoveries: ...
    @property
    def rejections(self) -> Rejections: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def members(self) -> Members: ...
    @property
    def figures(self) -> Figures: ...
    @property
    def rules(self) -> Rules: ...
    @property
    def macs(self) -> Macs: ...


class Store(Protocol):
    """Runs units of work. Both calls raise ``StoreUnavailableError`` when the store cannot answer."""

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction and commit it; any exception rolls all of it back.

        ``work`` may be run again from its start (deadlock, serialization failure, a lock that was
        busy), so it must have no effect but on the transaction. ``durable=False`` allows the
        commit to be lost if the *host* loses power (never if a process dies): for claims and
        notes whose loss only repeats work.
        """

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work``, which must not write, on a consistent view."""
