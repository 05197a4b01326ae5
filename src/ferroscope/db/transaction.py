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
from ferroscope.db.session import FirstUse, Session
from ferroscope.db.statistics import Statistics


class Transaction(Session):
    """One unit of work."""

    nodes = FirstUse(Nodes)
    ports = FirstUse(Ports)
    chassis = FirstUse(ChassisRecords)
    portgroups = FirstUse(Portgroups)
    inspections = FirstUse(Inspections)
    requests = FirstUse(Requests)
    data = FirstUse(InspectionData)
    objects = FirstUse(Objects)
    search_index = FirstUse(SearchIndex)
    ranking = FirstUse(Ranking)
    cabling = FirstUse(Cabling)
    journal = FirstUse(Journal)
    addresses = FirstUse(Addresses)
    leases = FirstUse(Leases)
    members = FirstUse(Members)
    clock_steps = FirstUse(ClockSteps)
    macs = FirstUse(Macs)
    discoveries = FirstUse(Discoveries)
    rejections = FirstUse(Rejections)
    refused_callers = FirstUse(RefusedCallers)
    statistics = FirstUse(Statistics)
    counted_ahead = FirstUse(CountedAhead)
    rules = FirstUse(Rules)
    expectations = FirstUse(Expectations)
    secret_keys = FirstUse(SecretKeys)
    access_tokens = FirstUse(AccessTokens)
    audit = FirstUse(AuditLog)
    outbox = FirstUse(Outbox)
    receipts = FirstUse(Receipts)
    remediations = FirstUse(Remediations)
    failover_nodes = FirstUse(FailoverNodes)
    web_sessions = FirstUse(WebSessions)
    saved_searches = FirstUse(SavedSearches)

    def require(self, proof: LeaseProof) -> None:
        """Hold a lease that the caller requires; ``StaleLeaseError``."""
        try:
            self.leases.hold(proof)
        except LeaseLostError as exc:
            raise StaleLeaseError(proof.name, proof.epoch) from exc


# The first call in a transaction under a lease; ``LeaseLostError`` if the lease was lost.
Fence = Callable[[Transaction], None]
