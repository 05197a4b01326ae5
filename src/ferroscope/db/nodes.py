"""The nodes, and the indexes that identify a machine that calls back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress
from operator import ne
from typing import Any, Final

import msgspec
from sqlalchemy import Select, Table, bindparam, delete, func, insert, or_, select, update

from ferroscope.contracts.errors import NotFoundError, StaleError
from ferroscope.contracts.store import Later, Query, Usage
from ferroscope.core.callback_secret import Delivery, ended_secret
from ferroscope.core.lookup import MAX_MACS, Candidates, Evidence
from ferroscope.core.model import Inspection, Node
from ferroscope.core.states import AWAITED
from ferroscope.db import mapping, schema
from ferroscope.db import secrets as node_secrets
from ferroscope.db.errors import conflict
from ferroscope.db.inspections import INSPECTION
from ferroscope.db.mapping import Mapper, narrowed, one_of, padded, page, several, size_of, sizes, upsert
from ferroscope.db.ports import Macs
from ferroscope.db.session import Answer, PendingAnswer, Repository
from ferroscope_client.core.values import storable

NODE = Mapper(Node, schema.nodes)

_n = schema.nodes.c
_INSERT_NODE = insert(schema.nodes)
_BY_UUID = select(*NODE.columns).where(_n.uuid == bindparam("ident"))
_BY_NAME = select(*NODE.columns).where(_n.name == bindparam("ident"))
# A name may be as long.
_UUID_CHARACTERS: Final = 36
# lock -> (statements for a name, statements for what is as long as a UUID), to be tried in order.
_SELECT_NODE = {
    False: ((_BY_NAME,), (_BY_UUID, _BY_NAME)),
    True: ((_BY_NAME.with_for_update(),), (_BY_UUID.with_for_update(), _BY_NAME.with_for_update())),
}
_i = schema.inspections.c
_OWN = select(_n.inspection).where(_n.uuid == bindparam("ident")).scalar_subquery()
_PRESENT_INSPECTION = select(*INSPECTION.columns).where(_i.uuid == _OWN)
_ORPHANS = select(_n.uuid, _n.orphaned_at)
_UPDATE_NODE = update(schema.nodes).where(_n.uuid == bindparam("_uuid"), _n.version == bindparam("_version"))
_FIXED = ("uuid", "created_at")
_DISCARD_OBJECTS = (
    update(schema.objects)
    .where(schema.objects.c.state != "discarded", schema.objects.c.node == bindparam("_node"))
    .values(state="discarded", at=bindparam("_now"))
)
_CHILDREN = (
    schema.ports,
    schema.portgroups,
    schema.inspections,
    schema.inspection_data,
    schema.requests,
    schema.journal,
    schema.bmc_addresses,
    schema.callers,
    schema.search_index,
    schema.machine_macs,
)
_DELETE_CHILDREN = tuple(delete(table).where(table.c.node == bindparam("uuid")) for table in _CHILDREN)
# Makes the lock of a node valid on all nodes of a Galera cluster: only what is written is compared at COMMIT.
_WRITE_LOCKED = update(schema.nodes).where(_n.uuid == bindparam("_uuid")).values(version=_n.version + 1)
_DELETE_NODE = delete(schema.nodes).where(_n.uuid == bindparam("uuid"))


@lru_cache(maxsize=256)
def _narrow(mapper: Mapper[Node]) -> tuple[Select[Any], Select[Any]]:
    """Return the statements by UUID and by name that read what the mapper does."""
    chosen = select(*mapper.columns)
    return chosen.where(_n.uuid == bindparam("ident")), chosen.where(_n.name == bindparam("ident"))


class Nodes(Repository):
    """The registry of nodes.

    By UUID: ``_stored`` are the rows as last seen in this transaction, ``_locked`` the versions of the rows that are
    locked until its end. It has changed, added or removed the nodes ``_written``.
    """

    _stored: dict[str, dict[str, Any]] = {}
    _locked: dict[str, int] = {}
    _written: set[str] = set()

    def add(self, node: Node) -> None:
        """Store a new node; ``ConflictError`` if its UUID or name is in use."""
        row = NODE.to_row(msgspec.structs.replace(node, **node_secrets.encrypted(self._tx, node, ())))
        row["created_at"] = node.created_at or self._tx.now
        self._tx.changed_nodes.add(node.uuid)
        self._written.add(node.uuid)
        self._tx.written.note("node", node.uuid, node.version)
        self._tx.ask(_INSERT_NODE, row, failed=lambda exc: conflict(exc, row, schema.nodes))

    def get(self, ident: str, *, lock: bool = False, ahead: Callable[[str], None] | None = None) -> Node:
        """Return the node with this UUID or name; ``NotFoundError``.

        ``lock`` prevents other transactions from changing it before this one has ended. ``ahead`` asks for what will be
        needed beside it, by its UUID; it is not called for a name.
        """
        for statement in _SELECT_NODE[lock][len(ident) == _UUID_CHARACTERS]:
            asked = self._tx.ask(statement, {"ident": ident})
            if ahead is not None and statement is _SELECT_NODE[lock][True][0]:
                ahead(ident)
            rows = asked.answer().rows
            if rows:
                return self._read(rows[0], lock=lock)
        raise NotFoundError("node", ident)

    def show(self, ident: str, fields: frozenset[str]) -> Node:
        """Return the node with this UUID or name, with these fields only; ``NotFoundError``."""
        mapper: Mapper[Node] = narrowed(NODE, fields)
        for statement in _narrow(mapper)[len(ident) != _UUID_CHARACTERS :]:
            row = self._tx.run(statement, {"ident": ident}).first()
            if row is not None:
                return mapper.from_row(row)
        raise NotFoundError("node", ident)

    def locked(self, uuid: str) -> tuple[Node, Inspection | None]:
        """Lock the node with this UUID; return it with its current inspection. ``NotFoundError``."""
        return self.locked_later(uuid).get()

    def locked_later(self, uuid: str) -> Later[tuple[Node, Inspection | None]]:
        """Lock as ``locked`` does; what is requested after this sees all that was committed before the lock was got."""
        node = self._tx.ask(_SELECT_NODE[True][True][0], {"ident": uuid})
        # A separate statement, because it must see what was committed while the first one waited for the lock.
        inspection = self._tx.ask(_PRESENT_INSPECTION, {"ident": uuid})

        def get() -> tuple[Node, Inspection | None]:
            present, rows = inspection.answer().rows, node.answer().rows
            if not rows:
                raise NotFoundError("node", uuid)
            return self._read(rows[0], lock=True), INSPECTION.from_row(present[0]) if present else None

        return Later(get)

    def _read(self, row: Any, *, lock: bool) -> Node:
        node = NODE.from_row(row)
        self._stored[node.uuid] = dict(zip(NODE.fields, row, strict=True))
        if lock:
            self._locked[node.uuid] = node.version
            self._tx.changed_nodes.add(node.uuid)
        return node

    def update(self, node: Node) -> Node:
        """Save all fields and return the node with its new ``version`` and ``updated_at``.

        ``StaleError`` if the stored version is not ``node.version``, ``ConflictError`` if the name is in use;
        ``LostUpdateError`` if this transaction has written the node since it was read.
        """
        self._tx.written.check("node", node.uuid, node.version)
        changed = msgspec.structs.replace(node, version=node.version + 1, updated_at=self._tx.now)
        if changed.last_error is not None:
            changed = msgspec.structs.replace(changed, last_error=storable(changed.last_error))
        row = NODE.to_row(changed)
        stored = self._stored.get(node.uuid, {})
        unchanged = [name for name in node_secrets.FIELDS if row[name] == stored.get(name)]
        may_encrypt = self._tx.keys.has_file or len(unchanged) < len(node_secrets.FIELDS)
        if may_encrypt and (encrypted := node_secrets.encrypted(self._tx, changed, unchanged)):
            changed = msgspec.structs.replace(changed, **encrypted)
            row = NODE.to_row(changed)
        changes = self._changes(row, node.version)

        def check(answer: Answer) -> None:
            if answer.rowcount == 0:
                self.get(node.uuid)
                raise StaleError(f"node {node.uuid} was changed concurrently")

        self._tx.ask(
            _UPDATE_NODE,
            changes | {"_uuid": node.uuid, "_version": node.version},
            # A locked row cannot have changed, so COMMIT need not wait for the check.
            check=None if self._locked.get(node.uuid) == node.version else check,
            failed=lambda exc: conflict(exc, row, schema.nodes),
        )
        self._tx.changed_nodes.add(node.uuid)
        self._written.add(node.uuid)
        self._tx.written.note("node", node.uuid, changed.version)
        # The UPDATE has locked the row until the end of the transaction.
        self._stored[node.uuid], self._locked[node.uuid] = row, changed.version
        return changed

    def _changes(self, row: dict[str, Any], version: int) -> dict[str, Any]:
        """Return the columns that differ from what this transaction has read; all if it has not read this version."""
        stored = self._stored.get(row["uuid"], {})
        is_current = stored.get("version") == version
        # A row has the columns in the same order, whether it was read or written.
        changes = dict(compress(row.items(), map(ne, row.values(), stored.values())) if is_current else row)
        for name in _FIXED:
            changes.pop(name, None)
        return changes

    def write_locked(self) -> None:
        """Write the nodes that are locked and have not been written; their contents stay the same."""
        for uuid in sorted(self._locked.keys() - self._written):
            self._tx.ask(_WRITE_LOCKED, {"_uuid": uuid})

    def remove(self, uuid: str) -> None:
        """Delete the node and all its data, including BMC addresses; discard its objects."""
        self._written.add(uuid)
        self._tx.written.removed("node", uuid)
        Macs(self._tx).removed_with(uuid)
        for statement in (_DELETE_NODE, *_DELETE_CHILDREN):
            self._tx.ask(statement, {"uuid": uuid})
        self._tx.ask(_DISCARD_OBJECTS, {"_node": uuid, "_now": self._tx.now})

    def list(self, query: Query) -> Sequence[Node]:
        """Return one page of nodes."""
        return page(self._tx, narrowed(NODE, query.fields), query)

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""
        return sizes(self._tx, narrowed(NODE, query.fields), query)

    def usage(self, owner: str, *, with_bytes: bool) -> Usage:
        """Return what the nodes of this owner take, including what this transaction has written.

        ``with_bytes``: measure them, too; otherwise only indexes are read. Until its end, other transactions that ask
        for the same wait, unless the owner has had no node before.
        """
        first = self._tx.run(_FIRST_OF, {"owner": owner}).first()
        if first is not None and first[0] not in self._locked:
            locked = self._tx.run(_LOCK, {"ident": first[0]}).first()
            if locked is not None:
                self._locked[first[0]] = int(locked[0])
        counts, sizes = (
            [int(self._tx.run(statement, {"owner": owner}).scalars()[0] or 0) for statement in statements]
            for statements in (_OWNED_ROWS, _OWNED_BYTES if with_bytes else ())
        )
        return Usage(nodes=counts[0], ports=counts[1] + counts[2], bytes=sum(sizes))

    def orphans(self) -> Mapping[str, float | None]:
        """Return ``orphaned_at`` of every node by UUID."""
        return dict(tuple(row) for row in self._tx.run(_ORPHANS))


# What the nodes of a project take.

_OWNED = select(_n.uuid).where(_n.owner == bindparam("owner"))
_FIRST_OF = _OWNED.order_by(_n.created_at, _n.uuid).limit(1)
_LOCK = select(_n.version).where(_n.uuid == bindparam("ident")).with_for_update()
_OWNED_ROWS = (
    select(func.count()).select_from(_OWNED.subquery("owned")),
    *(select(func.count()).where(table.c.node.in_(_OWNED)) for table in (schema.ports, schema.portgroups)),
)
_OWNED_BYTES = (
    select(func.sum(size_of(NODE.columns))).where(_n.owner == bindparam("owner")),
    *(
        select(func.sum(size_of(table.columns))).where(table.c.node.in_(_OWNED))
        for table in (schema.ports, schema.portgroups, schema.inspection_data)
    ),
)


# The indexes.

_b = schema.bmc_addresses.c
_NODE_BY_UUID = select(*NODE.columns).where(_n.uuid == bindparam("uuid"))
_DELETE_BMC = delete(schema.bmc_addresses).where(_b.node == bindparam("_node"))
_CALLED_DAYS: Final = 30 * 86400.0
# Anybody can call as a machine that is waited for, from any number of addresses.
MAX_CALLERS: Final = 8

_c = schema.callers.c
_CALLS_OF = select(_c.at).where(_c.node == bindparam("_node"))
_FORGET_CALLERS = delete(schema.callers).where(_c.node == bindparam("_node"), _c.at < bindparam("_until"))
_BMC_OF = select(_b.address).where(_b.node == bindparam("node"))
_AWAITED = or_(*(_n.state == state for state in sorted(AWAITED)))
_CALLERS = select(*NODE.columns).where(_n.uuid.in_(select(_c.node).where(_c.source == bindparam("source"))), _AWAITED)


@lru_cache(maxsize=64)
def _select_addresses(table: Table, key: str, number: int) -> Select[Any]:
    """Return what selects (address, node) of the rows with one of so many values of the key."""
    return select(table.c.address, table.c.node).where(one_of(table.c[key], key, number))


@lru_cache(maxsize=64)
def _select_owners(table: Table, addresses: int, *, awaited: bool = False) -> Select[Any]:
    """Return what selects the nodes with one of so many addresses; ``awaited``: only those that wait for a callback."""
    owners = select(table.c.node).where(one_of(table.c.address, "address", addresses))
    return select(*NODE.columns).where(_n.uuid.in_(owners), *((_AWAITED,) if awaited else ()))


# Only the current inspection of a node counts. After it has ended, the digest of its secret is stored.
_BY_SECRET = (
    select(*NODE.columns, _i.secret_delivery)
    .select_from(schema.inspections.join(schema.nodes, _n.uuid == _i.node))
    .where(one_of(_i.secret, "secret", 2), _n.inspection == _i.uuid)
)


class Addresses(Repository):
    """The indexes that identify a machine that calls back."""

    def candidates(self, evidence: Evidence, secret: str | None = None) -> Candidates:
        """Return the nodes that match, in a constant number of indexed queries.

        ``secret``: the one that the machine presented. ``same`` and ``different`` of the result are left to the caller.
        """
        macs, addresses = padded(evidence.macs), padded(evidence.bmc_addresses)
        parameters = several("address", macs)
        uuid_query = self._tx.ask(_NODE_BY_UUID, {"uuid": evidence.uuid}) if evidence.uuid else None
        mac_query = port_query = machine_query = bmc_query = None
        if macs:
            mac_query = self._tx.ask(_select_owners(schema.ports, len(macs)), parameters)
            port_query = self._tx.ask(_select_addresses(schema.ports, "address", len(macs)), parameters)
            machine_query = self._tx.ask(_select_addresses(schema.machine_macs, "address", len(macs)), parameters)
        if addresses:
            statement = _select_owners(schema.bmc_addresses, len(addresses), awaited=True)
            bmc_query = self._tx.ask(statement, several("address", addresses))
        secrets = several("secret", (secret, ended_secret(secret))) if secret else {}
        secret_query = self._tx.ask(_BY_SECRET, secrets) if secrets else None
        self._tx.flush()
        by_uuid, by_mac, by_bmc = _nodes(uuid_query), _nodes(mac_query), _nodes(bmc_query)
        # A port has precedence over a discovered machine that called with its MAC.
        matches = _pairs(machine_query) | _pairs(port_query)
        discovered = set(matches.values()) - {node.uuid for node in by_mac}
        if discovered:
            owners = self._find(_select_owners(schema.machine_macs, len(macs)), parameters)
            by_mac += [node for node in owners if node.uuid in discovered]
        proven = secret_query.received.rows if secret_query is not None else ()
        return Candidates(
            by_uuid=by_uuid[0] if by_uuid else None,
            by_mac=by_mac,
            by_bmc=by_bmc,
            by_secret=NODE.from_row(proven[0][:-1]) if proven else None,
            over_bmc=bool(proven) and proven[0][-1] == Delivery.VIRTUAL_MEDIA,
            matches=matches,
        )

    def _find(self, statement: Select[Any], parameters: dict[str, Any]) -> list[Node]:
        return [NODE.from_row(row) for row in self._tx.run(statement, parameters).rows]

    def select_owned(self, macs: Sequence[str]) -> set[str]:
        """Return the MACs among these that identify a node: by a port, or by its discovery."""
        owned: set[str] = set()
        for start in range(0, len(macs), MAX_MACS):
            part = padded(macs[start : start + MAX_MACS])
            parameters = several("address", part)
            for table in (schema.ports, schema.machine_macs):
                owned.update(self._tx.run(_select_addresses(table, "address", len(part)), parameters).scalars())
        return owned

    def set_bmc(self, node: str, addresses: Iterable[str]) -> None:
        """Replace the BMC addresses of the node."""
        wanted = set(addresses)
        if set(self._tx.run(_BMC_OF, {"node": node}).scalars()) != wanted:
            self._tx.ask(_DELETE_BMC, {"_node": node})
            mapping.add(
                self._tx, schema.bmc_addresses, ("address", "node"), [(address, node) for address in sorted(wanted)]
            )

    def bmc_of(self, node: str) -> Sequence[str]:
        """Return the BMC addresses of the node."""
        return sorted(self._tx.run(_BMC_OF, {"node": node}).scalars())

    def of_nodes(self, nodes: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the BMC addresses of these nodes, without nodes that have none."""
        if not nodes:
            return {}
        uuids = padded(nodes)
        stored: dict[str, list[str]] = {}
        statement = _select_addresses(schema.bmc_addresses, "node", len(uuids))
        for address, node in self._tx.run(statement, several("node", uuids)):
            stored.setdefault(node, []).append(address)
        return stored

    def owners(self, bmc_addresses: Sequence[str]) -> Sequence[Node]:
        """Return the nodes with one of these BMC addresses, whatever their state."""
        if not bmc_addresses:
            return []
        addresses = padded(bmc_addresses)
        return self._find(_select_owners(schema.bmc_addresses, len(addresses)), several("address", addresses))

    def sharing(self, nodes: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return, for each of these nodes that has any, the other nodes with one of its BMC addresses."""
        own, neighbor = schema.bmc_addresses.alias("own"), schema.bmc_addresses.alias("other")
        statement = (
            select(own.c.node, neighbor.c.node)
            .select_from(own.join(neighbor, own.c.address == neighbor.c.address))
            .where(own.c.node.in_(list(nodes)), neighbor.c.node != own.c.node)
            .order_by(own.c.node, neighbor.c.node)
        )
        sharing: dict[str, dict[str, None]] = {}  # several addresses may be shared
        for node, same in self._tx.connection.execute(statement):
            sharing.setdefault(node, {})[same] = None
        return {node: list(others) for node, others in sharing.items()}

    def called(self, node: str, source: str) -> None:
        """Record that the node's machine has just called from this address; of many, the latest are kept."""
        if source:
            row = {"source": source, "node": node, "at": self._tx.now}
            self._tx.ask(upsert(self._tx.dialect.name, schema.callers), row)
            # As a check it costs no round trip: the node is written in the same transaction, and checked as well.
            self._tx.ask(_CALLS_OF, {"_node": node}, check=partial(self._forget_callers, node))

    def _forget_callers(self, node: str, answer: Answer) -> None:
        times = [at for (at,) in answer.rows]
        latest = sorted(times, reverse=True)[:MAX_CALLERS]
        until = max(latest[0] - _CALLED_DAYS, latest[-1] if len(latest) == MAX_CALLERS else 0.0)
        if min(times) < until:
            self._tx.ask(_FORGET_CALLERS, {"_node": node, "_until": until})

    def callers(self, source: str) -> Sequence[Node]:
        """Return the nodes that wait for a callback and whose machines have called from this address before."""
        return self._find(_CALLERS, {"source": source}) if source else []


def _pairs(sent: PendingAnswer | None) -> dict[str, str]:
    return {} if sent is None else dict(sent.received.rows)


def _nodes(sent: PendingAnswer | None) -> list[Node]:
    return [] if sent is None else [NODE.from_row(row) for row in sent.received.rows]
