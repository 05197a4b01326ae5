"""The tables, as the newest migration creates them (a test compares the two).

Times are seconds since the epoch (double precision), documents are JSON text, UUIDs are text.
There are no foreign keys: on InnoDB inserting a child would lock its node's row in an order that deadlocks. Instead, a
transaction that adds children locks the node first, and ``Nodes.remove`` deletes them.
"""

from __future__ import annotations

from ferroscope.db.columns import metadata
from ferroscope.db.machine_tables import (
    bmc_addresses,
    callers,
    chassis,
    inspection_data,
    inspections,
    journal,
    machine_macs,
    nodes,
    objects,
    portgroups,
    ports,
    refused_callers,
    rejections,
    search_index,
)
from ferroscope.db.service_tables import (
    access_tokens,
    audit,
    clock_steps,
    expectations,
    failover_nodes,
    failover_pauses,
    lease_candidates,
    lease_epochs,
    leases,
    mac_changes,
    members,
    outbox,
    receipts,
    remediations,
    requests,
    rule_revisions,
    rules,
    saved_searches,
    secret_keys,
    tallies,
    web_sessions,
)

__all__ = [
    "access_tokens",
    "audit",
    "bmc_addresses",
    "callers",
    "chassis",
    "clock_steps",
    "expectations",
    "failover_nodes",
    "failover_pauses",
    "inspection_data",
    "inspections",
    "journal",
    "lease_candidates",
    "lease_epochs",
    "leases",
    "mac_changes",
    "machine_macs",
    "members",
    "metadata",
    "nodes",
    "objects",
    "outbox",
    "portgroups",
    "ports",
    "receipts",
    "refused_callers",
    "rejections",
    "remediations",
    "requests",
    "rule_revisions",
    "rules",
    "saved_searches",
    "search_index",
    "secret_keys",
    "tallies",
    "web_sessions",
]
