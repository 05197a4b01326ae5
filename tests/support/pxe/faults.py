"""Fault injection on the host whose PXE filter is open, one fault at a time, and the measured effect.

``kill``: SIGKILL to the filter's process. ``freeze``: SIGSTOP for longer than the time to live of the lease, then
SIGCONT. ``cut``: no packets between the host and the database for as long. ``clock``: the wall clock of the host jumps
(as the filter's process and its programs see it: ``host_clock``). ``stop``: SIGTERM, as for an update.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from bench.service import executable
from tests.support.installation import Played
from tests.support.pxe.host import BootHost
from tests.support.pxe.host_clock import HostClock
from tests.support.pxe.prober import Answer, Prober
from tests.support.pxe.site import Site

KINDS: Final = {"kill": 4, "freeze": 3, "cut": 3, "clock": 1, "stop": 2}
_STEPS: Final = (-86400, -30, 30, 86400)
_LONGEST: Final = 60.0
_SILENT: Final = 1.0


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """``closed``: seconds from the fault to the last answer; ``reopened``: to the next answer, from ``after``."""

    kind: str
    before: str
    after: str
    closed: float
    reopened: float | None

    @property
    def fail_over(self) -> bool:
        return self.after not in ("", self.before)

    @property
    def dark(self) -> float:
        """Seconds without any answer."""
        return (self.reopened or 0.0) - self.closed

    def summary(self) -> str:
        """Return what happened, in one line."""
        if self.reopened is None:
            return f"{self.kind:6} {self.before}: no answer for {_LONGEST:g} s"
        if not self.fail_over:
            went = (
                "it continued" if self.dark < _SILENT else f"closed after {self.closed:.2f} s, then itself open again"
            )
            return f"{self.kind:6} {self.before}: {went} (dark for {self.dark:.2f} s)"
        described = f"closed after {self.closed:.2f} s, {self.after} open after {self.reopened:.2f} s"
        return f"{self.kind:6} {self.before}: {described} (dark for {self.dark:.2f} s)"


class FaultInjector:
    """``probe`` is a MAC that every open filter answers; ``pump(until, seconds)`` runs the rest of the test."""

    def __init__(
        self, site: Site, prober: Prober, probe: str, *, ttl: float, seed: int,
        pump: Callable[[Callable[[], bool], float], bool],
    ) -> None:  # fmt: skip
        self._site = site
        self._prober = prober
        self._probe = probe
        self._ttl = ttl
        self._pump = pump
        self._random = random.Random(seed)
        self._by_address = {host.address: host for host in site.hosts}

    def leader(self) -> BootHost | None:
        """Return the host that answers now, or None."""
        began = time.monotonic()
        if not self._pump(lambda: bool(self._prober.since(began, self._probe)), _LONGEST):
            return None
        return self._by_address[self._prober.since(began, self._probe)[-1].server]

    def inject(self, kind: str) -> Fault:
        """Inject the fault into the host that is open, undo it, and return the effect."""
        host = self.leader()
        if host is None:
            return Fault(kind=kind, before="", after="", closed=0.0, reopened=None)
        pxe_filter = host.pxe_filter
        assert pxe_filter is not None
        began = time.monotonic()
        method: Callable[[BootHost, Played], None] = getattr(self, f"_{kind}")
        method(host, pxe_filter)
        return self._after(kind, host, began)

    def _after(self, kind: str, host: BootHost, began: float) -> Fault:
        """Wait until another host answers (after a clock step: for a while), and evaluate the answers."""
        if kind == "clock":
            self._pump(lambda: False, 2.0)
        else:
            self._pump(lambda: self._passed(host, began), _LONGEST)
        answers = self._answers(began)
        changed = next((index for index, one in enumerate(answers) if one.server != host.address), None)
        if changed is not None:
            last = answers[changed - 1].asked if changed else began
            after = self._by_address[answers[changed].server].name
            return _fault(kind, host, after, last - began, answers[changed].asked - began)
        if not answers or time.monotonic() - answers[-1].asked > self._ttl:
            return _fault(kind, host, "", 0.0, None)
        longest, since = _pause(answers, began)
        return _fault(kind, host, host.name, since - began, since - began + longest)

    def _passed(self, host: BootHost, began: float) -> bool:
        """Whether another host answers, or the same one again after a silence."""
        answers = self._answers(began)
        return any(one.server != host.address for one in answers) or _pause(answers, began)[0] > _SILENT

    def _answers(self, began: float) -> list[Answer]:
        return sorted(self._prober.since(began, self._probe), key=lambda one: one.asked)

    def _kill(self, host: BootHost, pxe_filter: Played) -> None:
        pxe_filter.kill()
        # Its successor on the same host may start before or after the kernel has closed the filter.
        self._pump(lambda: False, self._random.uniform(0.1, self._ttl))
        self._site.start_pxe_filter(host)

    def _stop(self, host: BootHost, pxe_filter: Played) -> None:
        pxe_filter.stop()
        self._site.start_pxe_filter(host)

    def _freeze(self, host: BootHost, pxe_filter: Played) -> None:
        pxe_filter.freeze()
        try:
            self._pump(lambda: False, self._ttl * self._random.uniform(1.2, 1.8))
        finally:
            pxe_filter.thaw()

    def _cut(self, host: BootHost, pxe_filter: Played) -> None:
        host.cut()
        try:
            self._pump(lambda: False, self._ttl * self._random.uniform(1.2, 1.8))
        finally:
            host.heal()

    def _clock(self, host: BootHost, pxe_filter: Played) -> None:
        HostClock(host.directory).step(self._random.choice(_STEPS))

    def revive(self) -> None:
        """Restart every filter whose process has ended, as a supervisor would."""
        for host in self._site.hosts:
            if host.pxe_filter is not None and not host.pxe_filter.alive:
                self._site.start_pxe_filter(host)


def _pause(answers: list[Answer], began: float) -> tuple[float, float]:
    """Return the longest time without an answer, and its start."""
    moments = [began, *(one.asked for one in answers)]
    return max(((after - before, before) for before, after in pairwise(moments)), default=(0.0, began))


def _fault(kind: str, host: BootHost, after: str, closed: float, reopened: float | None) -> Fault:
    return Fault(kind=kind, before=host.name, after=after, closed=closed, reopened=reopened)


def program(host: BootHost) -> list[str]:
    """Return the command that runs as ``ferroscope`` on that host, so that its clock can be stepped."""
    return [*HostClock(host.directory).prefix, executable()]
