"""Inspections of some nodes from their start to their end, as the API tells of them.

At no time are more than ``limit`` of them under way. It prints nothing and never sleeps; whoever
calls ``step`` decides how often. What it costs the service depends on how many are under way, not
on how many nodes there are.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ferroscope.cli.client import Api, ApiError, Json, node_path
from ferroscope.cli.exits import Exit
from ferroscope.core.states import TERMINAL, UNDER_WAY, State

FINISHED: Final = str(State.FINISHED)
ERROR: Final = str(State.ERROR)
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
STILL_RUNNING: Final = "still running"
NOT_STARTED: Final = "not started"

_FEW: Final = 8
_STARTS_A_STEP: Final = 50


class Target(msgspec.Struct, frozen=True):
    """A node to be inspected, and how a person calls it."""

    uuid: str
    label: str


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the inspection of a node ended; ``code`` is what the command's exit code would be for it alone."""

    node: str
    uuid: str
    result: str
    reason: str | None = None
    error: str | None = None
    hint: str | None = None
    seconds: float | None = None
    code: Exit = Exit.OK


class Watch:
    """``waiting`` are not started yet, ``active`` (UUID -> provision state) are under way, ``ended`` are over.

    With ``join`` nothing is started: it follows what is under way, and tells how the rest has ended.
    """

    def __init__(
        self,
        api: Api,
        targets: Iterable[Target],
        *,
        limit: int | None = None,
        join: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._limit = limit
        self._join = join
        self._clock = clock
        self._targets: dict[str, Target] = {}
        self._began: dict[str, float] = {}
        self.waiting = deque(targets)
        self.total = len(self.waiting)
        self.active: dict[str, str] = {}
        self.ended: list[Ended] = []

    @property
    def over(self) -> bool:
        return not self.waiting and not self.active

    @property
    def may_start(self) -> bool:
        """Whether there is another node to be started, and the limit permits it now."""
        return bool(self.waiting) and (self._join or self._limit is None or len(self.active) < self._limit)

    def label(self, uuid: str) -> str:
        """Return how a person calls a node that was started."""
        return self._targets[uuid].label

    def counts(self) -> Counter[str]:
        """Return how many nodes are in each phase."""
        phases = Counter(self.active.values())
        phases.update(end.result for end in self.ended)
        if self.waiting:
            phases["to start"] = len(self.waiting)
        return phases

    def step(self) -> list[Ended]:
        """Look at what is under way, start what may be started; return what has ended since the last step."""
        before = len(self.ended)
        if self.active:
            self._look()
        self.start(_STARTS_A_STEP)
        return self.ended[before:]

    def start(self, most: int) -> None:
        """Start as many as the limit permits, at the most ``most``."""
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

    def _start(self, target: Target) -> ApiError | None:
        """Start an inspection; return why that was not possible."""
        try:
            self._api.put(node_path(target.uuid, "states", "provision"), {"target": "inspect"})
        except ApiError as exc:
            if exc.exit_code == Exit.UNREACHABLE:
                raise
            return exc
        return None

    def let_go(self) -> None:
        """Start all, and leave them to the service: accepted is the end of it."""
        self.start(len(self.waiting))
        for uuid in self.active:
            self._end(self._targets[uuid], ACCEPTED)
        self.active.clear()

    def give_up(self) -> None:
        """Wait no longer for what is not over yet; the service goes on with what was started."""
        for uuid, state in self.active.items():
            self._end(self._targets[uuid], STILL_RUNNING, error=f"still {state}", code=Exit.TIMED_OUT)
        for target in self.waiting:
            self._end(target, NOT_STARTED, code=Exit.TIMED_OUT)
        self.active.clear()
        self.waiting.clear()

    def _look(self) -> None:
        states = self._states()
        for uuid in list(self.active):
            if uuid in states:
                self.active[uuid] = states[uuid]
            else:
                self._settle(uuid)

    def _states(self) -> dict[str, str]:
        """Return the provision states of those that are surely under way."""
        if len(self.active) <= _FEW:
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
        except ApiError as exc:
            if exc.status != 404:
                raise
            return None

    def _settle(self, uuid: str) -> None:
        """The node is not under inspection, or moved while we looked: its newest inspection knows."""
        target = self._targets[uuid]
        try:
            found = self._api.get(node_path(uuid, "inspections"), limit=1)["inspections"]
        except ApiError as exc:
            if exc.status != 404:
                raise
            found = [{"state": ERROR, "error": "the node was deleted"}]
        if not found and self._join:
            del self.active[uuid]
            self._end(target, REFUSED, error="it was never inspected, so there is nothing to join", code=Exit.CONFLICT)
            return
        newest: Json = found[0] if found else {"state": ERROR, "error": "its inspection was deleted"}
        if newest["state"] not in TERMINAL:
            return
        del self.active[uuid]
        if newest["state"] == FINISHED:
            self._end(target, FINISHED)
        else:
            details = {name: newest.get(name) for name in ("reason", "error", "hint")}
            self._end(target, ERROR, **details, code=Exit.FAILURE)

    def _end(self, target: Target, result: str, *, code: Exit = Exit.OK, **details: str | None) -> None:
        began = self._began.get(target.uuid)
        seconds = None if began is None else round(self._clock() - began, 2)
        self.ended.append(
            Ended(node=target.label, uuid=target.uuid, result=result, seconds=seconds, code=code, **details)
        )


def verdict(ended: Iterable[Ended]) -> Exit:
    """Return the exit code that all these ends amount to."""
    codes = {end.code for end in ended} - {Exit.OK}
    if Exit.TIMED_OUT in codes:
        return Exit.TIMED_OUT
    return codes.pop() if len(codes) == 1 else Exit.FAILURE if codes else Exit.OK


def as_data(end: Ended) -> Json:
    """Return an end as programs get it."""
    return {name: value for name, value in msgspec.structs.asdict(end).items() if name != "code"}
