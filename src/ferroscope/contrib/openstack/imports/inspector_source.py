"""Reads the introspections of ironic-inspector 12.5.0 with their data, and its rules. Nothing is written.

Introspections and rules are in its database. The data may be in Swift instead (``[processing] store_data = swift``),
with the login of the section ``[swift]`` of its configuration file, by every plugin of keystoneauth1.

Source: ``ironic_inspector/db/model.py`` and its newest migration; ``ironic_inspector/common/swift.py``.
"""

from __future__ import annotations

import configparser
import uuid
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from ferroscope.config.errors import SetupError, extra
from ferroscope.config.integration_options import PLUGIN_OPTIONS, IronicSettings
from ferroscope.config.options import SwiftSettings
from ferroscope.contracts.remote import (
    IronicRefusedError,
    IronicUnavailableError,
    ObjectMissingError,
    ObjectStoreError,
)
from ferroscope.core.model import Document, Rule, RuleDialect
from ferroscope.db import described, parse_url
from ferroscope_client.core import json_safety
from ferroscope_client.core.text_files import NotTextError, text_of

_SECTION: Final = "swift"
_CONTAINER: Final = "ironic-inspector"
_TIMEOUT_SECONDS: Final = 60.0
# Options that are read here or do not matter for a reader; all others are options of the plugin.
_OTHERS: Final = frozenset(
    {
        "auth_section", "collect_timing", "connect_retries", "connect_retry_delay", "container", "delete_after",
        "max_version", "min_version", "retriable_status_codes", "service_name", "service_type", "split_loggers",
        "status_code_retries", "status_code_retry_delay", "timeout", "tls_ciphers", "tls_min_version", "version",
    }
)  # fmt: skip
_OF_SESSION: Final = ("cafile", "certfile", "keyfile", "region_name", "endpoint_override")


class StoredData:
    """The objects of nodes; ``SetupError`` if they cannot be read."""

    def __init__(self, parser: ConfigParser) -> None:
        from ferroscope.contrib.openstack.swift import SwiftStore
        from ferroscope.storage.object_http import RetryPolicy, StorageAccess

        settings = _login(parser)
        login = _keystone(settings)

        def access() -> StorageAccess:
            try:
                login.renew()
                return StorageAccess(login.headers()["X-Auth-Token"], login.endpoint())
            except (IronicRefusedError, IronicUnavailableError) as exc:
                raise ObjectStoreError(_ours(exc)) from None

        swift = SwiftSettings(
            container=parser.get(_SECTION, "container", fallback=_CONTAINER).strip(), ca_file=settings.cafile
        )
        self._store = SwiftStore(swift, RetryPolicy(timeout=_TIMEOUT_SECONDS), log_in=access)

    def data_of(self, node: str) -> dict[bool, bytes]:
        """Return the processed (True) and unprocessed data of a node, as JSON."""
        bodies = {}
        for processed, suffix in ((True, ""), (False, "-UNPROCESSED")):
            try:
                bodies[processed] = self._store.get(f"inspector_data-{node}{suffix}")
            except ObjectMissingError:
                continue
            except ObjectStoreError as exc:
                raise SetupError(f"cannot read the data of ironic-inspector in Swift: {exc}") from None
        return bodies

    def close(self) -> None:
        self._store.close()


def _login(parser: ConfigParser) -> IronicSettings:
    """Return the login; our own client of Ironic has the same options."""
    if not parser.has_section(_SECTION):
        raise SetupError("the data is in Swift ([processing] store_data), but there is no section [swift]")
    values = dict(parser.items(_SECTION))
    section = values.get("auth_section", "").strip()
    if section:
        if not parser.has_section(section):
            raise SetupError(f"[swift] auth_section is {section}, but there is no such section")
        values = dict(parser.items(section)) | {name: values[name] for name in _OF_SESSION if name in values}
    plain: dict[str, Any] = {name: values.pop(name) for name in (*PLUGIN_OPTIONS, *_OF_SESSION) if name in values}
    if interfaces := values.pop("valid_interfaces", ""):
        plain["valid_interfaces"] = tuple(interface.strip() for interface in interfaces.split(","))
    insecure = values.pop("insecure", "").strip().lower() in ("true", "1", "yes", "on")
    auth_type = values.pop("auth_type", "").strip() or "password"
    options = {
        name: value for name, value in values.items() if name not in _OTHERS and value and name not in parser.defaults()
    }
    return IronicSettings(
        **plain,
        auth_type=auth_type,
        auth_options=options,
        insecure=insecure,
        service_type="object-store",
        timeout=_TIMEOUT_SECONDS,
    )


def _keystone(settings: IronicSettings) -> Any:
    try:
        from ferroscope.contrib.openstack.client import LoginSetupError
        from ferroscope.contrib.openstack.login import KeystoneLogin

        return KeystoneLogin(settings)
    except ImportError as exc:
        raise SetupError(f"the package {exc.name} is missing", extra("openstack")) from None
    except LoginSetupError as exc:
        raise SetupError(f"its data in Swift: {_ours(exc)}") from None


def _ours(exc: Exception) -> str:
    """Return the message, about ironic-inspector's configuration file."""
    return str(exc).replace("[ironic]", "[swift]")


# The newest migration of 12.5.0. Later releases have none: the project has ended.
_CONNECT_TIMEOUT_SECONDS: Final = 10
SCHEMA: Final = "b55109d5063a"
NAMESPACE: Final = uuid.UUID("4be0bd67-5f5b-4f8a-9d2f-0d6f1f0a5d0c")


class Introspection(msgspec.Struct, frozen=True):
    """A row of the source's ``nodes``: the last introspection of the node ``uuid``."""

    uuid: str
    state: str
    started_at: float | None
    finished_at: float | None
    error: str | None
    manage_boot: bool

    @property
    def ident(self) -> str:
        """The UUID of the imported inspection."""
        return str(uuid.uuid5(NAMESPACE, f"{self.uuid} {self.started_at}"))


_nodes = sa.table(
    "nodes", sa.column("uuid", sa.String), sa.column("state", sa.String), sa.column("started_at", sa.DateTime),
    sa.column("finished_at", sa.DateTime), sa.column("error", sa.Text), sa.column("manage_boot", sa.Boolean),
)  # fmt: skip
_attributes = sa.table("attributes", sa.column("name", sa.String), sa.column("value", sa.String))
_data = sa.table(
    "introspection_data", sa.column("uuid", sa.String), sa.column("processed", sa.Boolean), sa.column("data", sa.Text)
)
_rules = sa.table(
    "rules", sa.column("uuid", sa.String), sa.column("created_at", sa.DateTime), sa.column("description", sa.Text),
    sa.column("disabled", sa.Boolean), sa.column("scope", sa.String),
)  # fmt: skip
_conditions = sa.table(
    "rule_conditions", sa.column("id", sa.Integer), sa.column("rule", sa.String), sa.column("op", sa.String),
    sa.column("multiple", sa.String), sa.column("invert", sa.Boolean), sa.column("field", sa.Text),
    sa.column("params", sa.Text),
)  # fmt: skip
_actions = sa.table(
    "rule_actions", sa.column("id", sa.Integer), sa.column("rule", sa.String), sa.column("action", sa.String),
    sa.column("params", sa.Text),
)  # fmt: skip


class InspectorSource:
    """The source of an import: its database, and the place of the data of its introspections."""

    def __init__(self, connection: sa.Connection, stored: StoredData | None) -> None:
        self.connection = connection
        self._stored = stored

    def data_of(self, node: str) -> dict[bool, bytes]:
        """Return the processed (True) and unprocessed data of a node, as JSON; ``SetupError``."""
        if self._stored is not None:
            return self._stored.data_of(node)
        rows = self.connection.execute(sa.select(_data.c.processed, _data.c.data).where(_data.c.uuid == node))
        return {bool(row.processed): row.data.encode() for row in rows if row.data}


def connection_of(source: str) -> tuple[str, StoredData | None]:
    """Return the URL of the database, and the reader of the data if that is in Swift.

    The URL is ``source`` itself, or ``[database] connection`` of that configuration file. ``SetupError`` if the file
    cannot be read or says nothing.
    """
    if "://" in source:
        return source, None
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text_of(Path(source).read_bytes()))
    except (OSError, NotTextError, configparser.Error) as exc:
        raise SetupError(f"cannot read {source}: {str(exc).splitlines()[0]}") from exc
    connection = parser.get("database", "connection", fallback="").strip()
    if not connection:
        raise SetupError(f"{source} has no [database] connection")
    in_swift = parser.get("processing", "store_data", fallback="").strip() == "swift"
    return connection, StoredData(parser) if in_swift else None


def engine_of(connection: str) -> sa.Engine:
    """Return the engine for the URL of its database, in SQLite for reading only; ``SetupError``."""
    url = parse_url(connection)
    family = url.get_backend_name()
    if family == "sqlite":
        url = url.set(database=f"file:{url.database}", query={"mode": "ro", "uri": "true"})
        options = {}
    else:
        url = url.set(drivername="postgresql+psycopg" if family == "postgresql" else "mysql+pymysql")
        options = {"connect_timeout": _CONNECT_TIMEOUT_SECONDS}
    try:
        return sa.create_engine(url, poolclass=NullPool, connect_args=options)
    except NoSuchModuleError as exc:
        raise SetupError(f"cannot read the database of ironic-inspector: {exc}") from exc


def read_active_macs(engine: sa.Engine, max_macs: int) -> Sequence[str]:
    """Return the MACs of the machines that it inspects; ``SetupError``."""
    active = sa.select(_attributes.c.value).where(_attributes.c.name == "mac").limit(max_macs)
    try:
        with engine.connect() as connection:
            return connection.execute(active).scalars().all()
    except SQLAlchemyError as exc:
        raise SetupError(described(exc) if isinstance(exc, DBAPIError) else type(exc).__name__) from exc


@contextmanager
def connect(source: str) -> Iterator[InspectorSource]:
    """Connect to the source; ``SetupError`` if that fails or if it is not a database of ironic-inspector 12.5."""
    address, stored = connection_of(source)
    try:
        with engine_of(address).connect() as connection:
            version = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
            if version != SCHEMA:
                raise SetupError(
                    f"the schema of ironic-inspector is {version}, expected {SCHEMA}; "
                    "upgrade it with release 12.5: ironic-inspector-dbsync upgrade"
                )
            yield InspectorSource(connection, stored)
    except DBAPIError as exc:
        raise SetupError(f"cannot read the database of ironic-inspector: {described(exc)}") from exc
    finally:
        if stored is not None:
            stored.close()


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.replace(tzinfo=UTC).timestamp()


def introspections(connection: sa.Connection) -> list[Introspection]:
    """Return all introspections, oldest first."""
    rows = [
        Introspection(
            row.uuid,
            row.state,
            _seconds(row.started_at),
            _seconds(row.finished_at),
            row.error,
            row.manage_boot is not False,
        )
        for row in connection.execute(sa.select(_nodes))
    ]
    return sorted(rows, key=lambda introspection: (introspection.started_at or 0.0, introspection.uuid))


def rules(connection: sa.Connection) -> list[tuple[Rule, bool]]:
    """Return all rules as we store them, oldest first, and whether each is disabled."""
    conditions, actions = _of_rules(connection, _conditions), _of_rules(connection, _actions)
    stored_rules = []
    for row in connection.execute(sa.select(_rules).order_by(_rules.c.created_at, _rules.c.uuid)):
        rule = Rule(
            uuid=row.uuid,
            dialect=RuleDialect.INTROSPECTION,
            description=row.description,
            scope=row.scope or None,
            conditions=[
                {
                    "op": f"!{condition.op}" if condition.invert else condition.op,
                    "args": {"field": condition.field} | _params(condition),
                    "multiple": condition.multiple,
                }
                for condition in conditions.get(row.uuid, [])
            ],
            actions=[{"op": action.action, "args": _params(action)} for action in actions.get(row.uuid, [])],
            created_at=_seconds(row.created_at) or 0.0,
        )
        stored_rules.append((rule, bool(row.disabled)))
    return stored_rules


def _of_rules(connection: sa.Connection, table: Any) -> dict[str, list[Any]]:
    by_rule: dict[str, list[Any]] = {}
    for row in connection.execute(sa.select(table).order_by(table.c.id)):
        by_rule.setdefault(row.rule, []).append(row)
    return by_rule


def _params(row: Any) -> Document:
    params: Document = json_safety.decode_own(row.params) if row.params else {}
    return params
