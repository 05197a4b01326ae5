"""The tables of the service itself: requests, leases, members, rules, callers of the API, events; see ``schema``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, String, Table

from ferroscope.db.columns import LONG_TEXT, OPTIONS, SEQUENCE, SERIAL, UUID, metadata

# claimed_node is the node while the request is claimed, otherwise NULL. As it is unique, the database itself makes a
# claim the lock of its node, without a partial index, which not all databases have.
requests = Table(
    "requests",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("node", UUID, nullable=False, index=True),
    Column("event", String(16), nullable=False),
    Column("inspection", UUID),
    Column("payload", LONG_TEXT, nullable=False),
    Column("version", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("begun", Boolean, nullable=False),
    Column("progress", LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("due_at", Double, nullable=False),
    Column("holder", String(64)),
    Column("token", UUID),
    Column("claimed_node", UUID, unique=True),
    Column("touched", SERIAL, nullable=False, server_default="0"),
    Column("lane", String(8), nullable=False, server_default="bmc"),
    Column("priority", Integer, nullable=False, server_default="1"),
    Column("bmc", String(255)),
    Column("network", String(64)),
    Column("lost", LONG_TEXT),
    Index("ix_requests_queue", "holder", "lane", "priority", "id"),
    **SEQUENCE,
)

# Counters for the current period, such as discovered nodes; the row is also the lock for creating one.
tallies = Table(
    "tallies",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("period", BigInteger, nullable=False),
    Column("made", Integer, nullable=False),
    **OPTIONS,
)

# What ``periodic.counts`` has counted of a large fleet, as JSON.
counts = Table(
    "counts",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("content", LONG_TEXT, nullable=False),
    Column("counted_at", Double, nullable=False),
    **OPTIONS,
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("holder", String(255)),
    Column("epoch", SERIAL, nullable=False),
    Column("token", UUID, nullable=False),
    Column("duration", Double, nullable=False),
    Column("acquired_at", Double, nullable=False),
    Column("renewed_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("touched", SERIAL, nullable=False),
    Column("data", LONG_TEXT, nullable=False),
    Column("source", String(64)),
    Column("token_digest", String(64)),
    **OPTIONS,
)

# Candidates for a lease that was held; see ``core.model.Candidate``.
lease_candidates = Table(
    "lease_candidates",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("holder", String(255), primary_key=True),
    Column("asked_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    **OPTIONS,
)

# One row: the highest epoch of all forgotten names. The first epoch of a new name must be greater.
lease_epochs = Table(
    "lease_epochs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", SERIAL, nullable=False),
    Column("touched", SERIAL, nullable=False),
    **OPTIONS,
)

# Changes to which MACs may boot; a row has no state, it only tells readers to read this MAC again.
mac_changes = Table(
    "mac_changes",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=True),
    Column("mac", String(18), nullable=False, index=True),
    Column("at", Double, nullable=False),
    **SEQUENCE,
)

members = Table(
    "members",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("role", String(32), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("status", String(255), nullable=False),
    Column("detail", LONG_TEXT),
    Column("ttl", Double, nullable=False, server_default="600"),
    Column("left_at", Double),
    Column("boot", UUID),
    Column("steady_since", Double),
    Column("died_at", Double),
    **OPTIONS,
)

# Steps of the database's clock; the key ensures that only one of the processes that notice records a step.
clock_steps = Table(
    "clock_steps",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("process", String(128), nullable=False),
    **OPTIONS,
)

rules = Table(
    "rules",
    metadata,
    Column("uuid", UUID, primary_key=True),
    Column("dialect", String(16), nullable=False),
    Column("description", String(255)),
    Column("priority", Integer, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("sensitive", Boolean, nullable=False),
    Column("scope", String(255)),
    Column("conditions", LONG_TEXT, nullable=False),
    Column("actions", LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double),
    Index("ix_rules_created_at", "created_at", "uuid"),
    **OPTIONS,
)

# One row: the revision, which every change of a rule increments.
rule_revisions = Table(
    "rule_revisions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", SERIAL, nullable=False),
    **OPTIONS,
)

# The keys that have encrypted secrets of nodes: a process without one of them must not write secrets.
secret_keys = Table(
    "secret_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("at", Double, nullable=False),
    **OPTIONS,
)

# Access tokens that this service issues; the secret itself is not stored, see ``core.credentials``.
access_tokens = Table(
    "access_tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("roles", LONG_TEXT, nullable=False),
    Column("project", String(255)),
    Column("created_at", Double, nullable=False),
    Column("created_by", String(255), nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("last_used_at", Double),
    **OPTIONS,
)

# Who called the API, and what it changed.
audit = Table(
    "audit",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("request_id", String(64), nullable=False),
    Column("user", String(255), nullable=False),
    Column("method", String(16), nullable=False),
    Column("project", String(255)),
    Column("source", String(64), nullable=False),
    Column("policy", String(128), nullable=False),
    Column("call", String(128), nullable=False),
    Column("target", String(255), nullable=False),
    Column("node", UUID),
    Column("status", Integer, nullable=False),
    Column("at", Double, nullable=False, index=True),
    Index("ix_audit_node", "node", "id"),
    Index("ix_audit_user", "user", "id"),
    **SEQUENCE,
)

# Receipts of calls that change something: see ``contracts.store``.
receipts = Table(
    "receipts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("call", String(64), nullable=False),
    Column("void", Boolean, nullable=False),
    Column("status", Integer, nullable=False),
    Column("reply", LONG_TEXT),
    Column("expires_at", Double, nullable=False, index=True),
    **OPTIONS,
)

# One row for each event and target: see ``contracts.remote``.
outbox = Table(
    "outbox",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("target", String(64), nullable=False),
    Column("event", UUID, nullable=False, index=True),
    Column("type", String(64), nullable=False),
    Column("node", UUID, nullable=False),
    Column("data", LONG_TEXT, nullable=False),
    Column("at", Double, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", String(255)),
    Column("settled_at", Double),
    Index("ix_outbox_target", "target", "state", "id"),
    Index("ix_outbox_node", "node", "id"),
    **SEQUENCE,
)

# Remediations of failed cluster nodes; ``active`` is unique while it is in progress, see
# ``db.records``. The record itself is a document, because only the controller reads it.
remediations = Table(
    "remediations",
    metadata,
    Column("uuid", UUID, primary_key=True),
    Column("cluster", String(63), nullable=False),
    Column("node", String(253), nullable=False),
    Column("machine", UUID),
    Column("phase", String(16), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("active", String(320), unique=True),
    Column("record", LONG_TEXT, nullable=False),
    Index("ix_remediations_cluster", "cluster", "started_at"),
    **OPTIONS,
)

# The clusters in which an operator has stopped all remediation.
failover_pauses = Table(
    "failover_pauses",
    metadata,
    Column("cluster", String(63), primary_key=True),
    Column("why", LONG_TEXT, nullable=False),
    Column("by", String(255), nullable=False),
    Column("at", Double, nullable=False),
    **OPTIONS,
)

# The watched nodes of each cluster, and their machines: see ``core.failover_node``.
failover_nodes = Table(
    "failover_nodes",
    metadata,
    Column("cluster", String(63), primary_key=True),
    Column("node", String(253), primary_key=True),
    Column("machine", UUID, index=True),
    Column("ready", Boolean, nullable=False),
    Column("written_at", Double, nullable=False, index=True),
    Column("record", LONG_TEXT, nullable=False),
    **OPTIONS,
)

# Expectations of the hardware, in the order of ``position``; see ``hardware.expectations``.
expectations = Table(
    "expectations",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("document", LONG_TEXT, nullable=False),
    **OPTIONS,
)

# The searches that users have saved; ``user`` is the principal of the caller.
saved_searches = Table(
    "saved_searches",
    metadata,
    Column("user", String(255), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("q", LONG_TEXT, nullable=False),
    Column("view", LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    **OPTIONS,
)

# Sessions of browsers; see ``core.credentials.WebSession``.
web_sessions = Table(
    "web_sessions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("sealed", LONG_TEXT, nullable=False),
    Column("user", String(255), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    **OPTIONS,
)
