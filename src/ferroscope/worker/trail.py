"""The spans of one attempt: itself, and in it the hooks, the rules and the BMC commands."""

from __future__ import annotations

import secrets
from typing import Final

from ferroscope.contracts.queue import Clock
from ferroscope.contracts.telemetry import Span, Tracer, span_of, trace_of
from ferroscope.core.model import Inspection, Request
from ferroscope.core.states import Event

_PHASES: Final = {Event.INSPECT: "starting", Event.CONTINUE: "processing", Event.FINISH: "processing"}


class Trail:
    """``clock`` is the host's; the spans of phases have the times of the database."""

    def __init__(self, tracer: Tracer, clock: Clock, inspection: Inspection, request: Request) -> None:
        self._tracer, self._clock, self._request = tracer, clock, request
        self._trace = trace_of(inspection)[0]
        self._parent = span_of(inspection, _PHASES.get(request.event, ""))
        self._id = secrets.token_hex(8)
        self._began = clock.time()
        self._step: tuple[str, float] | None = None

    def begins(self, step: str) -> None:
        """The next step begins, and the one before it has ended; "": none begins."""
        now = self._clock.time()
        if self._step is not None:
            name, began = self._step
            self._record(Span(name=name, trace=self._trace, id="", parent=self._id, began=began, ended=now))
        self._step = (step, now) if step else None

    def time(self) -> float:
        return self._clock.time()

    def commanded(self, command: str, driver: str, began: float, error: str) -> None:
        """Record a call of the BMC."""
        now = self._clock.time()
        self._record(
            Span(
                name=f"bmc {command}", trace=self._trace, id="", parent=self._id, began=began, ended=now,
                kind="client", error=error, attributes={"ferroscope.driver": driver},
            )
        )  # fmt: skip

    def ended(self, outcome: str, error: str) -> None:
        """Record the attempt."""
        self.begins("")
        attributes: dict[str, str | int] = {"ferroscope.attempt": self._request.attempt, "ferroscope.outcome": outcome}
        self._record(
            Span(
                name=f"worker {self._request.event}", trace=self._trace, id=self._id, parent=self._parent,
                began=self._began, ended=self._clock.time(), error=error, attributes=attributes,
            )
        )  # fmt: skip

    def _record(self, span: Span) -> None:
        self._tracer.record(span)
