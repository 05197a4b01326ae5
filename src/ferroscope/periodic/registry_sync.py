"""Nodes that the attached registry no longer tracks are marked as orphans; those that stay so for days are deleted.

A list may be short for many reasons other than that nodes are gone: a registry restored from a backup, a policy
that shows us nothing, somebody else's answer. So nothing is done where it is empty, or where more nodes are missing
at once than ``[registry] max_missing`` allows; and a node that is protected, in use or under inspection is never
deleted. A registry that cannot be asked changes nothing. Source: the synchronization task of the HA specification.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

import msgspec
import structlog

from ferroscope import transition
from ferroscope.config.options import RegistrySettings
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.remote import NodeSource, RegistryUnavailableError
from ferroscope.contracts.store import StepLeadership, Store, Transaction
from ferroscope.core.model import Entry, Node, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import ACTIVE, Event
from ferroscope.telemetry.finding import Finding

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_LOOK_EVERY: Final = 0.5  # seconds between two signs of life while the registry is being asked
_DAY: Final = 86400.0


class RegistrySync:
    """A ``PeriodicTask``; without a ``source`` the registry is our own and there is nothing to do.

    ``problem`` is what somebody should look into, if anything.
    """

    name = "periodic/registry-sync"

    def __init__(self, store: Store, source: NodeSource | None, *, settings: RegistrySettings, process: str) -> None:
        self.period = settings.sync_period if source is not None else 0.0
        self.problem: Finding | None = None
        self._store = store
        self._source = source
        self._settings = settings
        self._process = process
        # Beside the leader, who has to go on showing signs of life: a registry may take as long as it likes.
        self._pool = ThreadPoolExecutor(1, "registry")
        self._asking: Future[frozenset[str] | RegistryUnavailableError] | None = None

    def step(self, leadership: StepLeadership) -> str:
        """Compare once; return what was found."""
        if self._source is None:
            return "nodes are our own"
        before = self._store.read(lambda tx: tx.nodes.orphans())
        tracked = self._asked(self._source, leadership)
        self.problem = self._objection(frozenset(before), tracked)
        if isinstance(tracked, RegistryUnavailableError) or self.problem is not None:
            return f"changes nothing: {self.problem.summary if self.problem else tracked}"
        deleted = 0
        for uuid in sorted(before):
            if uuid in tracked and before[uuid] is not None:
                self._on(uuid, self._tracked_again, leadership)
            elif uuid not in tracked and before[uuid] is None:
                self._on(uuid, self._mark, leadership)
            elif uuid not in tracked:
                deleted += self._on(uuid, self._delete, leadership)
        missing = len(before.keys() - tracked)
        return f"{len(tracked)} nodes are tracked, {missing} of ours are orphans, {deleted} are being deleted"

    def close(self) -> None:
        """Ask no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _asked(self, source: NodeSource, leadership: StepLeadership) -> frozenset[str] | RegistryUnavailableError:
        """Return the answer to a question that was put now: not one that was on its way when a leadership ended."""
        if self._asking is not None:
            _awaited(self._asking, leadership)
        self._asking = self._pool.submit(_ask, source)
        answer = _awaited(self._asking, leadership)
        self._asking = None
        return answer

    def _objection(self, ours: frozenset[str], tracked: frozenset[str] | RegistryUnavailableError) -> Finding | None:
        """Return why this answer must not change anything, if so."""
        if isinstance(tracked, RegistryUnavailableError):
            said = f"the registry at [registry] url cannot be compared with: {tracked}"
            return Finding("registry-unavailable", "wrong", said, "look at [registry] url, and at the service there")
        if ours and not tracked:
            said = "the registry at [registry] url has no nodes at all; none of ours is marked or deleted"
            advice = "look whether it is the right one, and whether it shows this service everything"
            return Finding("registry-empty", "wrong", said, advice)
        missing = len(ours - tracked)
        if missing > max(1, int(len(ours) * self._settings.max_missing)):
            said = (
                f"the registry at [registry] url lacks {missing} of our {len(ours)} nodes, more than "
                "[registry] max_missing allows; none is marked or deleted"
            )
            advice = "if they are gone for good: ferroscope node delete, or raise max_missing for a while"
            return Finding("registry-short", "wrong", said, advice)
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
        follows = f"it is deleted in {days:g} days unless it comes back" if days else "it is not deleted by itself"
        return self._set(tx, node, tx.now, f"the registry no longer tracks this node; {follows}")

    def _tracked_again(self, tx: Transaction, node: Node) -> bool:
        return self._set(tx, node, None, "the registry tracks this node again")

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
        """Delete an orphan whose time is over, unless somebody needs it."""
        over = self._settings.delete_after and (node.orphaned_at or tx.now) + self._settings.delete_after < tx.now
        if not over or node.attributes.get("protected") or node.instance_uuid is not None or node.state in ACTIVE:
            return False
        transition.submit(tx, node, Event.DELETE, process=self._process)
        return True


def _awaited(asking: Future[T], leadership: StepLeadership) -> T:
    """Return the answer, and show signs of life until it is there."""
    while not wait([asking], _LOOK_EVERY).done:
        leadership.keep_alive()
    return asking.result()


def _ask(source: NodeSource) -> frozenset[str] | RegistryUnavailableError:
    try:
        return source.tracked()
    except RegistryUnavailableError as exc:
        return exc
