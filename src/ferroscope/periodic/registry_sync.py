"""Nodes that the attached registry no longer tracks get a ``delete`` request.

A node is deleted only when it was missing in two looks in a row: one that was enrolled here a
moment before it was there, or a list that came at a bad moment, costs nothing. A registry that
cannot be asked changes nothing. Source: the synchronization task of the HA specification.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog

from ferroscope import transition
from ferroscope.archive.couriers import Couriers
from ferroscope.domain.states import Event
from ferroscope.ports.errors import NotFoundError
from ferroscope.ports.registry import NodeSource, RegistryUnavailableError
from ferroscope.ports.store import Fence, Leadership, Query, Store, Transaction

_log = structlog.get_logger(__name__)

_LOOK_EVERY: Final = 0.5  # seconds between two signs of life while the registry is being asked


class RegistrySync:
    """A ``PeriodicTask``; without a ``source`` the registry is our own and there is nothing to do."""

    name = "periodic/registry-sync"

    def __init__(self, store: Store, source: NodeSource | None, *, period: float, process: str) -> None:
        self.period = period if source is not None else 0.0
        self._store = store
        self._source = source
        self._process = process
        self._missing: frozenset[str] = frozenset()
        # Beside the leader, who has to go on showing signs of life: a registry may take as long as it likes.
        self._courier: Couriers[frozenset[str] | RegistryUnavailableError] = Couriers(1)

    def step(self, leadership: Leadership) -> str:
        """Compare once; return what was found."""
        if self._source is None:
            return "nodes are our own"
        tracked = self._asked(self._source, leadership)
        if isinstance(tracked, RegistryUnavailableError):
            self._missing = frozenset()
            return f"cannot compare: {tracked}"
        ours = self._store.read(lambda tx: [node.uuid for node in tx.nodes.list(Query())])
        missing = frozenset(ours) - tracked
        gone = missing & self._missing
        self._missing = missing - gone
        for uuid in sorted(gone):
            leadership.keep_alive()
            self._store.write(partial(self._delete, uuid, leadership.fence))
        return f"{len(gone)} nodes are no longer tracked, {len(self._missing)} were missing for the first time"

    def _asked(self, source: NodeSource, leadership: Leadership) -> frozenset[str] | RegistryUnavailableError:
        """Return the answer to a question that was put now: not one that was on its way when an office ended."""
        while self._courier.out:
            leadership.keep_alive()
            self._courier.collect(_LOOK_EVERY)
        self._courier.send(partial(_ask, source))
        while not (answers := self._courier.collect(_LOOK_EVERY)):
            leadership.keep_alive()
        return answers[0]

    def _delete(self, uuid: str, fence: Fence, tx: Transaction) -> None:
        fence(tx)
        try:
            transition.submit(tx, tx.nodes.get(uuid, lock=True), Event.DELETE, process=self._process)
        except NotFoundError:
            _log.debug("deleted already", node=uuid)


def _ask(source: NodeSource) -> frozenset[str] | RegistryUnavailableError:
    try:
        return source.tracked()
    except RegistryUnavailableError as exc:
        return exc
