"""The tables, as the newest migration creates them (a test compares the two).

Times are seconds since the epoch (double precision), documents are JSON text, UUIDs are text.
There are no foreign keys: on InnoDB inserting a child would lock its node's row in an order that deadlocks. Instead, a
transaction that adds children locks the node first, and ``Nodes.remove`` deletes them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    text,
)
from sqlalchemy.dialects import mysql

from ferroscope.core.node import STORED, NodeField

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

_UUID = String(36)
_LONG_TEXT = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_LONG_BLOB = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_SERIAL = BigInteger().with_variant(Integer(), "sqlite")
# Binary collation, so that names and UUIDs compare the same on every database.
_OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}
_OFTEN_UPDATED: dict[str, Any] = {**_OPTIONS, "postgresql_with": {"fillfactor": 60}}
_SEQUENCE: dict[str, Any] = {**_OPTIONS, "sqlite_autoincrement": True}

_TYPES: dict[Any, Any] = {bool: Boolean, int: Integer, float: Double}


def _node_column(field: NodeField) -> Column[Any]:
    """Return the column of a node's field; ``uuid`` is the primary key."""
    kind = _TYPES.get(field.plain) or (String(field.length) if field.length else _LONG_TEXT)
    if field.name == "uuid":
        return Column(field.name, kind, primary_key=True)
    default = false() if field.absent and field.plain is bool else None
    nullable = field.nullable or (field.absent and default is None)
    return Column(field.name, kind, nullable=nullable, unique=field.unique or None, server_default=default)


# Columns that a transition changes are not indexed: on PostgreSQL such an update stays on its page and updates no index
# (HOT). Lists of 10,000 nodes are still filtered in milliseconds.
nodes = Table(
    "nodes",
    metadata,
    *(_node_column(field) for field in STORED),
    Index("ix_nodes_created_at", "created_at", "uuid"),
    Index("ix_nodes_auto_discovered", "auto_discovered"),
    **_OFTEN_UPDATED,
)

ports = Table(
    "ports",
    metadata,
    Column("uuid", _UUID, primary_key=True),
    Column("node", _UUID, nullable=False, index=True),
    Column("address", String(18), nullable=False, unique=True),
    Column("name", String(255), unique=True),
    Column("pxe_enabled", Boolean, nullable=False),
    Column("physical_network", String(64)),
    Column("portgroup", _UUID, index=True),
    Column("local_link_connection", _LONG_TEXT, nullable=False),
    Column("extra", _LONG_TEXT, nullable=False),
    Column("internal", _LONG_TEXT, nullable=False),
    Column("attributes", _LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double),
    Index("ix_ports_created_at", "created_at", "uuid"),
    **_OPTIONS,
)

chassis = Table(
    "chassis",
    metadata,
    Column("uuid", _UUID, primary_key=True),
    Column("description", String(255)),
    Column("extra", _LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double),
    **_OPTIONS,
)

portgroups = Table(
    "portgroups",
    metadata,
    Column("uuid", _UUID, primary_key=True),
    Column("node", _UUID, nullable=False, index=True),
    Column("address", String(18), unique=True),
    Column("name", String(255), unique=True),
    Column("mode", String(255), nullable=False),
    Column("properties", _LONG_TEXT, nullable=False),
    Column("standalone_ports_supported", Boolean, nullable=False),
    Column("physical_network", String(64)),
    Column("category", String(80)),
    Column("extra", _LONG_TEXT, nullable=False),
    Column("internal", _LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double),
    **_OPTIONS,
)

inspections = Table(
    "inspections",
    metadata,
    Column("uuid", _UUID, primary_key=True),
    Column("node", _UUID, nullable=False),
    Column("state", String(16), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("waiting_since", Double),
    Column("finished_at", Double),
    Column("reason", String(64)),
    Column("error", _LONG_TEXT),
    Column("digest", String(64)),
    Column("manage_boot", Boolean, nullable=False),
    Column("reapplies", _UUID),
    Column("clock_since", Double, index=True),
    Column("queued", Double, nullable=False, server_default="0"),
    Column("processing_since", Double),
    Column("changes", Integer, nullable=False, server_default="0"),
    Column("traceparent", String(55)),
    Column("secret", String(80)),
    Column("secret_delivery", String(16)),
    Index("ix_inspections_node", "node", "started_at"),
    Index("ix_inspections_secret", "secret"),
    **_OPTIONS,
)

# claimed_node is the node while the request is claimed, otherwise NULL. As it is unique, the database itself makes a
# claim the lock of its node, without a partial index, which not all databases have.
requests = Table(
    "requests",
    metadata,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("node", _UUID, nullable=False, index=True),
    Column("event", String(16), nullable=False),
    Column("inspection", _UUID),
    Column("payload", _LONG_TEXT, nullable=False),
    Column("version", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("begun", Boolean, nullable=False),
    Column("progress", _LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("due_at", Double, nullable=False),
    Column("holder", String(64)),
    Column("token", _UUID),
    Column("claimed_node", _UUID, unique=True),
    Column("touched", _SERIAL, nullable=False, server_default="0"),
    Column("lane", String(8), nullable=False, server_default="bmc"),
    Column("priority", Integer, nullable=False, server_default="1"),
    Column("bmc", String(255)),
    Column("network", String(64)),
    Column("lost", _LONG_TEXT),
    Index("ix_requests_queue", "holder", "lane", "priority", "id"),
    **_SEQUENCE,
)

inspection_data = Table(
    "inspection_data",
    metadata,
    Column("inspection", _UUID, primary_key=True),
    Column("part", String(16), primary_key=True),
    Column("node", _UUID, nullable=False, index=True),
    Column("codec", String(8), nullable=False),
    Column("content", _LONG_BLOB, nullable=False),
    Column("created_at", Double, nullable=False),
    **_OPTIONS,
)

# Parts of the data that are, or may be, in an object store instead of inspection_data.
objects = Table(
    "objects",
    metadata,
    Column("key", String(255), primary_key=True),
    Column("backend", String(16), nullable=False),
    Column("inspection", _UUID, nullable=False, index=True),
    Column("node", _UUID, nullable=False, index=True),
    Column("part", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("content_size", BigInteger),
    Column("content_sha256", String(64)),
    Index("ix_objects_state", "state", "at"),
    **_OPTIONS,
)

# The search index; hardware/search_index defines the meaning of each column. It is written by every inspection that
# found changes, so it has no index except the key: a search looks up each node's rows by the key.
search_index = Table(
    "search_index",
    metadata,
    Column("node", _UUID, primary_key=True),
    Column("kind", String(8), primary_key=True),
    Column("position", Integer, primary_key=True),
    *(Column(f"t{number}", String(255)) for number in range(1, 8)),
    *(Column(f"n{number}", Double) for number in range(1, 4)),
    # The column t2 of a NIC is its MAC address.
    Index(
        "ix_search_index_macs",
        "kind",
        "t2",
        "node",
        postgresql_where=text("kind = 'nic'"),
        sqlite_where=text("kind = 'nic'"),
    ),
    **_OPTIONS,
)

journal = Table(
    "journal",
    metadata,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("uuid", _UUID, nullable=False),
    Column("node", _UUID, nullable=False),
    Column("inspection", _UUID),
    Column("step", String(64), nullable=False),
    Column("message", _LONG_TEXT, nullable=False),
    Column("severity", String(8), nullable=False),
    Column("reason", String(64)),
    Column("process", String(128), nullable=False),
    Column("detail", _LONG_TEXT, nullable=False),
    Column("at", Double, nullable=False),
    Index("ix_journal_node", "node", "id"),
    **_SEQUENCE,
)

bmc_addresses = Table(
    "bmc_addresses",
    metadata,
    Column("address", String(255), primary_key=True),
    Column("node", _UUID, primary_key=True),
    Index("ix_bmc_addresses_node", "node"),
    **_OPTIONS,
)

# The source addresses of each node's calls: a call without identification is recorded on the nodes that match.
callers = Table(
    "callers",
    metadata,
    Column("source", String(64), primary_key=True),
    Column("node", _UUID, primary_key=True),
    Column("at", Double, nullable=False),
    Index("ix_callers_node", "node"),
    **_OPTIONS,
)

# The MACs of discovered machines; the primary key ensures that one machine becomes only one node.
machine_macs = Table(
    "machine_macs",
    metadata,
    Column("address", String(18), primary_key=True),
    Column("node", _UUID, nullable=False, index=True),
    Column("source", String(64), index=True),
    **_OPTIONS,
)

rejections = Table(
    "rejections",
    metadata,
    Column("address", String(18), primary_key=True),
    Column("node", _UUID, nullable=False),
    Column("rejected_at", Double, nullable=False),
    Column("source", String(64)),
    **_OPTIONS,
)

# Counters for the current period, such as discovered nodes; the row is also the lock for creating one.
tallies = Table(
    "tallies",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("period", BigInteger, nullable=False),
    Column("made", Integer, nullable=False),
    **_OPTIONS,
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("holder", String(255)),
    Column("epoch", _SERIAL, nullable=False),
    Column("token", _UUID, nullable=False),
    Column("duration", Double, nullable=False),
    Column("acquired_at", Double, nullable=False),
    Column("renewed_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("touched", _SERIAL, nullable=False),
    Column("data", _LONG_TEXT, nullable=False),
    Column("source", String(64)),
    Column("token_digest", String(64)),
    **_OPTIONS,
)

# Who asked for a lease that was held; see ``core.model.Candidate``.
lease_candidates = Table(
    "lease_candidates",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("holder", String(255), primary_key=True),
    Column("asked_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    **_OPTIONS,
)

# One row: the highest epoch of all forgotten names. The first epoch of a new name must be greater.
lease_epochs = Table(
    "lease_epochs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", _SERIAL, nullable=False),
    Column("touched", _SERIAL, nullable=False),
    **_OPTIONS,
)

# Changes to which MACs may boot; a row has no state, it only tells readers to read this MAC again.
mac_changes = Table(
    "mac_changes",
    metadata,
    Column("seq", _SERIAL, primary_key=True, autoincrement=True),
    Column("mac", String(18), nullable=False, index=True),
    Column("at", Double, nullable=False),
    **_SEQUENCE,
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
    Column("detail", _LONG_TEXT),
    Column("ttl", Double, nullable=False, server_default="600"),
    Column("left_at", Double),
    Column("boot", _UUID),
    Column("steady_since", Double),
    Column("died_at", Double),
    **_OPTIONS,
)

# Steps of the database's clock; the key ensures that only one of the processes that notice records a step.
clock_steps = Table(
    "clock_steps",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("process", String(128), nullable=False),
    **_OPTIONS,
)

rules = Table(
    "rules",
    metadata,
    Column("uuid", _UUID, primary_key=True),
    Column("dialect", String(16), nullable=False),
    Column("description", String(255)),
    Column("priority", Integer, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("sensitive", Boolean, nullable=False),
    Column("scope", String(255)),
    Column("conditions", _LONG_TEXT, nullable=False),
    Column("actions", _LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double),
    Index("ix_rules_created_at", "created_at", "uuid"),
    **_OPTIONS,
)

# One row: the revision, which every change of a rule increments.
rule_revisions = Table(
    "rule_revisions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", _SERIAL, nullable=False),
    **_OPTIONS,
)

# The keys that have encrypted secrets of nodes: a process without one of them must not write secrets.
secret_keys = Table(
    "secret_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("at", Double, nullable=False),
    **_OPTIONS,
)

# Access tokens that this service issues; the secret itself is nowhere, see ``core.credentials``.
access_tokens = Table(
    "access_tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("roles", _LONG_TEXT, nullable=False),
    Column("project", String(255)),
    Column("created_at", Double, nullable=False),
    Column("created_by", String(255), nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("last_used_at", Double),
    **_OPTIONS,
)

# Who called the API, and what it changed.
audit = Table(
    "audit",
    metadata,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("request_id", String(64), nullable=False),
    Column("user", String(255), nullable=False),
    Column("method", String(16), nullable=False),
    Column("project", String(255)),
    Column("source", String(64), nullable=False),
    Column("policy", String(128), nullable=False),
    Column("call", String(128), nullable=False),
    Column("target", String(255), nullable=False),
    Column("node", _UUID),
    Column("status", Integer, nullable=False),
    Column("at", Double, nullable=False, index=True),
    Index("ix_audit_node", "node", "id"),
    **_SEQUENCE,
)

# What changing calls leave with their changes: see ``contracts.receipts``.
receipts = Table(
    "receipts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("call", String(64), nullable=False),
    Column("void", Boolean, nullable=False),
    Column("status", Integer, nullable=False),
    Column("reply", _LONG_TEXT),
    Column("expires_at", Double, nullable=False, index=True),
    **_OPTIONS,
)

# One row for each event and target: see ``contracts.events``.
outbox = Table(
    "outbox",
    metadata,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("target", String(64), nullable=False),
    Column("event", _UUID, nullable=False, index=True),
    Column("type", String(64), nullable=False),
    Column("node", _UUID, nullable=False),
    Column("data", _LONG_TEXT, nullable=False),
    Column("at", Double, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", String(255)),
    Column("settled_at", Double),
    Index("ix_outbox_target", "target", "state", "id"),
    **_SEQUENCE,
)

# What was done about failures of nodes of a cluster; ``active`` is unique while it is in progress, see
# ``db.remediations``. The record itself is a document, because only the controller reads it.
remediations = Table(
    "remediations",
    metadata,
    Column("uuid", _UUID, primary_key=True),
    Column("cluster", String(63), nullable=False),
    Column("node", String(253), nullable=False),
    Column("machine", _UUID),
    Column("phase", String(16), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("active", String(320), unique=True),
    Column("record", _LONG_TEXT, nullable=False),
    Index("ix_remediations_cluster", "cluster", "started_at"),
    **_OPTIONS,
)

# What hardware is expected, in the order of ``position``; see ``hardware.expectations``.
expectations = Table(
    "expectations",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("document", _LONG_TEXT, nullable=False),
    **_OPTIONS,
)

# The searches that users have saved; ``user`` is the principal of the caller.
saved_searches = Table(
    "saved_searches",
    metadata,
    Column("user", String(255), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("q", _LONG_TEXT, nullable=False),
    Column("view", _LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    **_OPTIONS,
)

# Sessions of browsers; see ``core.credentials.WebSession``.
web_sessions = Table(
    "web_sessions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("sealed", _LONG_TEXT, nullable=False),
    Column("user", String(255), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    **_OPTIONS,
)

__all__ = [
    "access_tokens",
    "audit",
    "bmc_addresses",
    "callers",
    "chassis",
    "clock_steps",
    "expectations",
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
    "rejections",
    "remediations",
    "requests",
    "rule_revisions",
    "rules",
    "search_index",
    "secret_keys",
    "tallies",
    "web_sessions",
]
