"""Machines that boot as firmware does, and an operator who inspects them one after the other, without end.

A machine that is switched on asks for an address at the moments at which PXE firmware does, and goes through its
boot order again where nobody answered; one that was answered calls back a moment later. Between inspections machines go
on asking, and must not be heard. Nothing here waits: ``tick`` does what is due.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope_client.errors import Failure
from tests.support.pxe.bmc import Switch
from tests.support.pxe.prober import Answer, Prober
from tests.support.pxe.site import Site

# Seconds after the power-on at which it asks, and after how many it begins again, when its boot order is through.
# Source: PXE 2.1, 2.2.1: time-outs of 4, 8, 16 and 32 seconds.
_ASKS: Final = (0.3, 4.3, 12.3, 28.3)
_AGAIN: Final = 60.5
_BOOT: Final = 0.7
_REST: Final = 2.0
_LOOK: Final = 0.25


class Machine(Switch):
    """``idle_since``: when its inspection was seen to be over, None while it is inspected."""

    def __init__(self, name: str, mac: str) -> None:
        super().__init__()
        self.name = name
        self.mac = mac
        self.idle_since: float | None = time.monotonic()
        self.asked_for_at = 0.0
        self.on_at = 0.0
        self.asks = 0
        self.offered_at: float | None = None
        self.called = False
        self.late = 0.0

    def power_on(self) -> None:
        """Switch it on: it begins to ask."""
        if not self.on:
            self.on_at, self.asks, self.offered_at, self.called = time.monotonic(), 0, None, False
        super().power_on()


class Tally(msgspec.Struct):
    """What came of it. ``late``: for each inspection, seconds after its end for which
    the machine was still answered. ``again``: how often a machine went through its boot order once more."""

    inspections: int = 0
    lost: list[str] = []
    violations: list[str] = []
    late: list[float] = []
    waited: list[float] = []
    again: int = 0


class Fleet:
    """``bound``: seconds after the end of an inspection from which on an answer is a violation."""

    def __init__(self, site: Site, prober: Prober, *, count: int, at_once: int, bound: float, seed: int) -> None:
        self.machines = [Machine(f"vm{number:02}", f"52:54:00:cc:00:{number:02x}") for number in range(1, count + 1)]
        self.tally = Tally()
        self.accepting = True
        self._by_mac = {machine.mac: machine for machine in self.machines}
        self._site = site
        self._prober = prober
        self._at_once = at_once
        self._bound = bound
        self._looked_at = 0.0
        self._random = random.Random(seed)
        self._never: set[str] = set()

    def enroll(self, *, idle: int = 3) -> None:
        """Make all nodes, and ``idle`` more that are never inspected."""
        for machine in self.machines:
            self._site.machines[machine.name] = machine
            self._site.enroll(machine.name, machine.mac)
        for number in range(1, idle + 1):
            mac = f"52:54:00:dd:00:{number:02x}"
            self._site.enroll(f"idle{number:02}", mac)
            self._never.add(mac)
        time.sleep(self._bound)  # the open filter takes them for unknown ones until it has heard of them
        for machine in self.machines:
            machine.idle_since = time.monotonic()
        self._prober.add(*self._by_mac, *self._never)

    @property
    def flying(self) -> list[Machine]:
        """The machines under inspection."""
        return [machine for machine in self.machines if machine.idle_since is None]

    def tick(self, fresh: Sequence[Answer]) -> None:
        """Hear the answers that are new, and do what is due."""
        for answer in fresh:
            self._hear(answer)
        now = time.monotonic()
        for machine in self.flying:
            if machine.on:
                self._boot(machine, now)
        if now - self._looked_at >= _LOOK:
            self._looked_at = now
            self._look(now)
            self._start(now)

    def _hear(self, answer: Answer) -> None:
        machine = self._by_mac.get(answer.mac)
        if machine is None:
            if answer.mac in self._never:
                self.tally.violations.append(f"{answer.mac}, which is never inspected, was answered by {answer.server}")
        elif machine.idle_since is None:
            if machine.offered_at is None and machine.on and answer.asked >= machine.on_at:
                machine.offered_at = answer.answered
                self.tally.waited.append(answer.answered - machine.on_at)
        elif (late := answer.asked - machine.idle_since) > self._bound:
            self.tally.violations.append(f"{machine.name} was answered by {answer.server} {late:.2f} s after its end")
        elif late > 0:
            machine.late = max(machine.late, late)

    def _boot(self, machine: Machine, now: float) -> None:
        if machine.offered_at is None:
            round_, ask = divmod(machine.asks, len(_ASKS))
            if now - machine.on_at >= round_ * _AGAIN + _ASKS[ask]:
                machine.asks += 1
                self.tally.again += bool(round_ and not ask)
                self._prober.once(machine.mac)
        elif not machine.called and now - machine.offered_at >= _BOOT:
            machine.called = True
            try:
                self._site.call_back(machine.mac)
            except Failure as exc:
                self.tally.lost.append(f"the callback of {machine.name}: {exc.message}")

    def _look(self, now: float) -> None:
        nodes = self._site.api.pages("/v1/nodes", "nodes", fields=("name", "provision_state", "last_error"))
        states = {node["name"]: node for node in nodes}
        for machine in self.flying:
            node = states[machine.name]
            if now - machine.asked_for_at < _LOOK or node["provision_state"] not in ("manageable", "inspect failed"):
                continue
            self.tally.inspections += 1
            if node["provision_state"] == "inspect failed":
                self.tally.lost.append(f"{machine.name}: {node['last_error']}")
            machine.idle_since = time.monotonic()
            self._prober.add(machine.mac)

    def _start(self, now: float) -> None:
        rested = [
            machine for machine in self.machines if machine.idle_since is not None and now - machine.idle_since > _REST
        ]
        if self.accepting and rested and len(self.flying) < self._at_once:
            machine = self._random.choice(rested)
            self._prober.remove(machine.mac)
            self.tally.late.append(machine.late)
            machine.late = 0.0
            machine.idle_since, machine.asked_for_at, machine.on_at, machine.offered_at = None, now, now, None
            machine.on = False
            self._site.provision(machine.name, "inspect")
            machine.asked_for_at = time.monotonic()
