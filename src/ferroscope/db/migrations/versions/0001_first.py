"""The first schema, that of ``db.schema``; later migrations add to it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UUID = sa.String(36)
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
LONG_BLOB = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NICS = sa.text("kind = 'nic'")
OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "access_tokens",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("roles", LONG_TEXT, nullable=False),
        sa.Column("project", sa.String(255)),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("last_used_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_access_tokens"),
        **OPTIONS,
    )

    op.create_table(
        "audit",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("project", sa.String(255)),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("policy", sa.String(128), nullable=False),
        sa.Column("call", sa.String(128), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("node", UUID),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        **OPTIONS,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_node", "audit", ["node", "id"])

    op.create_table(
        "bmc_addresses",
        sa.Column("address", sa.String(255), nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.PrimaryKeyConstraint("address", "node", name="pk_bmc_addresses"),
        **OPTIONS,
    )
    op.create_index("ix_bmc_addresses_node", "bmc_addresses", ["node"])

    op.create_table(
        "callers",
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("source", "node", name="pk_callers"),
        **OPTIONS,
    )
    op.create_index("ix_callers_node", "callers", ["node"])

    op.create_table(
        "chassis",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("description", sa.String(255)),
        sa.Column("extra", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double()),
        sa.PrimaryKeyConstraint("uuid", name="pk_chassis"),
        **OPTIONS,
    )

    op.create_table(
        "clock_steps",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("process", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_clock_steps"),
        **OPTIONS,
    )

    op.create_table(
        "expectations",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("document", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_expectations"),
        **OPTIONS,
    )

    op.create_table(
        "inspection_data",
        sa.Column("inspection", UUID, nullable=False),
        sa.Column("part", sa.String(16), nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("codec", sa.String(8), nullable=False),
        sa.Column("content", LONG_BLOB, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("inspection", "part", name="pk_inspection_data"),
        **OPTIONS,
    )
    op.create_index("ix_inspection_data_node", "inspection_data", ["node"])

    op.create_table(
        "inspections",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("waiting_since", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("reason", sa.String(64)),
        sa.Column("error", LONG_TEXT),
        sa.Column("digest", sa.String(64)),
        sa.Column("manage_boot", sa.Boolean(), nullable=False),
        sa.Column("reapplies", UUID),
        sa.Column("clock_since", sa.Double()),
        sa.Column("queued", sa.Double(), nullable=False, server_default="0"),
        sa.Column("processing_since", sa.Double()),
        sa.Column("secret", sa.String(80)),
        sa.Column("secret_delivery", sa.String(16)),
        sa.Column("changes", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("traceparent", sa.String(55)),
        sa.PrimaryKeyConstraint("uuid", name="pk_inspections"),
        **OPTIONS,
    )
    op.create_index("ix_inspections_clock_since", "inspections", ["clock_since"])
    op.create_index("ix_inspections_node", "inspections", ["node", "started_at"])
    op.create_index("ix_inspections_secret", "inspections", ["secret"])

    op.create_table(
        "journal",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("inspection", UUID),
        sa.Column("step", sa.String(64), nullable=False),
        sa.Column("message", LONG_TEXT, nullable=False),
        sa.Column("severity", sa.String(8), nullable=False),
        sa.Column("reason", sa.String(64)),
        sa.Column("process", sa.String(128), nullable=False),
        sa.Column("detail", LONG_TEXT, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_journal"),
        **OPTIONS,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_journal_node", "journal", ["node", "id"])

    op.create_table(
        "lease_candidates",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "holder", name="pk_lease_candidates"),
        **OPTIONS,
    )

    op.create_table(
        "lease_epochs",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", SERIAL, nullable=False),
        sa.Column("touched", SERIAL, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_lease_epochs"),
        **OPTIONS,
    )

    op.create_table(
        "leases",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("holder", sa.String(255)),
        sa.Column("epoch", SERIAL, nullable=False),
        sa.Column("token", UUID, nullable=False),
        sa.Column("duration", sa.Double(), nullable=False),
        sa.Column("acquired_at", sa.Double(), nullable=False),
        sa.Column("renewed_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("touched", SERIAL, nullable=False),
        sa.Column("data", LONG_TEXT, nullable=False),
        sa.Column("source", sa.String(64)),
        sa.Column("token_digest", sa.String(64)),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
        **OPTIONS,
    )

    op.create_table(
        "mac_changes",
        sa.Column("seq", SERIAL, autoincrement=True, nullable=False),
        sa.Column("mac", sa.String(18), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_mac_changes"),
        **OPTIONS,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_mac_changes_mac", "mac_changes", ["mac"])

    op.create_table(
        "machine_macs",
        sa.Column("address", sa.String(18), nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("source", sa.String(64)),
        sa.PrimaryKeyConstraint("address", name="pk_machine_macs"),
        **OPTIONS,
    )
    op.create_index("ix_machine_macs_node", "machine_macs", ["node"])
    op.create_index("ix_machine_macs_source", "machine_macs", ["source"])

    op.create_table(
        "members",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("status", sa.String(255), nullable=False),
        sa.Column("detail", LONG_TEXT),
        sa.Column("ttl", sa.Double(), nullable=False, server_default="600"),
        sa.Column("left_at", sa.Double()),
        sa.Column("boot", UUID),
        sa.Column("steady_since", sa.Double()),
        sa.Column("died_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_members"),
        **OPTIONS,
    )

    op.create_table(
        "nodes",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("name", sa.String(255)),
        sa.Column("driver", sa.String(255), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("provision_state", sa.String(16), nullable=False),
        sa.Column("target_provision_state", sa.String(16)),
        sa.Column("provision_updated_at", sa.Double()),
        sa.Column("power_state", sa.String(16)),
        sa.Column("target_power_state", sa.String(16)),
        sa.Column("inspection", UUID),
        sa.Column("inspection_started_at", sa.Double()),
        sa.Column("inspection_finished_at", sa.Double()),
        sa.Column("last_error", LONG_TEXT),
        sa.Column("auto_discovered", sa.Boolean(), nullable=False),
        sa.Column("maintenance", sa.Boolean(), nullable=False),
        sa.Column("resource_class", sa.String(80)),
        sa.Column("conductor_group", sa.String(255), nullable=False),
        sa.Column("owner", sa.String(255)),
        sa.Column("instance_uuid", UUID),
        sa.Column("driver_info", LONG_TEXT, nullable=False),
        sa.Column("properties", LONG_TEXT, nullable=False),
        sa.Column("extra", LONG_TEXT, nullable=False),
        sa.Column("instance_info", LONG_TEXT, nullable=False),
        sa.Column("internal", LONG_TEXT, nullable=False),
        sa.Column("attributes", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double()),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("search_digest", sa.String(64)),
        sa.Column("inbox", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("hardware", LONG_TEXT),
        sa.Column("orphaned_at", sa.Double()),
        sa.Column("chassis_uuid", UUID),
        sa.Column("labels", LONG_TEXT),
        sa.Column("sources", LONG_TEXT),
        sa.PrimaryKeyConstraint("uuid", name="pk_nodes"),
        sa.UniqueConstraint("name", name="uq_nodes_name"),
        sa.UniqueConstraint("instance_uuid", name="uq_nodes_instance_uuid"),
        **OPTIONS,
        postgresql_with={"fillfactor": 60},
    )
    op.create_index("ix_nodes_auto_discovered", "nodes", ["auto_discovered"])
    op.create_index("ix_nodes_created_at", "nodes", ["created_at", "uuid"])

    op.create_table(
        "objects",
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("backend", sa.String(16), nullable=False),
        sa.Column("inspection", UUID, nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("part", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("content_size", sa.BigInteger()),
        sa.Column("content_sha256", sa.String(64)),
        sa.PrimaryKeyConstraint("key", name="pk_objects"),
        **OPTIONS,
    )
    op.create_index("ix_objects_inspection", "objects", ["inspection"])
    op.create_index("ix_objects_node", "objects", ["node"])
    op.create_index("ix_objects_state", "objects", ["state", "at"])

    op.create_table(
        "outbox",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("target", sa.String(64), nullable=False),
        sa.Column("event", UUID, nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("data", LONG_TEXT, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(255)),
        sa.Column("settled_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
        **OPTIONS,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_outbox_event", "outbox", ["event"])
    op.create_index("ix_outbox_target", "outbox", ["target", "state", "id"])

    op.create_table(
        "portgroups",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("address", sa.String(18)),
        sa.Column("name", sa.String(255)),
        sa.Column("mode", sa.String(255), nullable=False),
        sa.Column("properties", LONG_TEXT, nullable=False),
        sa.Column("standalone_ports_supported", sa.Boolean(), nullable=False),
        sa.Column("physical_network", sa.String(64)),
        sa.Column("category", sa.String(80)),
        sa.Column("extra", LONG_TEXT, nullable=False),
        sa.Column("internal", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double()),
        sa.PrimaryKeyConstraint("uuid", name="pk_portgroups"),
        sa.UniqueConstraint("address", name="uq_portgroups_address"),
        sa.UniqueConstraint("name", name="uq_portgroups_name"),
        **OPTIONS,
    )
    op.create_index("ix_portgroups_node", "portgroups", ["node"])

    op.create_table(
        "ports",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("address", sa.String(18), nullable=False),
        sa.Column("name", sa.String(255)),
        sa.Column("pxe_enabled", sa.Boolean(), nullable=False),
        sa.Column("physical_network", sa.String(64)),
        sa.Column("local_link_connection", LONG_TEXT, nullable=False),
        sa.Column("extra", LONG_TEXT, nullable=False),
        sa.Column("internal", LONG_TEXT, nullable=False),
        sa.Column("attributes", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double()),
        sa.Column("portgroup", UUID),
        sa.PrimaryKeyConstraint("uuid", name="pk_ports"),
        sa.UniqueConstraint("address", name="uq_ports_address"),
        sa.UniqueConstraint("name", name="uq_ports_name"),
        **OPTIONS,
    )
    op.create_index("ix_ports_created_at", "ports", ["created_at", "uuid"])
    op.create_index("ix_ports_node", "ports", ["node"])
    op.create_index("ix_ports_portgroup", "ports", ["portgroup"])

    op.create_table(
        "receipts",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("call", sa.String(64), nullable=False),
        sa.Column("void", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("reply", LONG_TEXT),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_receipts"),
        **OPTIONS,
    )
    op.create_index("ix_receipts_expires_at", "receipts", ["expires_at"])

    op.create_table(
        "rejections",
        sa.Column("address", sa.String(18), nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("rejected_at", sa.Double(), nullable=False),
        sa.Column("source", sa.String(64)),
        sa.PrimaryKeyConstraint("address", name="pk_rejections"),
        **OPTIONS,
    )

    op.create_table(
        "remediations",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("cluster", sa.String(63), nullable=False),
        sa.Column("node", sa.String(253), nullable=False),
        sa.Column("machine", UUID),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("active", sa.String(320)),
        sa.Column("record", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_remediations"),
        sa.UniqueConstraint("active", name="uq_remediations_active"),
        **OPTIONS,
    )
    op.create_index("ix_remediations_cluster", "remediations", ["cluster", "started_at"])

    op.create_table(
        "requests",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("inspection", UUID),
        sa.Column("payload", LONG_TEXT, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("begun", sa.Boolean(), nullable=False),
        sa.Column("progress", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("holder", sa.String(64)),
        sa.Column("token", UUID),
        sa.Column("claimed_node", UUID),
        sa.Column("touched", SERIAL, nullable=False, server_default="0"),
        sa.Column("lane", sa.String(8), nullable=False, server_default="bmc"),
        sa.Column("priority", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("bmc", sa.String(255)),
        sa.Column("network", sa.String(64)),
        sa.Column("lost", LONG_TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sa.UniqueConstraint("claimed_node", name="uq_requests_claimed_node"),
        **OPTIONS,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_requests_node", "requests", ["node"])
    op.create_index("ix_requests_queue", "requests", ["holder", "lane", "priority", "id"])

    revisions = op.create_table(
        "rule_revisions",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", SERIAL, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rule_revisions"),
        **OPTIONS,
    )
    op.bulk_insert(revisions, [{"id": 1, "revision": 0}])

    op.create_table(
        "rules",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("dialect", sa.String(16), nullable=False),
        sa.Column("description", sa.String(255)),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("sensitive", sa.Boolean(), nullable=False),
        sa.Column("scope", sa.String(255)),
        sa.Column("conditions", LONG_TEXT, nullable=False),
        sa.Column("actions", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double()),
        sa.PrimaryKeyConstraint("uuid", name="pk_rules"),
        **OPTIONS,
    )
    op.create_index("ix_rules_created_at", "rules", ["created_at", "uuid"])

    op.create_table(
        "saved_searches",
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("q", LONG_TEXT, nullable=False),
        sa.Column("view", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("user", "name", name="pk_saved_searches"),
        **OPTIONS,
    )

    op.create_table(
        "search_index",
        sa.Column("node", UUID, nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        *(sa.Column(f"t{number}", sa.String(255)) for number in range(1, 8)),
        *(sa.Column(f"n{number}", sa.Double()) for number in range(1, 4)),
        sa.PrimaryKeyConstraint("node", "kind", "position", name="pk_search_index"),
        **OPTIONS,
    )
    op.create_index(
        "ix_search_index_macs", "search_index", ["kind", "t2", "node"], postgresql_where=NICS, sqlite_where=NICS
    )

    op.create_table(
        "secret_keys",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_secret_keys"),
        **OPTIONS,
    )

    op.create_table(
        "tallies",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("period", sa.BigInteger(), nullable=False),
        sa.Column("made", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_tallies"),
        **OPTIONS,
    )

    op.create_table(
        "web_sessions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("sealed", LONG_TEXT, nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_web_sessions"),
        **OPTIONS,
    )
    op.create_index("ix_web_sessions_expires_at", "web_sessions", ["expires_at"])
