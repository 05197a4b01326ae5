"""The store: nodes, ports, inspections, requests, data and journal, changed in transactions.

Related changes are written by one ``Store.write``, which is atomic. After it has returned, they are durable, unless it
was told otherwise: they survive the crash of any process and, depending on the database's configuration, of its host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ferroscope.contracts.coordination import ClockSteps, Leases, Members
from ferroscope.contracts.data import Discoveries, InspectionData, Later, Objects, Rejections, SearchIndex
from ferroscope.contracts.events import AuditLog, Outbox
from ferroscope.contracts.receipts import Receipts
from ferroscope.contracts.telemetry import Moved
from ferroscope.core.boot_macs import KnownMac, MacChange
from ferroscope.core.credentials import AccessToken, WebSession
from ferroscope.core.lookup import Candidates, Evidence
from ferroscope.core.model import (
    Chassis,
    Claim,
    Entry,
    Inspection,
    Node,
    Port,
    Portgroup,
    Request,
    Rule,
    RuleDialect,
)
from ferroscope.core.notification import ChangeView
from ferroscope.core.remediation import Remediation
from ferroscope.core.states import Event, Provision, State
from ferroscope.hardware.expectations import Expectation

# Statistics, for display and monitoring.


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The requests for one event on the queue; ``oldest`` is when the first of them was queued."""

    event: Event
    waiting: int
    claimed: int
    oldest: float


class Population(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes are in one state."""

    state: State
    provision_state: Provision
    nodes: int


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes are in which health, at their last inspection; ``failing_drives``: with at least one.

    ``deviating``: with hardware that is not as expected.
    """

    ok: int = 0
    warning: int = 0
    critical: int = 0
    failing_drives: int = 0
    deviating: int = 0


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes have a last inspection that failed for one reason; ``reason`` is its code."""

    reason: str
    nodes: int


class Ended(msgspec.Struct, frozen=True):
    """How many inspections finished and how many failed within an interval."""

    finished: int
    failed: int


class Statistics(Protocol):
    """Counts for display and monitoring only; each is one query."""

    def nodes(self) -> Sequence[Population]:
        """Return the number of nodes in each state, without empty ones."""

    def backlog(self) -> Sequence[Backlog]:
        """Return the requests on the queue by event."""

    def marked(self) -> tuple[int, int]:
        """Return the number of nodes in maintenance, and of those in the inbox."""

    def failures(self) -> Sequence[Failures]:
        """Return the reasons of the failed last inspections of all nodes, the most frequent first."""

    def ended(self, edges: Sequence[float]) -> Sequence[Ended]:
        """Return the inspections that ended within each interval between two of these times, which are ascending.

        It reads all inspections. Those that only processed stored data again are not counted.
        """

    def changed(self, since: float, limit: int) -> tuple[int, Sequence[Inspection]]:
        """Return how many inspections that ended since then found changes of the hardware, and the newest of them."""

    def condition(self) -> Condition:
        """Return how many nodes are in which condition, according to their BMCs and their expectations."""

    def labels(self, project: str | None = None) -> Mapping[tuple[str, str], int]:
        """Return the number of nodes with each label, by key and value; ``project`` as in ``Query``."""

    def shards(self) -> Mapping[str | None, int]:
        """Return the number of nodes in each shard; None: in no shard."""


# Which MACs may boot, for the PXE filter.


class Macs(Protocol):
    """Which MACs may boot, and the changes to that, for the PXE filters.

    Adding, moving or removing a port and removing a node record the changed MACs automatically; a change of a node's
    state calls ``changed``. Both publish on the channels ``allow`` and ``deny``.
    """

    def changed(self, node: str, *, booting: bool) -> None:
        """Record that the node's MACs may boot, or no longer may, from this transaction on."""

    def since(self, seq: int, limit: int) -> Sequence[MacChange]:
        """Return the changes with greater numbers than ``seq``, in order; see ``core.boot_macs.ChangeWindow``."""

    def newest(self, *, node: str | None = None, before: float | None = None) -> int:
        """Return the greatest number: of all changes, of this node's MACs, or from before ``before``; 0 if none."""

    def known(self, *, after: str = "", limit: int = 0, macs: Sequence[str] = ()) -> Sequence[KnownMac]:
        """Return MACs of known nodes, by MAC: those of ``macs``, or the first ``limit`` ones after ``after``."""

    def forget(self, before: float) -> int:
        """Delete changes from before this time, some thousands per call; return their number."""


T = TypeVar("T")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list: filters, order and start.

    ``filters`` maps a field to a value, or to a tuple of alternatives; ``before`` maps a field to an exclusive upper
    limit. ``project`` limits nodes, or ports of nodes, to those that may belong to this project as owner or lessee, and
    ``attributes`` limits nodes to those that may have these texts in ``Node.attributes``, and ``present`` to those that
    may have anything there by these names; for certainty look at the nodes. ``marker`` is the UUID of the previous
    page's last item; an unknown one raises ``NotFoundError``. Items are ordered by ``sort_key``, then by UUID, so that
    pagination is stable.
    """

    filters: dict[str, Any] = {}
    before: dict[str, float] = {}
    project: str | None = None
    attributes: dict[str, str] = {}
    present: tuple[str, ...] = ()
    limit: int | None = None
    marker: str | None = None
    sort_key: str = "created_at"
    descending: bool = False


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of an owner take; ``ports`` includes port groups, ``bytes`` also inspection data."""

    nodes: int = 0
    ports: int = 0
    bytes: int = 0


class Nodes(Protocol):
    """The registry of nodes."""

    def add(self, node: Node) -> None:
        """Store a new node; ``ConflictError`` if its UUID or name is in use."""

    def get(self, ident: str, *, lock: bool = False) -> Node:
        """Return the node with this UUID or name; ``NotFoundError``.

        ``lock`` prevents other transactions from changing it before this one has ended.
        """

    def locked(self, uuid: str) -> tuple[Node, Inspection | None]:
        """Lock the node with this UUID; return it with its current inspection. ``NotFoundError``."""

    def locked_later(self, uuid: str) -> Later[tuple[Node, Inspection | None]]:
        """Lock as ``locked`` does; what is requested after this sees all that was committed before the lock was got."""

    def update(self, node: Node) -> Node:
        """Save all fields and return the node with its new ``version`` and ``updated_at``.

        ``StaleError`` if the stored version is not ``node.version``, ``ConflictError`` if the name is in use;
        ``LostUpdateError`` if this transaction has written the node since it was read.
        """

    def remove(self, uuid: str) -> None:
        """Delete the node and all its data, including BMC addresses; discard its objects."""

    def list(self, query: Query) -> Sequence[Node]:
        """Return one page of nodes."""

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""

    def usage(self, owner: str) -> Usage:
        """Return what the nodes of this owner take, including what this transaction has written.

        Until its end, other transactions that ask for the same wait, unless the owner has had no node before.
        """

    def orphans(self) -> Mapping[str, float | None]:
        """Return ``orphaned_at`` of every node by UUID."""


class Ports(Protocol):
    """The NICs of all nodes."""

    def add(self, ports: Iterable[Port]) -> None:
        """Store new ports; on ``ConflictError`` (field ``address`` or ``uuid``) none is stored."""

    def get(self, ident: str) -> Port:
        """Return the port with this UUID or MAC; ``NotFoundError``."""

    def update(self, port: Port) -> Port:
        """Save all fields and return the port with its new ``updated_at``; ``ConflictError``."""

    def remove(self, uuids: Iterable[str]) -> None:
        """Delete these ports; those that do not exist are ignored."""

    def list(self, query: Query) -> Sequence[Port]:
        """Return one page of ports."""

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""

    def list_later(self, query: Query) -> Later[Sequence[Port]]:
        """Like ``list``, but read later; see ``Later``."""


R = TypeVar("R", Chassis, Portgroup)


class Records(Protocol[R]):
    """The chassis, or the port groups of all nodes: resources that nothing here interprets."""

    def add(self, record: R) -> None:
        """Store a new record; ``ConflictError`` if its UUID, name or address is in use."""

    def get(self, ident: str, *, lock: bool = False) -> R:
        """Return the record with this UUID or name; ``NotFoundError``.

        ``lock`` prevents other transactions from changing it before this one has ended.
        """

    def update(self, record: R) -> R:
        """Save all fields and return the record with its new ``updated_at``; ``NotFoundError``, ``ConflictError``."""

    def remove(self, uuid: str) -> None:
        """Delete the record, if it exists."""

    def list(self, query: Query) -> Sequence[R]:
        """Return one page of records."""

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""


class Inspections(Protocol):
    """Every inspection of every node."""

    def add(self, inspection: Inspection) -> None: ...

    def get(self, uuid: str) -> Inspection:
        """Return the inspection; ``NotFoundError``."""

    def update(self, uuid: str, **changes: Any) -> None:
        """Set these fields of the inspection, if it exists."""

    def remove(self, uuids: Iterable[str]) -> None:
        """Delete these inspections with their data and journal; those that do not exist are ignored.

        None of them may be the current one of its node, unless the same transaction changes that.
        """

    def remove_ended(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` inspections that ended before this time, oldest first.

        Their data and journal are deleted too, and their objects discarded. A node's newest inspection and its newest
        finished one are kept. Returns the number of deleted inspections.
        """

    def remove_surplus(self, number: int, limit: int) -> int:
        """Delete up to ``limit`` ended inspections of nodes that have more than ``number`` newer ones.

        What is deleted with them, and which are always kept, is the same as for ``remove_ended``.
        """

    def list(self, query: Query) -> Sequence[Inspection]: ...

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""


class Requests(Protocol):
    """The operations on the queue within a transaction; ``contracts.queue`` claims requests."""

    def put(self, request: Request, *, instead_of: Claim | None = None) -> Claim | None:
        """Put a request on the queue, if and when the transaction commits.

        With ``instead_of`` it replaces the claimed request and stays claimed, as a first attempt: the returned claim
        replaces the old one. ``ClaimLostError`` as in ``hold``.
        """

    def hold(self, claim: Claim, *, begun: bool = False, progress: dict[str, Any] | None = None) -> None:
        """Fence: check the claim, and prevent any other claim before the end of this transaction.

        It *writes* the request's row; with a mere read, a new claim could be committed in between. ``begun`` and
        ``progress`` are saved on the request. ``ClaimLostError`` if this attempt's claim is no longer held: then write
        nothing.
        """

    def consume(self, claim: Claim) -> None:
        """Remove the request from the queue and unlock its node; ``ClaimLostError`` as in ``hold``."""

    def retry(self, claim: Claim, after: float, *, counted: bool = True) -> None:
        """Release the claim, so that the request is delivered again in ``after`` seconds; ``ClaimLostError``.

        An attempt that is not ``counted`` (the process is stopping) does not use up one of the request's attempts.
        """

    def pending(self, node: str) -> Sequence[Request]:
        """Return the requests of the node, oldest first, claimed or not."""

    def pending_later(self, node: str) -> Later[Sequence[Request]]:
        """Like ``pending``, but read later; see ``Later``."""


class Journal(Protocol):
    """The event journal: append-only; entries are deleted with their node or inspection, or by age."""

    def append(self, entries: Iterable[Entry]) -> None:
        """Append these entries in order, with the transaction's time."""

    def list(self, query: Query) -> Sequence[Entry]:
        """Return one page, filtered by ``node``, ``inspection``, ``uuid`` or ``severity``, by ``id``."""

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""

    def remove_old(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` entries without inspection from before this time; return their number.

        It scans the whole journal, so do not call it every second.
        """


class Addresses(Protocol):
    """The indexes that identify a machine that calls back."""

    def candidates(self, evidence: Evidence, secret: str | None = None) -> Candidates:
        """Return the nodes that match, in a constant number of indexed queries.

        ``secret``: the one that the machine presented. ``same`` and ``different`` of the result are left to the caller.
        """

    def set_bmc(self, node: str, addresses: Iterable[str]) -> None:
        """Replace the BMC addresses of the node."""

    def bmc_of(self, node: str) -> Sequence[str]:
        """Return the BMC addresses of the node."""

    def owners(self, bmc_addresses: Sequence[str]) -> Sequence[Node]:
        """Return the nodes with one of these BMC addresses, whatever their state."""

    def sharing(self, nodes: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return, for each of these nodes that has any, the other nodes with one of its BMC addresses."""

    def called(self, node: str, source: str) -> None:
        """Record that the node's machine has just called from this address."""

    def callers(self, source: str) -> Sequence[Node]:
        """Return the nodes that wait for a callback and whose machines have called from this address before."""


class SecretKeys(Protocol):
    """The IDs of the keys that have encrypted secrets of nodes, recorded by the first write with each key."""

    def used(self) -> Sequence[str]: ...

    def forget(self, idents: Iterable[str]) -> None:
        """Remove keys with which nothing is encrypted any more."""


class AccessTokens(Protocol):
    """The access tokens that this service issues."""

    def add(self, token: AccessToken) -> None:
        """Store a new token; ``ConflictError`` if an active one has its name (field ``name``) or any one its ID."""

    def active(self) -> Sequence[AccessToken]:
        """Return the tokens that are neither revoked nor expired."""

    def list(self) -> Sequence[AccessToken]:
        """Return all tokens, oldest first."""

    def revoke(self, ident: str) -> bool:
        """Revoke the token with this ID; return False if it does not exist or is revoked already."""

    def used(self, ident: str, before: float) -> None:
        """Set ``last_used_at`` to now, unless it is ``before`` or later."""

    def remove_ended(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` tokens that expired or were revoked before this time; return their number."""


class Remediations(Protocol):
    """What the failed-node controller does and has done, by cluster."""

    def save(self, remediation: Remediation) -> None:
        """Add or update it; ``ConflictError`` if another one of the same node is in progress."""

    def active(self, cluster: str) -> Sequence[Remediation]:
        """Return those in progress, oldest first."""

    def elsewhere(self, cluster: str) -> Sequence[Remediation]:
        """Return those in progress in all other clusters, oldest first."""

    def newest(self, cluster: str, limit: int) -> Sequence[Remediation]:
        """Return the newest ones, newest first."""

    def remove_ended(self, before: float) -> int:
        """Delete those that ended before this time; return their number."""


class WebSessions(Protocol):
    """The sessions of browsers that have logged in to the web page."""

    def add(self, session: WebSession) -> None:
        """Store a new session; its ID is random."""

    def get(self, ident: str) -> WebSession | None:
        """Return the session with this ID, None if there is none or it has expired."""

    def remove(self, ident: str) -> None:
        """Delete the session, if it exists."""

    def remove_oldest(self, user: str, kept: int) -> int:
        """Delete the sessions of this user except the newest ``kept``; return their number."""

    def remove_ended(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` sessions that expired before this time; return their number."""


class Transaction(Protocol):
    """One unit of work; ``now`` is the database's clock, in seconds since the epoch."""

    def moved(self, moved: Moved) -> None:
        """Report this transition of a node if and when the transaction commits."""

    def hardware_changed(self, changes: Sequence[ChangeView]) -> None:
        """Report these differences from the previous inspection if and when the transaction commits."""

    @property
    def now(self) -> float: ...
    @property
    def nodes(self) -> Nodes: ...
    @property
    def ports(self) -> Ports: ...
    @property
    def chassis(self) -> Records[Chassis]: ...
    @property
    def portgroups(self) -> Records[Portgroup]: ...
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
    def expectations(self) -> Expectations: ...
    @property
    def secret_keys(self) -> SecretKeys: ...
    @property
    def audit(self) -> AuditLog: ...

    @property
    def receipts(self) -> Receipts: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def macs(self) -> Macs: ...
    @property
    def access_tokens(self) -> AccessTokens: ...
    @property
    def remediations(self) -> Remediations: ...
    @property
    def web_sessions(self) -> WebSessions: ...


# The first call in a transaction under a lease; ``LeaseLostError`` if the lease was lost.
Fence = Callable[[Transaction], None]


class StepLeadership(Protocol):
    """The leadership under which a step of a periodic task runs.

    A step must call one of these methods at least once per time to live of the lease, and must end at once if that
    raises ``LeaseLostError``.
    """

    def fence(self, tx: Transaction) -> None:
        """Call at the start of every transaction that writes; ``LeaseLostError`` if the lease was lost."""

    def keep_alive(self) -> None:
        """Report progress; call it for each page, batch and remote call."""


class Store(Protocol):
    """Runs units of work. Both calls raise ``StoreUnavailableError`` if the store is unavailable.

    Nothing was changed then, except if it is an ``OutcomeUnknownError``. That is raised where the answer to COMMIT was
    lost; under a ``receipts.RECEIPT`` only if it could not be found out what became of it.

    Writes may be sent to the store only with the next read, or at the end of the unit of work. So their errors are
    raised then, not by the call that writes; they always abort the unit of work.
    """

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction and commit it; any exception rolls it back.

        ``work`` may be retried from its start (deadlock, serialization failure, lock timeout), so it must not have side
        effects outside the transaction. With ``durable=False`` the commit may be lost if the database crashes (its host
        loses power, or on PostgreSQL its server is killed), but never if a process of ours dies: for claims, heartbeats
        and steps whose loss only repeats work. What others act on as soon as they see it is durable.
        """

    def read(self, work: Callable[[Transaction], T], *, snapshot: bool = True) -> T:
        """Run ``work``, which must not write, on a consistent snapshot.

        Without ``snapshot`` there is no transaction: each statement sees what is committed when it is executed. This
        saves a round trip if ``work`` needs only one.
        """


# The inspection rules; part of ``contracts.store.Transaction``.
#
# Workers compare the revision, with one small query, to see whether their compiled rules are outdated.


class Rules(Protocol):
    """The rules that were created through an API; those of the configuration are not stored."""

    def add(self, rule: Rule) -> None:
        """Store a new rule; ``ConflictError`` if its UUID is in use."""

    def get(self, uuid: str) -> Rule:
        """Return the rule; ``NotFoundError``."""

    def update(self, rule: Rule) -> Rule:
        """Save all fields and return the rule with its new ``updated_at``; ``NotFoundError``."""

    def remove(self, uuid: str) -> None:
        """Delete the rule; ``NotFoundError``."""

    def remove_all(self, dialect: RuleDialect | None = None) -> int:
        """Delete all rules, or those of one dialect; return their number."""

    def list(self, query: Query) -> Sequence[Rule]:
        """Return one page of rules."""

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""

    def revision(self) -> int:
        """Return the revision, which every change of any rule increases."""


class Expectations(Protocol):
    """What hardware is expected of which nodes; changes increase the revision of the rules."""

    def list(self) -> Sequence[Expectation]:
        """Return all, in their order."""

    def replace(self, expectations: Sequence[Expectation]) -> None:
        """Store these instead of all others; their names are different."""
