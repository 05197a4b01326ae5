"""The store: nodes, ports, inspections, requests, data and journal, changed in transactions.

Everything that belongs together is written by one ``Store.write``, which commits all of it or
nothing. A write that returned is durable: it survives the death of any process and, where the
database is configured so, of its host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from ferroscope.contracts.coordination import ClockSteps, Leases, Members
from ferroscope.contracts.data import Discoveries, InspectionData, Objects, Rejections, SearchIndex
from ferroscope.contracts.later import Later
from ferroscope.contracts.metrics import Moved
from ferroscope.core.boot_macs import KnownMac, MacChange
from ferroscope.core.lookup import Candidates, Evidence
from ferroscope.core.model import Claim, Entry, Inspection, Node, Port, Request, Rule, RuleDialect
from ferroscope.core.states import Event, Provision, State

# Counts for people and monitoring.


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


class Statistics(Protocol):
    """Counts over everything, for people and monitoring: each is one query, and decides nothing."""

    def nodes(self) -> Sequence[Population]:
        """Return how many nodes are in each state in which there are any."""

    def backlog(self) -> Sequence[Backlog]:
        """Return what is on the queue, by event."""


# Which MACs may boot: the store's side of the PXE filter.


class Macs(Protocol):
    """Which MACs may boot, and what was changed about that: what a PXE filter needs of nodes and ports.

    Whatever adds, moves or removes a port, or removes a node, notes the MACs by itself; who changes
    a node's state calls ``changed``. Both tell the channels ``allow`` and ``deny``.
    """

    def changed(self, node: str, *, booting: bool) -> None:
        """Note that from this transaction on the node's MACs may boot, or may not."""

    def since(self, seq: int, limit: int) -> Sequence[MacChange]:
        """Return changes with greater numbers, in their order; see ``core.boot_macs.ChangeWindow``."""

    def newest(self, *, node: str | None = None, before: float | None = None) -> int:
        """Return the greatest number, of this node's MACs only, or of what is older than ``before``; else 0."""

    def known(self, *, after: str = "", limit: int = 0, macs: Sequence[str] = ()) -> Sequence[KnownMac]:
        """Return the MACs of known nodes: these ``macs``, or the next ``limit`` ones, by MAC."""

    def forget(self, before: float) -> int:
        """Delete changes that are older, some thousands at a time; return how many went."""


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

    def locked(self, uuid: str) -> tuple[Node, Inspection | None]:
        """Return the node of this UUID, locked, with its present inspection; ``NotFoundError``."""

    def update(self, node: Node) -> Node:
        """Save all fields and return the node with its new ``version`` and ``updated_at``.

        ``StaleError`` where the stored version is not ``node.version``, ``ConflictError``
        where the name is taken.
        """

    def remove(self, uuid: str) -> None:
        """Delete the node and all that belongs to it, its BMC addresses too; discard its objects."""

    def list(self, query: Query) -> Sequence[Node]:
        """Return one page of nodes."""

    def orphans(self) -> Mapping[str, float | None]:
        """Return ``orphaned_at`` of every node, by its UUID."""


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

    def list_later(self, query: Query) -> Later[Sequence[Port]]:
        """Ask for it; see ``contracts.later``."""


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
    """The queue's side of a transaction; ``contracts.queue`` is its other side."""

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

    def pending_later(self, node: str) -> Later[Sequence[Request]]:
        """Ask for them; see ``contracts.later``."""


class Journal(Protocol):
    """The event journal: append only, except that it goes with its node, with its inspection, or by age."""

    def append(self, entries: Iterable[Entry]) -> None:
        """Note these steps with the transaction's time, in order."""

    def list(self, query: Query) -> Sequence[Entry]:
        """Return one page, filtered by ``node``, ``inspection``, ``uuid`` or ``severity``, by ``id``."""

    def remove_old(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` entries from before this time that belong to no inspection; how many went.

        It looks at the whole journal: not for every second.
        """


class Addresses(Protocol):
    """The indexes by which a machine that calls back is found."""

    def candidates(self, evidence: Evidence) -> Candidates:
        """Return the nodes that match, in a constant number of indexed queries."""

    def set_bmc(self, node: str, addresses: Iterable[str]) -> None:
        """Replace the BMC addresses of the node."""

    def bmc_of(self, node: str) -> Sequence[str]:
        """Return the BMC addresses of the node."""

    def owners(self, bmc_addresses: Sequence[str]) -> Sequence[Node]:
        """Return the nodes with one of these BMC addresses, whatever their state."""

    def called(self, node: str, source: str) -> None:
        """Note that the node's machine has called from this address, now."""

    def callers(self, source: str) -> Sequence[Node]:
        """Return the nodes that wait for a callback, and whose machines have called from this address before."""


class Transaction(Protocol):
    """One unit of work; ``now`` is the database's clock, in seconds since the epoch."""

    def moved(self, moved: Moved) -> None:
        """Tell of this transition of a node when, and only when, the transaction commits."""

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
    def search_index(self) -> SearchIndex: ...
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
    def clock_steps(self) -> ClockSteps: ...
    @property
    def statistics(self) -> Statistics: ...
    @property
    def rules(self) -> Rules: ...
    @property
    def macs(self) -> Macs: ...


Fence = Callable[[Transaction], None]


class StepLeadership(Protocol):
    """What a periodic task's step is given: its leadership, for as long as it shows signs of life.

    Whatever else a step does, it has to do one of these at least once in a lease's time to live, and it ends
    at once where that raises ``LeaseLostError``.
    """

    def fence(self, tx: Transaction) -> None:
        """Begin every transaction that writes with this: nothing is written under a lease that has passed on."""

    def keep_alive(self) -> None:
        """Say that the step goes on: at each page, batch and remote call."""


"""What a transaction under a lease begins with: it raises where the lease is somebody else's by now."""


class Store(Protocol):
    """Runs units of work. Both calls raise ``StoreUnavailableError`` when the store cannot answer.

    What a unit of work writes may go to the store only when it next reads, or at its end: then, and not where the
    write stands, are its errors raised. They end the unit of work in any case.
    """

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction and commit it; any exception rolls all of it back.

        ``work`` may be run again from its start (deadlock, serialization failure, a lock that was
        busy), so it must have no effect but on the transaction. ``durable=False`` allows the
        commit to be lost if the *host* loses power (never if a process dies): for claims and
        notes whose loss only repeats work.
        """

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work``, which must not write, on a consistent view."""


# The inspection rules in the store; part of ``contracts.store.Transaction``.
#
# The revision tells a worker that what it has compiled is old, for the price of one small query.

if TYPE_CHECKING:
    pass


class Rules(Protocol):
    """Every rule that was made through an API; those of the configuration are not stored."""

    def add(self, rule: Rule) -> None:
        """Store a new rule; ``ConflictError`` where its uuid is taken."""

    def get(self, uuid: str) -> Rule:
        """``NotFoundError`` where there is none."""

    def update(self, rule: Rule) -> Rule:
        """Save all fields and return the rule with its new ``updated_at``; ``NotFoundError``."""

    def remove(self, uuid: str) -> None:
        """Delete the rule; ``NotFoundError``."""

    def remove_all(self, dialect: RuleDialect | None = None) -> int:
        """Delete all rules, or those of one dialect; return how many."""

    def list(self, query: Query) -> Sequence[Rule]:
        """Return one page of rules."""

    def revision(self) -> int:
        """Return a number that grows whenever any rule is added, changed or removed."""
