"""The request queue in memory: claims, and the fence that keeps a late worker from writing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ferroscope.adapters.memory.rows import RequestRow, Rows
from ferroscope.adapters.memory.tables import copy
from ferroscope.domain.lanes import OVERTAKING, lane_of, priority_of
from ferroscope.domain.model import REQUEST_VERSION, Claim, Request
from ferroscope.domain.states import Event
from ferroscope.ports.errors import ClaimLostError
from ferroscope.ports.queue import Take


class MemoryRequests:
    """``ports.store.Requests``, and ``claim`` for the queue.

    ``ready`` tells, after the transaction, that there may be something new to claim.
    """

    def __init__(self, rows: Rows, now: float, identifier: Callable[[], str]) -> None:
        self._rows = rows
        self._now = now
        self._identifier = identifier
        self.ready = False

    def put(self, request: Request, *, instead_of: Claim | None = None) -> Claim | None:
        if instead_of is not None:
            return self._replace(request, instead_of)
        self._rows.last_request += 1
        queued = msgspec.structs.replace(
            request, id=self._rows.last_request, created_at=request.created_at or self._now
        )
        self._rows.requests.put(queued.id, RequestRow(copy(queued)))
        self._rows.requests_of_node.add(queued.node, queued.id)
        self.ready = True
        return None

    def hold(self, claim: Claim, *, begun: bool = False, progress: dict[str, Any] | None = None) -> None:
        row = self._mine(claim)
        request = msgspec.structs.replace(
            row.request,
            begun=row.request.begun or begun,
            progress=row.request.progress if progress is None else progress,
        )
        self._rows.requests.put(request.id, msgspec.structs.replace(row, request=copy(request)))

    def consume(self, claim: Claim) -> None:
        request = self._mine(claim).request
        self._rows.requests.drop(request.id)
        self._rows.requests_of_node.discard(request.node, request.id)
        self._rows.claimed.drop(request.node)
        self.ready = True

    def retry(self, claim: Claim, after: float, *, counted: bool = True) -> None:
        request = self._mine(claim).request
        later = msgspec.structs.replace(
            request,
            due_at=self._now + after if after else 0.0,
            attempt=request.attempt - (not counted),
        )
        self._rows.requests.put(request.id, RequestRow(later))
        self._rows.claimed.drop(request.node)
        self.ready = True

    def pending(self, node: str) -> Sequence[Request]:
        rows = (self._rows.requests.get(number) for number in sorted(self._rows.requests_of_node.of(node)))
        return [copy(row.request) for row in rows if row is not None]

    def claim(self, holder: str, take: Take) -> Claim | None:
        """Claim a request; see ``Queue.get``. None where there is none."""
        found = [row.request for row in self._rows.requests.values() if self._matches(row.request, take)]
        for request in sorted(found, key=lambda one: (priority_of(one.event), one.id)):
            if self._free(request.node) and not self._is_behind(request):
                return self._take(request, holder)
        return None

    def _matches(self, request: Request, take: Take) -> bool:
        return (
            request.due_at <= self._now
            and request.version <= REQUEST_VERSION
            and isinstance(request.event, Event)
            and take.lane in (None, lane_of(request.event))
            and (request.network is None or request.network not in take.without)
        )

    def _is_behind(self, request: Request) -> bool:
        """Whether an older request of its node, other than a start that it may overtake, is due too."""
        older = (self._rows.requests.get(number) for number in self._rows.requests_of_node.of(request.node))
        return any(
            row.request.id < request.id
            and row.request.due_at <= self._now
            and not (row.request.event is Event.INSPECT and request.event in OVERTAKING)
            for row in older
            if row is not None
        )

    def _take(self, request: Request, holder: str) -> Claim:
        dead = self._rows.claimed.get(request.node)
        if dead is not None and (row := self._rows.requests.get(dead)) is not None:
            self._rows.requests.put(dead, RequestRow(row.request))
        taken = msgspec.structs.replace(request, attempt=request.attempt + 1)
        return self._keep(taken, holder)

    def _keep(self, request: Request, holder: str) -> Claim:
        token = self._identifier()
        self._rows.requests.put(request.id, RequestRow(request, holder, token))
        self._rows.claimed.put(request.node, request.id)
        return Claim(request=copy(request), holder=holder, token=token)

    def _replace(self, request: Request, claim: Claim) -> Claim:
        old = self._mine(claim).request
        if request.node != old.node:
            raise ValueError(f"a request for node {request.node} cannot take the place of one for {old.node}")
        turned = msgspec.structs.replace(
            request, id=old.id, attempt=1, begun=False, progress={}, created_at=self._now, due_at=self._now
        )
        return self._keep(copy(turned), claim.holder)

    def _free(self, node: str) -> bool:
        claimed = self._rows.claimed.get(node)
        row = None if claimed is None else self._rows.requests.get(claimed)
        if row is None or row.holder is None:
            return True
        member = self._rows.members.get(row.holder)
        return member is None or member.expires_at <= self._now

    def _mine(self, claim: Claim) -> RequestRow:
        row = self._rows.requests.get(claim.request.id)
        if row is None or row.token != claim.token or row.request.attempt != claim.request.attempt:
            raise ClaimLostError(f"attempt {claim.request.attempt} of request {claim.request.id} is not mine any more")
        return row
