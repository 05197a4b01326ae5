"""All tables of the store, and the indexes by which their rows are found without a scan."""

from __future__ import annotations

import msgspec

from ferroscope.adapters.memory.tables import Index, Table, UndoLog, Unique
from ferroscope.domain.discovery import Rejection
from ferroscope.domain.facts import Fact
from ferroscope.domain.gate import MacChange
from ferroscope.domain.lease import Lease
from ferroscope.domain.model import ClockStep, Entry, Inspection, Member, Node, Port, Request
from ferroscope.domain.rule import Rule
from ferroscope.ports.data import Part, StoredObject


class RequestRow(msgspec.Struct, frozen=True):
    """A request and, while it is claimed, by whom and with which token."""

    request: Request
    holder: str | None = None
    token: str | None = None


class MacChangeRow(msgspec.Struct, frozen=True):
    """A change about a MAC, and when it was noted."""

    change: MacChange
    at: float


class Rows:
    """Everything that is stored. The ``last_...`` ones number without undo, like sequences."""

    def __init__(self, log: UndoLog) -> None:
        self.nodes: Table[str, Node] = Table(log)
        self.unique_of_nodes: Unique[str] = Unique(log, "name", "instance_uuid")
        self.ports: Table[str, Port] = Table(log)
        self.unique_of_ports: Unique[str] = Unique(log, "address", "name")
        self.ports_of_node: Index[str, str] = Index(log)
        self.inspections: Table[str, Inspection] = Table(log)
        self.inspections_of_node: Index[str, str] = Index(log)
        self.requests: Table[int, RequestRow] = Table(log)
        self.requests_of_node: Index[str, int] = Index(log)
        self.claimed: Table[str, int] = Table(log)
        self.data: Table[tuple[str, Part], bytes] = Table(log)
        self.data_of_node: Index[str, tuple[str, Part]] = Index(log)
        self.data_at: Table[tuple[str, Part], float] = Table(log)
        self.objects: Table[str, StoredObject] = Table(log)
        self.objects_of_node: Index[str, str] = Index(log)
        self.facts: Table[str, tuple[Fact, ...]] = Table(log)
        self.entries: Table[str, Entry] = Table(log)
        self.entries_of_node: Index[str, str] = Index(log)
        self.bmc_addresses: Index[str, str] = Index(log)
        self.nodes_of_bmc: Index[str, str] = Index(log)
        self.leases: Table[str, Lease] = Table(log)
        self.lease_floor: Table[int, int] = Table(log)
        self.members: Table[str, Member] = Table(log)
        self.clock_steps: Table[int, ClockStep] = Table(log)
        self.rules: Table[str, Rule] = Table(log)
        self.rule_revision: Table[int, int] = Table(log)
        self.mac_changes: Table[int, MacChangeRow] = Table(log)
        self.machine_macs: Table[str, str] = Table(log)
        self.macs_of_node: Index[str, str] = Index(log)
        self.discovered_from: Table[str, str] = Table(log)
        self.nodes_of_caller: Index[str, str] = Index(log)
        self.callers_of_node: Index[str, str] = Index(log)
        self.rejections: Table[str, Rejection] = Table(log)
        self.tallies: Table[str, tuple[int, int]] = Table(log)
        self.last_request = 0
        self.last_entry = 0
        self.last_mac_change = 0
