"""Inspects machines again whose last inspection is old, if their BMC supplies the hardware: no machine is rebooted.

Only nodes with their driver's own inspect interface are selected. The inspection must not boot the machine, so even a
change of the interface at this moment reboots nothing. Inspections that are in progress
count against the limit, so operators' own come first. Each machine has an offset of up to a tenth of the interval, so
that a fleet that was inspected in one night is not always due in one night.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable
from functools import partial
from typing import Final

from ferroscope import transition
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.delivery import IllegalEventError, NotInspectableError
from ferroscope.core.interfaces import own_names
from ferroscope.core.model import Node
from ferroscope.db import Fence, Store, Transaction
from ferroscope.leadership import StepLeadership
from ferroscope_client.core import labels
from ferroscope_client.core.states import ACTIVE, Provision, State
from ferroscope_client.core.values import many

# Due machines are searched for this often, or more often if they are inspected again sooner.
MAX_PERIOD_SECONDS: Final = 60.0
_SPREAD_SHARE: Final = 0.1
_PAGE_NODES: Final = 500


class Reinspection:
    """A ``PeriodicTask``; ``after``: seconds since the end of the last inspection; ``at_once``: in progress together.

    ``selector``: which nodes, "" for all. ``drivers``: the names of those whose BMCs may supply the hardware.
    """

    name = "periodic/reinspection"
    only_fenced = True

    def __init__(
        self,
        store: Store,
        *,
        after: float,
        selector: str,
        at_once: int,
        drivers: Iterable[str],
        process: str,
    ) -> None:
        self.period = min(after, MAX_PERIOD_SECONDS)
        self._store = store
        self._after = after
        self._selector = labels.selector(selector) if selector.strip() else None
        self._at_once = at_once
        self._drivers = tuple(drivers)
        self._process = process

    def step(self, leadership: StepLeadership) -> str:
        """Start as many as the limit allows beside those in progress, the oldest first."""
        free = self._at_once - self._store.read(_in_progress)
        due = self._due(leadership) if free > 0 else []
        started = 0
        for _, node in sorted(due):
            if started >= free:
                break
            leadership.keep_alive()
            started += self._store.write(partial(self._start, node, leadership.fence))
        more = len(due) - started
        return f"started {many(started, 'inspection')} out of band" + (f"; due: {more} more" if more > 0 else "")

    def _due(self, leadership: StepLeadership) -> list[tuple[float, str]]:
        """Return when each due node has become due, and its UUID."""
        due: list[tuple[float, str]] = []
        for driver, interface in [
            (driver_name, name) for driver_name in self._drivers for name in own_names(driver_name)
        ]:
            marker: str | None = None
            while True:
                leadership.keep_alive()
                now, page = self._store.read(partial(self._page, driver, interface, marker))
                due += [(at, node.uuid) for node in page if (at := self._due_at(node, driver, now)) is not None]
                if len(page) < _PAGE_NODES:
                    break
                marker = page[-1].uuid
        return due

    def _page(self, driver: str, interface: str, marker: str | None, tx: Transaction) -> tuple[float, list[Node]]:
        query = Query(
            filters={"state": State.FINISHED, "driver": driver, "maintenance": False, "inbox": False},
            attributes={"inspect_interface": interface},
            before={"inspection_finished_at": tx.now - self._after},
            sort_key="uuid",
            marker=marker,
            limit=_PAGE_NODES,
        )
        return tx.now, list(tx.nodes.list(query))

    def _due_at(self, node: Node, driver: str, now: float) -> float | None:
        """Return since when the node is due, None if it is not."""
        if not self._fits(node, driver) or node.inspection_finished_at is None:
            return None
        offset = zlib.crc32(node.uuid.encode()) / 2**32 * _SPREAD_SHARE
        at = node.inspection_finished_at + self._after * (1 + offset)
        return at if at <= now else None

    def _fits(self, node: Node, driver: str) -> bool:
        return (
            node.state is State.FINISHED
            and node.provision_state is Provision.MANAGEABLE
            and node.driver == driver
            and node.attributes.get("inspect_interface") in own_names(driver)
            and not node.maintenance
            and not node.inbox
            and (self._selector is None or self._selector.fits(node.labels))
        )

    def _start(self, ident: str, fence: Fence, tx: Transaction) -> bool:
        fence(tx)
        try:
            node = tx.nodes.get(ident, lock=True)
            if not self._fits(node, node.driver) or self._due_at(node, node.driver, tx.now) is None:
                return False
            node = transition.start(tx, node, inspection=str(uuid.uuid4()), process=self._process, manage_boot=False)
        except (NotFoundError, IllegalEventError, NotInspectableError):
            return False
        message = "inspected again by schedule, out of band ([inspector] reinspect_after)"
        tx.journal.append([transition.step(node, "scheduled", message, process=self._process)])
        return True


def _in_progress(tx: Transaction) -> int:
    return sum(row.nodes for row in tx.statistics.count_fleet().census.nodes if row.state in ACTIVE)
