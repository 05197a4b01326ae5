"""Watches the members through a coordination service: lost members, and whether the service is credible.

Only this process's own observations count: a member is lost if it had a session and has none now, and the service has
answered all the time in between, and knows us. So after an outage, a restart without data, or a pause of our own, no
member is lost; leases then end by the database's clock alone.

A lost member may still be alive. The fence keeps its writes out, and ``leadership`` asks the database, too.
Source: the watch on the party of the HA specification for ironic-inspector.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

import structlog

from ferroscope.contracts.store import Bus, Channel, Clock, CoordinationService, CoordinationUnavailableError, StopFlag
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.values import many

_log = structlog.get_logger(__name__)

# Checks of the members during a session.
_LOOKS_PER_SESSION: Final = 6
_MAX_LOST_MEMBERS: Final = 1000  # remembered


class PartyWatch:
    """``is_lost`` says whether a member seems to be dead; ``start`` and ``join`` are those of its thread.

    ``session`` is the time to live of a session, in seconds. When a member is lost, or our own session, candidates for
    leases wake up, and ``resets`` are called.
    """

    def __init__(
        self,
        service: CoordinationService,
        *,
        member: str,
        session: float,
        bus: Bus,
        clock: Clock,
        stop: StopFlag,
    ) -> None:
        self._service = service
        self._member = member
        self._session = session
        self._bus = bus
        self._clock = clock
        self._stop = stop
        self._known: frozenset[str] = frozenset()
        self._lost: frozenset[str] = frozenset()
        self._looked_at = -math.inf
        self._error = "it has not been asked yet"
        self._in_outage = False
        self.resets: list[Callable[[], object]] = []
        self._thread = threading.Thread(target=self.run, name="coordination", daemon=True)

    def is_lost(self, member: str) -> bool:
        """Whether the service, if credible now, said that this member's session has ended."""
        recent = self._clock.monotonic() - self._looked_at < self._session
        return recent and member in self._lost

    @property
    def member_count(self) -> int | None:
        """The number of members with a session; None while the service is not credible."""
        return None if self._error else len(self._known)

    @property
    def status(self) -> str:
        """A text for operators: the members, or why only the database decides about leases."""
        if self._error:
            return f"the database alone decides: {self._error}"
        return f"sees {many(len(self._known), 'member')}"

    @property
    def problem(self) -> Finding | None:
        """A finding while the service is unavailable."""
        if not self._in_outage:
            return None
        summary = f"the coordination service is unavailable ({self._error}); leases end by the database's clock alone"
        advice = "check the service and the section [coordination]; leaders are replaced later meanwhile"
        return Finding("coordination-unavailable", "wrong", summary, advice)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end; it ends when ``stop`` is set."""
        self._thread.join(timeout)

    def run(self) -> None:
        """Watch until the process stops; then leave."""
        try:
            while not self._stop.is_set():
                try:
                    self._service.join()
                    self._watch()
                except CoordinationUnavailableError as exc:
                    self._fail(str(exc))
                    self._stop.wait(self._session / 2)
        finally:
            self._service.leave()

    def _watch(self) -> None:
        """Look at the members until the process stops or our own session has expired."""
        while not self._stop.is_set():
            alive = self._service.alive()
            if self._member not in alive:
                _log.warning("the session at the coordination service has expired; joining again")
                self._believe_nothing("our session has expired")
                self._announce()
                return
            self._look(alive)
            self._service.wait(self._session / _LOOKS_PER_SESSION)

    def _look(self, alive: frozenset[str]) -> None:
        if self._error:
            if self._in_outage:
                _log.info("the coordination service is back")
            self._error, self._in_outage = "", False
        gone = self._known - alive
        kept = self._lost if len(self._lost) < _MAX_LOST_MEMBERS else frozenset()
        self._lost = (kept | gone) - alive
        self._known = alive
        self._looked_at = self._clock.monotonic()
        if gone:
            _log.info("members lost their sessions at the coordination service", members=sorted(gone))
            self._announce()

    def _announce(self) -> None:
        self._bus.publish(Channel.LEASES)
        for reset in self.resets:
            reset()

    def _believe_nothing(self, why: str) -> None:
        self._known = self._lost = frozenset()
        self._error = why

    def _fail(self, why: str) -> None:
        if not self._in_outage:
            _log.warning("the coordination service is unavailable; the database alone decides", why=why)
        self._believe_nothing(why)
        self._in_outage = True
