"""One unit of work: the repositories through which a caller reads and writes, each in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, Final, Generic, TypeVar

from ferroscope.contracts.calls import Audited
from ferroscope.contracts.errors import LeaseLostError, StaleLeaseError
from ferroscope.core.model import LeaseProof
from ferroscope.db.addresses import Addresses
from ferroscope.db.cabling import Cabling
from ferroscope.db.clock_steps import ClockSteps
from ferroscope.db.counted_ahead import CountedAhead
from ferroscope.db.credentials import AccessTokens, WebSessions
from ferroscope.db.data import InspectionData, Objects
from ferroscope.db.events import AuditLog, Outbox, record
from ferroscope.db.failover_nodes import FailoverNodes
from ferroscope.db.inspections import Inspections, Journal
from ferroscope.db.leases import Leases
from ferroscope.db.macs import Discoveries, Macs, Rejections
from ferroscope.db.members import Members
from ferroscope.db.nodes import Nodes
from ferroscope.db.ports import Ports
from ferroscope.db.ranking import Ranking
from ferroscope.db.receipts import Receipts
from ferroscope.db.records import ChassisRecords, Portgroups, Remediations
from ferroscope.db.refused_callers import RefusedCallers
from ferroscope.db.replication import GALERA
from ferroscope.db.requests import Requests
from ferroscope.db.rules import Expectations, Rules
from ferroscope.db.saved_searches import SavedSearches
from ferroscope.db.search import SearchIndex
from ferroscope.db.secrets import SecretKeys
from ferroscope.db.session import Session
from ferroscope.db.statistics import Statistics

R = TypeVar("R")


class Repository(Generic[R]):
    """A repository, built when it is first used; a transaction has one thread, so there is nothing to lock."""

    def __init__(self, build: Callable[[Any], R]) -> None:
        self._build = build

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, transaction: Transaction, owner: type) -> R:
        # An attribute of the object comes first, so this is called once.
        built = transaction.__dict__[self._name] = self._build(transaction)
        return built


class Transaction(Session):
    """One unit of work; ``now`` is the database's clock, in seconds since the epoch."""

    nodes = Repository(Nodes)
    ports = Repository(Ports)
    chassis = Repository(ChassisRecords)
    portgroups = Repository(Portgroups)
    inspections = Repository(Inspections)
    requests = Repository(Requests)
    data = Repository(InspectionData)
    objects = Repository(Objects)
    search_index = Repository(SearchIndex)
    ranking = Repository(Ranking)
    cabling = Repository(Cabling)
    journal = Repository(Journal)
    addresses = Repository(Addresses)
    leases = Repository(Leases)
    members = Repository(Members)
    clock_steps = Repository(ClockSteps)
    macs = Repository(Macs)
    discoveries = Repository(Discoveries)
    rejections = Repository(Rejections)
    refused_callers = Repository(RefusedCallers)
    statistics = Repository(Statistics)
    counted_ahead = Repository(CountedAhead)
    rules = Repository(Rules)
    expectations = Repository(Expectations)
    secret_keys = Repository(SecretKeys)
    access_tokens = Repository(AccessTokens)
    audit = Repository(AuditLog)
    outbox = Repository(Outbox)
    receipts = Repository(Receipts)
    remediations = Repository(Remediations)
    failover_nodes = Repository(FailoverNodes)
    web_sessions = Repository(WebSessions)
    saved_searches = Repository(SavedSearches)

    used: Set[str] = frozenset()  # the repositories that were used, once it is closed

    def close(self) -> None:
        """Drop the repositories: they refer back to this object, and the cycle would wait for the garbage collector."""
        present = vars(self)
        self.used = _REPOSITORIES & present.keys()
        for name in self.used:
            del present[name]

    def write_rest(self) -> None:
        """Buffer the statements that are written together at the end."""
        if "journal" in vars(self):
            self.journal.write()
        if "nodes" in vars(self) and GALERA in self._connection.info:
            self.nodes.write_locked()

    def require(self, proof: LeaseProof) -> None:
        """Hold a lease that the caller requires; ``StaleLeaseError``."""
        try:
            self.leases.hold(proof)
        except LeaseLostError as exc:
            raise StaleLeaseError(proof.name, proof.epoch) from exc

    def write_audit(self, audited: Audited) -> None:
        """Buffer the statement for the event of the API call that makes this change."""
        record(self, self.audit, audited, self.nodes.changed if "nodes" in vars(self) else set())


_REPOSITORIES: Final = {name for name, value in vars(Transaction).items() if isinstance(value, Repository)}


# The first call in a transaction under a lease; ``LeaseLostError`` if the lease was lost.
Fence = Callable[[Transaction], None]
