"""Start inspections, and poll them until they end.

At most ``limit`` inspections are in progress. ``Watch`` prints nothing and never sleeps; the caller of ``step`` decides
how often to poll. The load on the service depends on the number of inspections in progress, not on the number of nodes.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ferroscope_client.cli import newest_step
from ferroscope_client.cli.lookup import list_obstacles
from ferroscope_client.client import Client, Json, ServiceError, node_path
from ferroscope_client.core import advice
from ferroscope_client.core.states import TERMINAL, UNDER_WAY, State
from ferroscope_client.errors import Exit

FINISHED: Final = str(State.FINISHED)
ERROR: Final = str(State.ERROR)
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
STILL_RUNNING: Final = "still running"
NOT_STARTED: Final = "not started"

_MAX_POLLED: Final = 8
_STARTS_A_STEP: Final = 50
# The finished inspections that are needed for an estimate, and the most inspections in progress that are named.
_MIN_FINISHED: Final = 3
_MAX_NAMED: Final = 2


class WatchedNode(msgspec.Struct, frozen=True):
    """A node to inspect, with its readable name."""

    uuid: str
    label: str


class InspectionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a node's inspection; ``code`` is the exit code for this node alone."""

    node: str
    uuid: str
    result: str
    reason: str | None = None
    error: str | None = None
    hint: str | None = None
    seconds: float | None = None
    code: Exit = Exit.OK


class Watch:
    """``waiting`` are not started yet, ``active`` (UUID -> provision state) are in progress, ``ended`` have ended.

    With ``join``, nothing is started: it watches inspections in progress, and reports the results of the others.
    ``seconds_left``: until it gives up, None for never; ``newest_steps``: the steps of the last few nodes, else "".
    """

    def __init__(
        self,
        api: Client,
        targets: Iterable[WatchedNode],
        *,
        limit: int | None = None,
        join: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._limit = limit
        self._join = join
        self._clock = clock
        self._targets: dict[str, WatchedNode] = {}
        self._began: dict[str, float] = {}
        self.waiting = deque(targets)
        self.total = len(self.waiting)
        self.active: dict[str, str] = {}
        self.ended: list[InspectionResult] = []
        self.seconds_left: float | None = None
        self.newest_steps = ""
        self._looked = clock()

    @property
    def over(self) -> bool:
        return not self.waiting and not self.active

    @property
    def completed(self) -> int:
        """The number of nodes with a result, without those that it gave up on."""
        return sum(end.result not in (STILL_RUNNING, NOT_STARTED) for end in self.ended)

    @property
    def may_start(self) -> bool:
        """Whether another inspection can be started within the limit."""
        return bool(self.waiting) and (self._join or self._limit is None or len(self.active) < self._limit)

    def label(self, uuid: str) -> str:
        """Return the readable name of a node whose inspection was started."""
        return self._targets[uuid].label

    @property
    def expected_seconds(self) -> float | None:
        """Seconds until all have ended if they take as long as the finished ones; None if unknown.

        It is unknown while too few have finished, and once all the others take longer.
        """
        took = sorted(end.seconds for end in self.ended if end.result == FINISHED and end.seconds is not None)
        if len(took) < _MIN_FINISHED or self.over:
            return None
        usual, now = took[len(took) // 2], self._clock()
        of_active = max((usual - (now - self._began[uuid]) for uuid in self.active), default=0.0)
        more = -(-len(self.waiting) // max(1, self._limit or len(self.waiting)))
        expected_seconds = max(0.0, of_active) + more * usual
        return expected_seconds if expected_seconds >= 1.0 else None

    def look(self) -> None:
        """Read the newest steps of the last few nodes now and then, such as a pause after a BMC's timeouts."""
        if len(self.active) > _MAX_NAMED or not self.active:
            self.newest_steps = ""
        elif self._clock() - self._looked >= newest_step.POLL_SECONDS:
            self._looked = self._clock()
            steps = [(self.label(uuid), newest_step.newest_message(self._api, uuid)) for uuid in self.active]
            self.newest_steps = "; ".join(f"{name}: {text}" for name, text in steps if text)

    def counts(self) -> Counter[str]:
        """Return how many nodes are in each phase."""
        phases = Counter(self.active.values())
        phases.update(end.result for end in self.ended)
        if self.waiting:
            phases["to start"] = len(self.waiting)
        return phases

    def step(self) -> list[InspectionResult]:
        """Poll the inspections in progress and start further ones; return those that ended since the last step."""
        before = len(self.ended)
        if self.active:
            self._poll()
        self.start(_STARTS_A_STEP)
        return self.ended[before:]

    def start(self, most: int) -> None:
        """Start as many as the limit allows, at most ``most``."""
        while self.may_start and most > 0:
            target = self.waiting[0]
            refusal = None if self._join else self._start(target)
            self.waiting.popleft()
            most -= 1
            if refusal is not None:
                self._end(target, REFUSED, error=refusal.message, code=Exit(refusal.exit_code))
                continue
            self._targets[target.uuid] = target
            self._began[target.uuid] = self._clock()
            self.active[target.uuid] = str(UNDER_WAY[0])

    def _start(self, target: WatchedNode) -> ServiceError | None:
        """Start an inspection; return the error if it was refused."""
        try:
            self._api.put(node_path(target.uuid, "states", "provision"), {"target": "inspect"})
        except ServiceError as exc:
            if exc.exit_code == Exit.UNREACHABLE:
                raise
            return exc
        return None

    def detach(self) -> None:
        """Start all inspections without waiting for them: their result is ``accepted``."""
        self.start(len(self.waiting))
        for uuid in self.active:
            self._end(self._targets[uuid], ACCEPTED)
        self.active.clear()

    def give_up(self) -> None:
        """Stop waiting; the service continues with the inspections that were started."""
        nodes = [{"uuid": uuid, "provision_state": state} for uuid, state in self.active.items()]
        for node, obstacle in zip(nodes, list_obstacles(self._api, nodes), strict=True):
            error = f"still {node['provision_state']}"
            hint = None if obstacle is None else advice.hint(node, obstacle=obstacle)
            self._end(self._targets[node["uuid"]], STILL_RUNNING, error=error, hint=hint, code=Exit.TIMED_OUT)
        for target in self.waiting:
            self._end(target, NOT_STARTED, code=Exit.TIMED_OUT)
        self.active.clear()
        self.waiting.clear()

    def _poll(self) -> None:
        states = self._states()
        for uuid in list(self.active):
            if uuid in states:
                self.active[uuid] = states[uuid]
            else:
                self._conclude(uuid)

    def _states(self) -> dict[str, str]:
        """Return the provision states of the inspections that are certainly in progress."""
        if len(self.active) <= _MAX_POLLED:
            seen = {uuid: self._state(uuid) for uuid in self.active}
            return {uuid: state for uuid, state in seen.items() if state in UNDER_WAY}
        return {
            node["uuid"]: state
            for state in UNDER_WAY
            for node in self._api.pages("/v1/nodes", "nodes", provision_state=state, fields=("uuid",))
        }

    def _state(self, uuid: str) -> str | None:
        try:
            return str(self._api.get(node_path(uuid), fields=("provision_state",))["provision_state"])
        except ServiceError as exc:
            if exc.status != 404:
                raise
            return None

    def _conclude(self, uuid: str) -> None:
        """Record the result from the node's newest inspection, unless it is still in progress.

        The node may have changed its state between two pages of the poll.
        """
        target = self._targets[uuid]
        try:
            inspections = self._api.get(node_path(uuid, "inspections"), limit=1)["inspections"]
        except ServiceError as exc:
            if exc.status != 404:
                raise
            inspections = [{"state": ERROR, "error": "the node was deleted"}]
        if not inspections and self._join:
            del self.active[uuid]
            self._end(target, REFUSED, error="the node has never been inspected", code=Exit.CONFLICT)
            return
        newest: Json = inspections[0] if inspections else {"state": ERROR, "error": "its inspection was deleted"}
        if newest["state"] not in TERMINAL:
            return
        del self.active[uuid]
        if newest["state"] == FINISHED:
            self._end(target, FINISHED)
        else:
            details = {name: newest.get(name) for name in ("reason", "error", "hint")}
            self._end(target, ERROR, **details, code=Exit.FAILURE)

    def _end(self, target: WatchedNode, result: str, *, code: Exit = Exit.OK, **details: str | None) -> None:
        began = self._began.get(target.uuid)
        seconds = None if began is None else round(self._clock() - began, 2)
        self.ended.append(
            InspectionResult(node=target.label, uuid=target.uuid, result=result, seconds=seconds, code=code, **details)
        )


def verdict(ended: Iterable[InspectionResult]) -> Exit:
    """Return the exit code for all these results."""
    codes = {end.code for end in ended} - {Exit.OK}
    if Exit.TIMED_OUT in codes:
        return Exit.TIMED_OUT
    return codes.pop() if len(codes) == 1 else Exit.FAILURE if codes else Exit.OK


def as_data(end: InspectionResult) -> Json:
    """Return a result for JSON and YAML."""
    return {name: value for name, value in msgspec.structs.asdict(end).items() if name != "code"}
