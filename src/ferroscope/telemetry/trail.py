"""The spans of one attempt of a worker: the attempt, its steps and its BMC calls."""

from __future__ import annotations

import secrets
from typing import Any, Final

from ferroscope.contracts.store import Clock
from ferroscope.contracts.telemetry import Span, Tracer, span_of, trace_of
from ferroscope.core.model import Inspection, Request
from ferroscope.core.states import Event

_PHASES: Final = {Event.INSPECT: "starting", Event.CONTINUE: "processing", Event.FINISH: "processing"}


class Trail:
    """``clock`` is the host's; the spans of phases have the times of the database."""

    def __init__(self, tracer: Tracer, clock: Clock, inspection: Inspection, request: Request) -> None:
        self._tracer, self._clock, self._inspection, self._request = tracer, clock, inspection, request
        self._id = secrets.token_hex(8)
        self._began = clock.time()
        self._step: tuple[str, float] | None = None

    def begins(self, step: str) -> None:
        """The next step begins, and the one before it has ended; "": none begins."""
        if self._step is not None:
            self._record(*self._step)
        self._step = (step, self.time()) if step else None

    def time(self) -> float:
        return self._clock.time()

    def record_command(self, command: str, driver: str, began: float, error: str) -> None:
        """Record a call of the BMC."""
        self._record(f"bmc {command}", began, kind="client", error=error, attributes={"ferroscope.driver": driver})

    def record_end(self, outcome: str, error: str) -> None:
        """Record the attempt."""
        self.begins("")
        parent = span_of(self._inspection, _PHASES.get(self._request.event, ""))
        attributes = {"ferroscope.attempt": self._request.attempt, "ferroscope.outcome": outcome}
        name = f"worker {self._request.event}"
        self._record(name, self._began, id=self._id, parent=parent, error=error, attributes=attributes)

    def _record(self, name: str, began: float, **fields: Any) -> None:
        trace = trace_of(self._inspection)[0]
        span: dict[str, Any] = {"id": "", "parent": self._id, "ended": self.time()} | fields
        self._tracer.record(Span(name=name, trace=trace, began=began, **span))
