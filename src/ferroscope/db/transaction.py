"""A unit of work: the repositories through which a caller reads and writes."""

from __future__ import annotations

from collections.abc import Callable

from ferroscope.contracts.errors import LeaseLostError, StaleLeaseError
from ferroscope.core.model import LeaseProof
from ferroscope.db.cabling import Cabling
from ferroscope.db.clock_steps import ClockSteps
from ferroscope.db.counted_ahead import CountedAhead
from ferroscope.db.credentials import AccessTokens, WebSessions
from ferroscope.db.discoveries import Discoveries, RefusedCallers, Rejections
from ferroscope.db.failover_nodes import FailoverNodes
from ferroscope.db.inspections import InspectionData, Inspections, Journal
from ferroscope.db.leases import Leases
from ferroscope.db.members import Members
from ferroscope.db.nodes import Addresses, Nodes
from ferroscope.db.objects import Objects
from ferroscope.db.outbox import Outbox
from ferroscope.db.ports import Macs, Ports
from ferroscope.db.ranking import Ranking
from ferroscope.db.records import ChassisRecords, Portgroups, Remediations
from ferroscope.db.requests import AuditLog, Receipts, Requests
from ferroscope.db.rules import Expectations, Rules
from ferroscope.db.saved_searches import SavedSearches
from ferroscope.db.search import SearchIndex
from ferroscope.db.secrets import SecretKeys
from ferroscope.db.session import Repository, Session
from ferroscope.db.statistics import Statistics


class Transaction(Session):
    """One unit of work."""

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

    def require(self, proof: LeaseProof) -> None:
        """Hold a lease that the caller requires; ``StaleLeaseError``."""
        try:
            self.leases.hold(proof)
        except LeaseLostError as exc:
            raise StaleLeaseError(proof.name, proof.epoch) from exc


# The first call in a transaction under a lease; ``LeaseLostError`` if the lease was lost.
Fence = Callable[[Transaction], None]
