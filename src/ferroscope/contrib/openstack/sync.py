"""Keeps our copy of the nodes and ports of an attached Ironic up to date.

It only adds and updates nodes; ``periodic.orphans`` decides about missing ones. Nodes under inspection are left alone:
they were read when it started. If the list of ports lacks all ports of more than ``[registry] max_missing`` of the
nodes, it is ignored: otherwise the PXE filter would let machines boot whose ports seem to be gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Final, TypeVar

import msgspec
import structlog

from ferroscope.config.options import RegistrySettings
from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.contracts.remote import IronicClient, IronicUnavailableError
from ferroscope.contracts.store import Query
from ferroscope.contrib.openstack import copies
from ferroscope.core import ironic_nodes
from ferroscope.core.model import Document, Node, Port
from ferroscope.db import Store, Transaction
from ferroscope.leadership import StepLeadership
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.states import ACTIVE
from ferroscope_client.core.values import many

T = TypeVar("T")
Item = TypeVar("Item", Node, Port)

_CHECK_SECONDS: Final = 0.5  # seconds between calls of keep_alive during a query
_ROWS_PER_PAGE: Final = 500

_log = structlog.get_logger(__name__)


class _IronicNodes(msgspec.Struct, frozen=True):
    """What Ironic has: nodes, and their ports by node."""

    nodes: list[Document]
    ports: dict[str, list[Document]]


class IronicCopies:
    """A ``PeriodicTask``. ``problem`` is a finding for operators, if any."""

    name = "periodic/registry-mirror"
    only_fenced = True

    def __init__(self, store: Store, ironic: IronicClient, *, settings: RegistrySettings) -> None:
        self.period = settings.sync_period
        self.problem: Finding | None = None
        self._store = store
        self._ironic = ironic
        self._settings = settings
        # A separate thread, because the leader must call keep_alive while Ironic answers slowly.
        self._pool = ThreadPoolExecutor(1, "registry-mirror")

    def step(self, leadership: StepLeadership) -> str:
        """Compare once; return a status."""
        began = self._store.read(lambda tx: tx.now)
        try:
            remote = _await(self._pool.submit(self._query), leadership)
        except IronicUnavailableError as exc:
            self.problem = Finding("registry-unavailable", "wrong", str(exc), "check Ironic and the section [ironic]")
            return f"nothing changed: {exc}"
        stored, ports = self._read_stored(leadership)
        listed = [str(node["uuid"]) for node in remote.nodes if ports.get(str(node["uuid"]))]
        bare = sum(not remote.ports.get(uuid) for uuid in listed)
        if bare > max(1, int(len(listed) * self._settings.max_missing)):
            summary = (
                f"Ironic lists no ports of {bare} of {many(len(listed), 'node')} with ports here, more than "
                "[registry] max_missing allows; the copies of nodes and ports are not updated"
            )
            advice = "check the roles of this service in Ironic; if the ports are gone, raise max_missing temporarily"
            self.problem = Finding("registry-short", "wrong", summary, advice)
            return f"nothing changed: {summary}"
        changed = 0
        conflicts: list[str] = []
        for document in remote.nodes:
            leadership.keep_alive()
            uuid = str(document["uuid"])
            if not _is_current(document, remote.ports[uuid], stored.get(uuid), ports.get(uuid, [])):
                try:
                    changed += self._save(document, remote.ports[uuid], began, leadership)
                except ConflictError as exc:
                    conflicts.append(f"{uuid}: {exc}")
        self.problem = _conflicts(conflicts)
        return f"{many(len(remote.nodes), 'node')} in Ironic, {changed} updated here"

    def close(self) -> None:
        """Stop querying."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _query(self) -> _IronicNodes:
        nodes = list(self._ironic.nodes())
        ports: dict[str, list[Document]] = defaultdict(list)
        for port in self._ironic.ports():
            ports[str(port.get("node_uuid"))].append(port)
        return _IronicNodes(nodes, ports)

    def _read_stored(self, leadership: StepLeadership) -> tuple[dict[str, Node], dict[str, list[Port]]]:
        nodes = {node.uuid: node for node in self._all(_nodes, leadership)}
        ports: dict[str, list[Port]] = defaultdict(list)
        for port in self._all(_ports, leadership):
            ports[port.node].append(port)
        return nodes, ports

    def _all(self, read: Callable[[Transaction, Query], Sequence[Item]], leadership: StepLeadership) -> Iterator[Item]:
        marker: str | None = None
        while True:
            leadership.keep_alive()
            after = Query(limit=_ROWS_PER_PAGE, marker=marker, sort_key="uuid")
            try:
                page = self._store.read(partial(_page_of, read, after))
            except NotFoundError:  # the marker was deleted meanwhile: the next run reads the rest
                return
            yield from page
            if len(page) < _ROWS_PER_PAGE:
                return
            marker = page[-1].uuid

    def _save(self, document: Document, ports: Sequence[Document], began: float, leadership: StepLeadership) -> bool:
        def work(tx: Transaction) -> bool:
            leadership.fence(tx)
            try:
                node: Node | None = tx.nodes.get(str(document["uuid"]), lock=True)
            except NotFoundError:
                node = None
            # A copy that was written after our query is newer than the answer.
            if node is not None and (node.state in ACTIVE or (node.updated_at or 0.0) >= began):
                return False
            copies.save(tx, document, ports)
            return True

        try:
            return self._store.write(work)
        except ConflictError:  # a call has just added the same node
            return self._store.write(work)


def _page_of(read: Callable[[Transaction, Query], Sequence[Item]], after: Query, tx: Transaction) -> Sequence[Item]:
    return read(tx, after)


def _nodes(tx: Transaction, query: Query) -> Sequence[Node]:
    return tx.nodes.list(query)


def _ports(tx: Transaction, query: Query) -> Sequence[Port]:
    return tx.ports.list(query)


def _is_current(document: Document, documents: Iterable[Document], node: Node | None, ports: Sequence[Port]) -> bool:
    """Whether our copy is the same."""
    if node is None or ironic_nodes.copy_node(document, node) != node:
        return False
    remote = {port.uuid: port for port in map(ironic_nodes.port, documents) if port is not None}
    local = {port.uuid: port for port in ports}
    return remote.keys() == local.keys() and all(
        ironic_nodes.same_port(port, remote[uuid]) for uuid, port in local.items()
    )


def _conflicts(conflicts: list[str]) -> Finding | None:
    if not conflicts:
        return None
    _log.warning("nodes of Ironic conflict with ours", conflicts=conflicts[:20])
    summary = f"conflicts with others here: {many(len(conflicts), 'node')} of Ironic, such as {conflicts[0]}"
    return Finding("registry-conflict", "wrong", summary, "remove the wrong node or port; see the log for all of them")


def _await(query: Future[T], leadership: StepLeadership) -> T:
    """Return the answer; call ``keep_alive`` until it arrives."""
    while not wait([query], _CHECK_SECONDS).done:
        leadership.keep_alive()
    return query.result()
