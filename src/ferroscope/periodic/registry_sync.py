"""Nodes that the attached registry no longer tracks get a ``delete`` request.

A node is deleted only when it was missing in two looks in a row: one that was enrolled here a
moment before it was there, or a list that came at a bad moment, costs nothing. A registry that
cannot be asked changes nothing. Source: the synchronization task of the HA specification.
"""

from __future__ import annotations

from functools import partial

import structlog

from ferroscope import transition
from ferroscope.domain.states import Event
from ferroscope.ports.errors import NotFoundError
from ferroscope.ports.registry import NodeSource, RegistryUnavailableError
from ferroscope.ports.store import Fence, Query, Store, Transaction

_log = structlog.get_logger(__name__)


class RegistrySync:
    """A ``PeriodicTask``; without a ``source`` the registry is our own and there is nothing to do."""

    name = "periodic/registry-sync"

    def __init__(self, store: Store, source: NodeSource | None, *, period: float, process: str) -> None:
        self.period = period if source is not None else 0.0
        self._store = store
        self._source = source
        self._process = process
        self._missing: frozenset[str] = frozenset()

    def step(self, fence: Fence) -> str:
        """Compare once; return what was found."""
        if self._source is None:
            return "nodes are our own"
        try:
            tracked = self._source.tracked()
        except RegistryUnavailableError as exc:
            self._missing = frozenset()
            return f"cannot compare: {exc}"
        ours = self._store.read(lambda tx: [node.uuid for node in tx.nodes.list(Query())])
        missing = frozenset(ours) - tracked
        gone = missing & self._missing
        self._missing = missing - gone
        for uuid in sorted(gone):
            self._store.write(partial(self._delete, uuid, fence))
        return f"{len(gone)} nodes are no longer tracked, {len(self._missing)} were missing for the first time"

    def _delete(self, uuid: str, fence: Fence, tx: Transaction) -> None:
        fence(tx)
        try:
            transition.submit(tx, tx.nodes.get(uuid, lock=True), Event.DELETE, process=self._process)
        except NotFoundError:
            _log.debug("deleted already", node=uuid)
