"""Keeps our copy of the nodes and ports of an attached Ironic up to date.

It only adds and updates nodes; ``registry_sync`` decides about those that are missing. Nodes under inspection are left
alone: they were read when it started. A list of ports without any port of more than ``[registry] max_missing`` of the
nodes is not believed, because the PXE filter would let machines boot whose ports seem to be gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Final, TypeVar

import msgspec
import structlog

from ferroscope import mirror, transition
from ferroscope.config.options import RegistrySettings
from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.contracts.remote import NodeSource, Registry, RegistryUnavailableError
from ferroscope.contracts.store import Query
from ferroscope.core import registry
from ferroscope.core.model import Document, Entry, Node, Port, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import ACTIVE, Event
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.leadership import StepLeadership
from ferroscope.telemetry.finding import Finding

T = TypeVar("T")
Item = TypeVar("Item", Node, Port)

_CHECK_INTERVAL: Final = 0.5  # seconds between calls of keep_alive during a query
_PAGE: Final = 500

_log = structlog.get_logger(__name__)


class _Found(msgspec.Struct, frozen=True):
    """What Ironic has: nodes, and their ports by node."""

    nodes: list[Document]
    ports: dict[str, list[Document]]


class RegistryMirror:
    """A ``PeriodicTask``. ``problem`` is a finding for operators, if any."""

    name = "periodic/registry-mirror"
    only_fenced = True

    def __init__(self, store: Store, ironic: Registry, *, settings: RegistrySettings) -> None:
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
            found = _await(self._pool.submit(self._query), leadership)
        except RegistryUnavailableError as exc:
            self.problem = Finding("registry-unavailable", "wrong", str(exc), "check Ironic and the section [ironic]")
            return f"nothing changed: {exc}"
        known, ports = self._known(leadership)
        listed = [str(node["uuid"]) for node in found.nodes if ports.get(str(node["uuid"]))]
        bare = sum(not found.ports.get(uuid) for uuid in listed)
        if bare > max(1, int(len(listed) * self._settings.max_missing)):
            summary = (
                f"Ironic lists no ports of {bare} of the {len(listed)} nodes that have ports here, more than "
                "[registry] max_missing allows; the copies of nodes and ports are not updated"
            )
            advice = "check the roles of this service in Ironic; if the ports are gone, raise max_missing temporarily"
            self.problem = Finding("registry-short", "wrong", summary, advice)
            return f"nothing changed: {summary}"
        changed = 0
        conflicts: list[str] = []
        for document in found.nodes:
            leadership.keep_alive()
            uuid = str(document["uuid"])
            if not _is_current(document, found.ports[uuid], known.get(uuid), ports.get(uuid, [])):
                try:
                    changed += self._save(document, found.ports[uuid], began, leadership)
                except ConflictError as exc:
                    conflicts.append(f"{uuid}: {exc}")
        self.problem = _conflicts(conflicts)
        return f"{len(found.nodes)} nodes in Ironic, {changed} updated here"

    def close(self) -> None:
        """Stop querying."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _query(self) -> _Found:
        nodes = list(self._ironic.nodes())
        ports: dict[str, list[Document]] = defaultdict(list)
        for port in self._ironic.ports():
            ports[str(port.get("node_uuid"))].append(port)
        return _Found(nodes, ports)

    def _known(self, leadership: StepLeadership) -> tuple[dict[str, Node], dict[str, list[Port]]]:
        nodes = {node.uuid: node for node in self._all(_nodes, leadership)}
        ports: dict[str, list[Port]] = defaultdict(list)
        for port in self._all(_ports, leadership):
            ports[port.node].append(port)
        return nodes, ports

    def _all(self, read: Callable[[Transaction, Query], Sequence[Item]], leadership: StepLeadership) -> Iterator[Item]:
        marker: str | None = None
        while True:
            leadership.keep_alive()
            after = Query(limit=_PAGE, marker=marker, sort_key="uuid")
            try:
                page = self._store.read(partial(_page_of, read, after))
            except NotFoundError:  # the marker was deleted meanwhile: the next run reads the rest
                return
            yield from page
            if len(page) < _PAGE:
                return
            marker = page[-1].uuid

    def _save(self, document: Document, ports: Sequence[Document], began: float, leadership: StepLeadership) -> bool:
        def work(tx: Transaction) -> bool:
            leadership.fence(tx)
            try:
                node: Node | None = tx.nodes.get(str(document["uuid"]), lock=True)
            except NotFoundError:
                node = None
            # What was written since we asked is newer than the answer.
            if node is not None and (node.state in ACTIVE or (node.updated_at or 0.0) >= began):
                return False
            mirror.save(tx, document, ports)
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
    if node is None or registry.copied(document, node) != node:
        return False
    there = {port.uuid: port for port in map(registry.port, documents) if port is not None}
    ours = {port.uuid: port for port in ports}
    return there.keys() == ours.keys() and all(registry.same_port(port, there[uuid]) for uuid, port in ours.items())


def _conflicts(found: list[str]) -> Finding | None:
    if not found:
        return None
    _log.warning("nodes of Ironic conflict with ours", conflicts=found[:20])
    summary = f"{len(found)} nodes of Ironic conflict with others here, such as {found[0]}"
    return Finding("registry-conflict", "wrong", summary, "remove the wrong node or port; see the log for all of them")


def _await(query: Future[T], leadership: StepLeadership) -> T:
    """Return the answer; call ``keep_alive`` until it arrives."""
    while not wait([query], _CHECK_INTERVAL).done:
        leadership.keep_alive()
    return query.result()


_DAY: Final = 86400.0


class RegistrySync:
    """A ``PeriodicTask``; without a ``source`` there is nothing to do.

    ``problem`` is a finding for operators, if any.
    """

    name = "periodic/registry-sync"
    only_fenced = True

    def __init__(self, store: Store, source: NodeSource | None, *, settings: RegistrySettings, process: str) -> None:
        self.period = settings.sync_period if source is not None else 0.0
        self.problem: Finding | None = None
        self._store = store
        self._source = source
        self._settings = settings
        self._process = process
        self._where = "[registry] url" if settings.url else "[ironic]"
        # A separate thread, because the leader must call keep_alive while the registry answers slowly.
        self._pool = ThreadPoolExecutor(1, "registry")
        self._asking: Future[frozenset[str] | RegistryUnavailableError] | None = None

    def step(self, leadership: StepLeadership) -> str:
        """Compare once; return a status."""
        if self._source is None:
            return "no registry attached"
        before = self._store.read(lambda tx: tx.nodes.orphans())
        tracked = self._query(self._source, leadership)
        self.problem = self._objection(frozenset(before), tracked)
        if isinstance(tracked, RegistryUnavailableError) or self.problem is not None:
            return f"nothing changed: {self.problem.summary if self.problem else tracked}"
        deleted = 0
        for uuid in sorted(before):
            if uuid in tracked and before[uuid] is not None:
                self._on(uuid, self._tracked_again, leadership)
            elif uuid not in tracked and before[uuid] is None:
                self._on(uuid, self._mark, leadership)
            elif uuid not in tracked:
                deleted += self._on(uuid, self._delete, leadership)
        missing = len(before.keys() - tracked)
        return f"{len(tracked)} nodes tracked, {missing} of ours are orphans, {deleted} being deleted"

    def close(self) -> None:
        """Stop querying."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _query(self, source: NodeSource, leadership: StepLeadership) -> frozenset[str] | RegistryUnavailableError:
        """Return the answer to a query sent now, never one left over from an earlier leadership."""
        if self._asking is not None:
            _await_sync(self._asking, leadership)
        self._asking = self._pool.submit(_ask, source)
        answer = _await_sync(self._asking, leadership)
        self._asking = None
        return answer

    def _objection(self, ours: frozenset[str], tracked: frozenset[str] | RegistryUnavailableError) -> Finding | None:
        """Return why this answer must not change anything, if so."""
        if isinstance(tracked, RegistryUnavailableError):
            summary = f"cannot compare with the registry at {self._where}: {tracked}"
            return Finding("registry-unavailable", "wrong", summary, f"check {self._where} and the service there")
        if ours and not tracked:
            summary = f"the registry at {self._where} lists no nodes; none of ours is marked or deleted"
            advice = "check that the URL is right, and that the registry lists all nodes to this service"
            return Finding("registry-empty", "wrong", summary, advice)
        missing = len(ours - tracked)
        if missing > max(1, int(len(ours) * self._settings.max_missing)):
            summary = (
                f"{missing} of our {len(ours)} nodes are missing from the registry at {self._where}, more than "
                "[registry] max_missing allows; none is marked or deleted"
            )
            advice = "if they are gone for good, run ferroscope node delete, or raise max_missing temporarily"
            return Finding("registry-short", "wrong", summary, advice)
        return None

    def _on(self, uuid: str, act: Callable[[Transaction, Node], bool], leadership: StepLeadership) -> bool:
        leadership.keep_alive()

        def work(tx: Transaction) -> bool:
            leadership.fence(tx)
            try:
                return act(tx, tx.nodes.get(uuid, lock=True))
            except NotFoundError:
                _log.debug("deleted already", node=uuid)
                return False

        return self._store.write(work)

    def _mark(self, tx: Transaction, node: Node) -> bool:
        days = self._settings.delete_after / _DAY
        follows = (
            f"it is deleted in {days:g} days unless it is listed again" if days else "it is not deleted automatically"
        )
        return self._set(tx, node, tx.now, f"the registry no longer lists this node; {follows}")

    def _tracked_again(self, tx: Transaction, node: Node) -> bool:
        return self._set(tx, node, None, "the registry lists this node again")

    def _set(self, tx: Transaction, node: Node, since: float | None, message: str) -> bool:
        tx.nodes.update(msgspec.structs.replace(node, orphaned_at=since))
        tx.journal.append(
            [
                Entry(
                    node=node.uuid,
                    step="registry",
                    message=message,
                    process=self._process,
                    severity=Severity.INFO if since is None else Severity.WARNING,
                    reason=None if since is None else Reason.NOT_TRACKED,
                )
            ]
        )
        return True

    def _delete(self, tx: Transaction, node: Node) -> bool:
        """Delete an expired orphan unless it is protected or in use."""
        over = self._settings.delete_after and (node.orphaned_at or tx.now) + self._settings.delete_after < tx.now
        if not over or node.attributes.get("protected") or node.instance_uuid is not None or node.state in ACTIVE:
            return False
        transition.submit(tx, node, Event.DELETE, process=self._process)
        return True


def _await_sync(query: Future[T], leadership: StepLeadership) -> T:
    """Return the answer; call ``keep_alive`` until it arrives."""
    while not wait([query], _CHECK_INTERVAL).done:
        leadership.keep_alive()
    return query.result()


def _ask(source: NodeSource) -> frozenset[str] | RegistryUnavailableError:
    try:
        return source.tracked()
    except RegistryUnavailableError as exc:
        return exc
