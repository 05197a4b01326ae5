"""One unit of work: the repositories through which a caller reads and writes, each in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import cached_property
from typing import Final

from ferroscope.contracts.errors import LeaseLostError, StaleLeaseError
from ferroscope.contracts.events import Audited
from ferroscope.core.model import LeaseProof
from ferroscope.db import replication
from ferroscope.db.addresses import Addresses
from ferroscope.db.clock_steps import ClockSteps
from ferroscope.db.credentials import AccessTokens, WebSessions
from ferroscope.db.data import InspectionData, Objects
from ferroscope.db.events import AuditLog, Outbox, record
from ferroscope.db.inspections import Inspections, Journal
from ferroscope.db.leases import Leases
from ferroscope.db.macs import Discoveries, Macs, Rejections
from ferroscope.db.members import Members
from ferroscope.db.nodes import Nodes
from ferroscope.db.ports import Ports
from ferroscope.db.receipts import Receipts
from ferroscope.db.records import ChassisRecords, Portgroups, Remediations
from ferroscope.db.requests import Requests
from ferroscope.db.rules import Expectations, Rules
from ferroscope.db.search import SearchIndex
from ferroscope.db.secrets import SecretKeys
from ferroscope.db.session import Session
from ferroscope.db.statistics import Statistics


class Transaction(Session):
    """One unit of work; ``now`` is the database's clock, in seconds since the epoch."""

    nodes = cached_property(Nodes)
    ports = cached_property(Ports)
    chassis = cached_property(ChassisRecords)
    portgroups = cached_property(Portgroups)
    inspections = cached_property(Inspections)
    requests = cached_property(Requests)
    data = cached_property(InspectionData)
    objects = cached_property(Objects)
    search_index = cached_property(SearchIndex)
    journal = cached_property(Journal)
    addresses = cached_property(Addresses)
    leases = cached_property(Leases)
    members = cached_property(Members)
    clock_steps = cached_property(ClockSteps)
    macs = cached_property(Macs)
    discoveries = cached_property(Discoveries)
    rejections = cached_property(Rejections)
    statistics = cached_property(Statistics)
    rules = cached_property(Rules)
    expectations = cached_property(Expectations)
    secret_keys = cached_property(SecretKeys)
    access_tokens = cached_property(AccessTokens)
    audit = cached_property(AuditLog)
    outbox = cached_property(Outbox)
    receipts = cached_property(Receipts)
    remediations = cached_property(Remediations)
    web_sessions = cached_property(WebSessions)

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
        if "nodes" in vars(self) and replication.is_galera(self._connection):
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


_REPOSITORIES: Final = {name for name, value in vars(Transaction).items() if isinstance(value, cached_property)}


# The first call in a transaction under a lease; ``LeaseLostError`` if the lease was lost.
Fence = Callable[[Transaction], None]
