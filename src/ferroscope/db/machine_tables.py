"""The tables about machines: nodes, ports, inspections and their data, the journal; see ``schema``."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, String, Table, false, text

from ferroscope.db.columns import LONG_BLOB, LONG_TEXT, OFTEN_UPDATED, OPTIONS, SEQUENCE, SERIAL, UUID, metadata
from ferroscope_client.core.node import STORED, NodeField

_TYPES: dict[Any, Any] = {bool: Boolean, int: Integer, float: Double}


def _node_column(field: NodeField) -> Column[Any]:
    """Return the column of a node's field; ``uuid`` is the primary key."""
    kind = _TYPES.get(field.plain) or (String(field.length) if field.length else LONG_TEXT)
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
    Index("ix_nodes_maintenance", "maintenance"),
    Index("ix_nodes_owner", "owner", "created_at", "uuid"),
    **OFTEN_UPDATED,
)

ports = Table(
    "ports",
    metadata,
    Column("uuid", UUID, primary_key=True),
    Column("node", UUID, nullable=False, index=True),
    Column("address", String(18), nullable=False, unique=True),
    Column("name", String(255), unique=True),
    Column("pxe_enabled", Boolean, nullable=False),
    Column("physical_network", String(64)),
    Column("portgroup", UUID, index=True),
    Column("local_link_connection", LONG_TEXT, nullable=False),
    Column("extra", LONG_TEXT, nullable=False),
    Column("internal", LONG_TEXT, nullable=False),
    Column("attributes", LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double),
    Index("ix_ports_created_at", "created_at", "uuid"),
    **OPTIONS,
)

chassis = Table(
    "chassis",
    metadata,
    Column("uuid", UUID, primary_key=True),
    Column("description", String(255)),
    Column("extra", LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double),
    **OPTIONS,
)

portgroups = Table(
    "portgroups",
    metadata,
    Column("uuid", UUID, primary_key=True),
    Column("node", UUID, nullable=False, index=True),
    Column("address", String(18), unique=True),
    Column("name", String(255), unique=True),
    Column("mode", String(255), nullable=False),
    Column("properties", LONG_TEXT, nullable=False),
    Column("standalone_ports_supported", Boolean, nullable=False),
    Column("physical_network", String(64)),
    Column("category", String(80)),
    Column("extra", LONG_TEXT, nullable=False),
    Column("internal", LONG_TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double),
    **OPTIONS,
)

inspections = Table(
    "inspections",
    metadata,
    Column("uuid", UUID, primary_key=True),
    Column("node", UUID, nullable=False),
    Column("state", String(16), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("waiting_since", Double),
    Column("finished_at", Double),
    Column("reason", String(64)),
    Column("error", LONG_TEXT),
    Column("digest", String(64)),
    Column("manage_boot", Boolean, nullable=False),
    Column("reapplies", UUID),
    Column("clock_since", Double, index=True),
    Column("queued", Double, nullable=False, server_default="0"),
    Column("processing_since", Double),
    Column("changes", Integer, nullable=False, server_default="0"),
    Column("traceparent", String(55)),
    Column("secret", String(80)),
    Column("secret_delivery", String(16)),
    Index("ix_inspections_node", "node", "started_at"),
    Index("ix_inspections_secret", "secret"),
    Index("ix_inspections_finished_at", "finished_at", "uuid"),
    **OFTEN_UPDATED,
)

inspection_data = Table(
    "inspection_data",
    metadata,
    Column("inspection", UUID, primary_key=True),
    Column("part", String(16), primary_key=True),
    Column("node", UUID, nullable=False, index=True),
    Column("codec", String(8), nullable=False),
    Column("content", LONG_BLOB, nullable=False),
    Column("created_at", Double, nullable=False),
    **OPTIONS,
)

# Parts of the data that are, or may be, in an object store instead of inspection_data.
objects = Table(
    "objects",
    metadata,
    Column("key", String(255), primary_key=True),
    Column("backend", String(16), nullable=False),
    Column("inspection", UUID, nullable=False, index=True),
    Column("node", UUID, nullable=False, index=True),
    Column("part", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("content_size", BigInteger),
    Column("content_sha256", String(64)),
    Index("ix_objects_state", "state", "at"),
    **OPTIONS,
)

# The search index; hardware/search_index defines the meaning of each column. It is written by every inspection that
# found changes, so it has no index except the key: a search looks up each node's rows by the key.
search_index = Table(
    "search_index",
    metadata,
    Column("node", UUID, primary_key=True),
    Column("kind", String(8), primary_key=True),
    Column("position", Integer, primary_key=True),
    *(Column(f"t{number}", String(255)) for number in range(1, 8)),
    *(Column(f"n{number}", Double) for number in range(1, 5)),
    # The column t2 of a NIC is its MAC address.
    Index(
        "ix_search_index_macs",
        "kind",
        "t2",
        "node",
        postgresql_where=text("kind = 'nic'"),
        sqlite_where=text("kind = 'nic'"),
    ),
    # That column of the row of a machine itself is its serial number.
    Index(
        "ix_search_index_serials",
        "kind",
        "t3",
        "node",
        postgresql_where=text("kind = 'node'"),
        sqlite_where=text("kind = 'node'"),
    ),
    # Those columns of a NIC are the switch and its port at the other end.
    Index(
        "ix_search_index_switches",
        "kind",
        "t6",
        "t7",
        "node",
        postgresql_where=text("kind = 'nic'"),
        sqlite_where=text("kind = 'nic'"),
    ),
    **OPTIONS,
)

journal = Table(
    "journal",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("uuid", UUID, nullable=False),
    Column("node", UUID, nullable=False),
    Column("inspection", UUID),
    Column("step", String(64), nullable=False),
    Column("message", LONG_TEXT, nullable=False),
    Column("severity", String(8), nullable=False),
    Column("reason", String(64)),
    Column("process", String(128), nullable=False),
    Column("detail", LONG_TEXT, nullable=False),
    Column("at", Double, nullable=False),
    Index("ix_journal_node", "node", "id"),
    **SEQUENCE,
)

bmc_addresses = Table(
    "bmc_addresses",
    metadata,
    Column("address", String(255), primary_key=True),
    Column("node", UUID, primary_key=True),
    Index("ix_bmc_addresses_node", "node"),
    **OPTIONS,
)

# The source addresses of each node's calls: a call without identification is recorded on the nodes that match.
callers = Table(
    "callers",
    metadata,
    Column("source", String(64), primary_key=True),
    Column("node", UUID, primary_key=True),
    Column("at", Double, nullable=False),
    Index("ix_callers_node", "node"),
    **OPTIONS,
)

# The MACs of discovered machines; the primary key ensures that one machine becomes only one node.
machine_macs = Table(
    "machine_macs",
    metadata,
    Column("address", String(18), primary_key=True),
    Column("node", UUID, nullable=False, index=True),
    Column("source", String(64), index=True),
    **OPTIONS,
)

rejections = Table(
    "rejections",
    metadata,
    Column("address", String(18), primary_key=True),
    Column("node", UUID, nullable=False),
    Column("rejected_at", Double, nullable=False),
    Column("source", String(64)),
    **OPTIONS,
)

# The machines that belong to no node, and whose calls were refused. Callers are anonymous, so there are few rows: see
# ``lookup.select_surplus``.
refused_callers = Table(
    "refused_callers",
    metadata,
    Column("source", String(64), primary_key=True),
    Column("machine", String(64), primary_key=True),
    Column("macs", LONG_TEXT, nullable=False),
    Column("bmc_addresses", LONG_TEXT, nullable=False),
    Column("serial", String(128)),
    Column("reason", String(64), nullable=False),
    Column("message", LONG_TEXT, nullable=False),
    Column("called_at", Double, nullable=False),
    **OPTIONS,
)
