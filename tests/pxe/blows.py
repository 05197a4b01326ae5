"""What is done to the host whose filter is open: one blow at a time, and what came of it.

``kill`` SIGKILL to the filter's process; ``freeze`` SIGSTOP for longer than the lease lives, then SIGCONT; ``cut`` no
packet between the host and the database for as long; ``clock`` the host's clock of day jumps (that of the filter's
process and its programs: see ``stepped``); ``stop`` SIGTERM, as for an update.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from bench.service import executable
from tests.pxe.host import BootHost
from tests.pxe.prober import Answer, Prober
from tests.pxe.site import Site
from tests.pxe.stepped import HostClock
from tests.support.installation import Played

KINDS: Final = {"kill": 4, "freeze": 3, "cut": 3, "clock": 1, "stop": 2}
_STEPS: Final = (-86400, -30, 30, 86400)
_LONGEST: Final = 60.0
_SILENT: Final = 1.0


class Blow(msgspec.Struct, frozen=True, kw_only=True):
    """``closed``: seconds from the deed to the last answer; ``reopened``: to the next one, by ``after``, or None."""

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
        """Seconds for which nobody answered."""
        return (self.reopened or 0.0) - self.closed

    def sentence(self) -> str:
        """Return what happened, in a line."""
        if self.reopened is None:
            return f"{self.kind:6} {self.before}: nobody has answered for {_LONGEST:g} s"
        if not self.fail_over:
            went = "it went on" if self.dark < _SILENT else f"closed after {self.closed:.2f} s, then itself open again"
            return f"{self.kind:6} {self.before}: {went} (dark for {self.dark:.2f} s)"
        told = f"closed after {self.closed:.2f} s, {self.after} open after {self.reopened:.2f} s"
        return f"{self.kind:6} {self.before}: {told} (dark for {self.dark:.2f} s)"


class Blows:
    """``probe`` is a MAC that every open filter answers; ``pump(until, seconds)`` lets the rest of the test go on."""

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
        """Return the host that answers now, or None where none does."""
        began = time.monotonic()
        if not self._pump(lambda: bool(self._prober.since(began, self._probe)), _LONGEST):
            return None
        return self._by_address[self._prober.since(began, self._probe)[-1].server]

    def strike(self, kind: str) -> Blow:
        """Do it to the host that is open, put everything right again, and say what came of it."""
        host = self.leader()
        if host is None:
            return Blow(kind=kind, before="", after="", closed=0.0, reopened=None)
        pxe_filter = host.pxe_filter
        assert pxe_filter is not None
        began = time.monotonic()
        act: Callable[[BootHost, Played], None] = getattr(self, f"_{kind}")
        act(host, pxe_filter)
        return self._after(kind, host, began)

    def _after(self, kind: str, host: BootHost, began: float) -> Blow:
        """Wait until another one answers (or, where none has to, a while), and look at what was answered."""
        if kind == "clock":
            self._pump(lambda: False, 2.0)
        else:
            self._pump(lambda: self._passed(host, began), _LONGEST)
        answers = self._answers(began)
        changed = next((index for index, one in enumerate(answers) if one.server != host.address), None)
        if changed is not None:
            last = answers[changed - 1].asked if changed else began
            after = self._by_address[answers[changed].server].name
            return _blow(kind, host, after, last - began, answers[changed].asked - began)
        if not answers or time.monotonic() - answers[-1].asked > self._ttl:
            return _blow(kind, host, "", 0.0, None)
        longest, since = _pause(answers, began)
        return _blow(kind, host, host.name, since - began, since - began + longest)

    def _passed(self, host: BootHost, began: float) -> bool:
        """Whether another one answers, or the same one again after it was silent."""
        answers = self._answers(began)
        return any(one.server != host.address for one in answers) or _pause(answers, began)[0] > _SILENT

    def _answers(self, began: float) -> list[Answer]:
        return sorted(self._prober.since(began, self._probe), key=lambda one: one.asked)

    def _kill(self, host: BootHost, pxe_filter: Played) -> None:
        pxe_filter.kill()
        # Its successor on the same host may come before or after the kernel has closed the filter.
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
        """Start every filter that has ended by itself, as a supervisor would."""
        for host in self._site.hosts:
            if host.pxe_filter is not None and not host.pxe_filter.alive:
                self._site.start_pxe_filter(host)


def _pause(answers: list[Answer], began: float) -> tuple[float, float]:
    """Return the longest time without an answer, and its beginning."""
    moments = [began, *(one.asked for one in answers)]
    return max(((after - before, before) for before, after in pairwise(moments)), default=(0.0, began))


def _blow(kind: str, host: BootHost, after: str, closed: float, reopened: float | None) -> Blow:
    return Blow(kind=kind, before=host.name, after=after, closed=closed, reopened=reopened)


def program(host: BootHost) -> list[str]:
    """Return what is run as ``ferroscope`` there, so that its clock can be stepped."""
    return [*HostClock(host.directory).prefix, executable()]
