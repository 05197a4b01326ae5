"""Marks, and finally deletes, nodes that an attached Ironic, or the one at ``[registry] url``, no longer has."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

import msgspec
import structlog

from ferroscope import transition
from ferroscope.config.options import RegistrySettings
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.remote import IronicUnavailableError, NodeSource
from ferroscope.core.model import Entry, Node, Port, Severity
from ferroscope.core.states import Event
from ferroscope.db import Store, Transaction
from ferroscope.leadership import StepLeadership
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import ACTIVE
from ferroscope_client.core.values import many

T = TypeVar("T")
Item = TypeVar("Item", Node, Port)

_CHECK_INTERVAL: Final = 0.5  # seconds between calls of keep_alive during a query
_PAGE_NODES: Final = 500

_log = structlog.get_logger(__name__)


_DAY_SECONDS: Final = 86400.0


class Orphans:
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
        self._asking: Future[frozenset[str] | IronicUnavailableError] | None = None

    def step(self, leadership: StepLeadership) -> str:
        """Compare once; return a status."""
        if self._source is None:
            return "no registry attached"
        before = self._store.read(lambda tx: tx.nodes.orphans())
        tracked = self._query(self._source, leadership)
        self.problem = self._objection(frozenset(before), tracked)
        if isinstance(tracked, IronicUnavailableError) or self.problem is not None:
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
        return f"{many(len(tracked), 'node')} tracked, {many(missing, 'orphan')} of ours, {deleted} being deleted"

    def close(self) -> None:
        """Stop querying."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _query(self, source: NodeSource, leadership: StepLeadership) -> frozenset[str] | IronicUnavailableError:
        """Return the answer to a query sent now, never the late answer of an earlier leadership."""
        if self._asking is not None:
            _await(self._asking, leadership)
        self._asking = self._pool.submit(_ask, source)
        answer = _await(self._asking, leadership)
        self._asking = None
        return answer

    def _objection(self, ours: frozenset[str], tracked: frozenset[str] | IronicUnavailableError) -> Finding | None:
        """Return why this answer must not change anything, if so."""
        if isinstance(tracked, IronicUnavailableError):
            summary = f"cannot compare with the registry at {self._where}: {tracked}"
            return Finding("registry-unavailable", "wrong", summary, f"check {self._where} and the service there")
        if ours and not tracked:
            summary = f"the registry at {self._where} lists no nodes; none of ours is marked or deleted"
            advice = "check that the URL is right, and that the registry lists all nodes to this service"
            return Finding("registry-empty", "wrong", summary, advice)
        missing = len(ours - tracked)
        if missing > max(1, int(len(ours) * self._settings.max_missing)):
            summary = (
                f"the registry at {self._where} lacks {missing} of {many(len(ours), 'node')} of ours, more than "
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
        days = self._settings.delete_after / _DAY_SECONDS
        after = f"{days:g} {'day' if days == 1 else 'days'}"
        follows = (
            f"it will be deleted in {after} unless it is listed again" if days else "it is not deleted automatically"
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


def _await(query: Future[T], leadership: StepLeadership) -> T:
    """Return the answer; call ``keep_alive`` until it arrives."""
    while not wait([query], _CHECK_INTERVAL).done:
        leadership.keep_alive()
    return query.result()


def _ask(source: NodeSource) -> frozenset[str] | IronicUnavailableError:
    try:
        return source.list_tracked_uuids()
    except IronicUnavailableError as exc:
        return exc
