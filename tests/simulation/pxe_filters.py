"""PXE filters on simulated hosts: the real filter and the real nftables backend, on a kernel that is simulated.

A host's kernel takes transactions of ``nft`` and closes what is not held any more by its own clock. Whatever it
has taken stays in force when the process that asked for it is frozen or dead. ``nft`` itself may be slow, be killed
at its deadline, or go on alone. I4 is judged here: at no instant are two filters of one network open.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import HostCommand

if TYPE_CHECKING:
    from tests.simulation.cluster import Host, SimulatedProcess
    from tests.simulation.world import World

_ELEMENT = re.compile(r'(add|delete) element inet \S+ (open|armed) \{ "?(\w+)"?(?: timeout (\d+)(ms|s))? \}')
_FLUSH = re.compile(r"flush set inet \S+ (open|armed)")


class RefusedError(Exception):
    """The kernel does not take the transaction, and nothing of it."""


class Firewall:
    """One host's kernel: its sets with their time-outs, in true time. ``slow``: chance that nft takes its time."""

    def __init__(self, world: World, host: Host) -> None:
        self.host = host
        self.slow = 0.0
        self.fails = 0.0
        self._world = world
        self._sets: dict[str, dict[str, float]] = {}
        self._looked_at = 0.0
        self.open_seconds = 0.0

    @property
    def open_until(self) -> float:
        """Until when it is open if nothing more happens; a time that has passed: it is closed."""
        return max(self._sets.get("open", {}).values(), default=0.0)

    def take(self, script: str, who: str) -> None:
        """Carry out a transaction, all of it or nothing; ``RefusedError``."""
        now, before = self._world.kernel.now, self.open_until
        sets = {name: {key: at for key, at in found.items() if at > now} for name, found in self._sets.items()}
        for line in script.splitlines():
            self._line(line.strip(), sets, now)
        self._sets = sets
        self._note(before, now, who)

    def _line(self, line: str, sets: dict[str, dict[str, float]], now: float) -> None:
        if line.startswith("delete table"):
            sets.clear()
        elif line.startswith("set "):
            sets.setdefault(line.split()[1], {})
        elif found := _FLUSH.match(line):
            if found[1] not in sets:
                raise RefusedError(f"there is no set {found[1]}")
            sets[found[1]].clear()
        elif found := _ELEMENT.match(line):
            self._element(found, sets, now)
        elif "element" in line:
            raise RefusedError(f"the simulated kernel does not know: {line}")

    def _element(self, found: re.Match[str], sets: dict[str, dict[str, float]], now: float) -> None:
        verb, name, key, number, unit = found.groups()
        elements = sets.get(name)
        if elements is None:
            raise RefusedError(f"there is no set {name}")
        if verb == "delete":
            if key not in elements:
                raise RefusedError(f"there is no element {key}")
            del elements[key]
        elif key not in elements:  # one that is there keeps its time-out
            seconds = int(number) / (1000 if unit == "ms" else 1)
            elements[key] = now + seconds / self.host.clock.rate

    def _note(self, before: float, now: float, who: str) -> None:
        world, after = self._world, self.open_until
        was_open, is_open = before > now, after > now
        self.look(before)
        if is_open and not was_open:
            world.say(f"the filter of {self.host.name} is open", who)
            world.count("filter openings")
        elif was_open and not is_open:
            world.say(f"the filter of {self.host.name} is closed", who)
        if is_open:
            self._alone(now, after, who)

    def look(self, until: float) -> None:
        """Count for how long it was open since the last look, when it was to be open ``until``."""
        now = self._world.kernel.now
        self.open_seconds += max(0.0, min(until, now) - self._looked_at)
        self._looked_at = now

    def _alone(self, now: float, until: float, who: str) -> None:
        """I4: whoever opens is the only one."""
        for other in self._world.firewalls:
            if other is not self and other.open_until > now:
                self._world.kernel.fail(
                    "I4",
                    f"{who} opened the filter of {self.host.name} until {until:.3f}, while that of {other.host.name} "
                    f"was open until {other.open_until:.3f}",
                )


class Nft(msgspec.Struct):
    """One run of nft on its way to the kernel, and ``back`` seconds later with an ``answer``.

    ``frozen_too``: whether it is frozen, and dies, with whoever started it.
    """

    script: str
    back: float
    frozen_too: bool
    answer: Callable[[tuple[str]], object]
    killed: bool = False


class SimulatedNft(HostCommand):
    """Stands in for ``backends.base.HostCommand``: the caller waits for the kernel's answer, or its deadline."""

    def __init__(self, world: World, process: SimulatedProcess, timeout: float) -> None:
        super().__init__("nft", package="nftables", timeout=timeout)
        self._world = world
        self._process = process
        self._rng = world.kernel.rng("nft")
        self._firewall = next(one for one in world.firewalls if one.host is process.host)

    def __call__(self, *arguments: str, stdin: str | bytes = "") -> str:
        kernel, rng, owner = self._world.kernel, self._rng, self._process.owner
        if rng.random() < self._firewall.fails:
            raise PxeFilterError("nft failed with exit code 1: Error: Could not process rule: Device or resource busy")
        task = kernel.me()
        whole = rng.random() * (4.0 if rng.random() < self._firewall.slow else 0.03)
        there = whole * rng.random()
        script = "" if isinstance(stdin, bytes) else stdin
        run = Nft(script, whole - there, rng.random() < 0.5, partial(kernel.resume, task, task.ticket))
        kernel.at(there, self._arrive, run)
        kernel.at(self._timeout / owner.rate, kernel.resume, task, task.ticket, None)
        answer: Any = kernel.park()
        if answer is None:
            run.killed = True
            raise PxeFilterError(f"nft timed out after {self._timeout:g} s and was killed")
        if answer[0]:
            raise PxeFilterError(f"nft failed with exit code 1: Error: {answer[0]}")
        return ""

    def _arrive(self, run: Nft) -> None:
        kernel, owner = self._world.kernel, self._process.owner
        if run.killed or (owner.dead and run.frozen_too):
            return
        if owner.paused and run.frozen_too:
            kernel.at(0.1, self._arrive, run)
            return
        error = ""
        try:
            self._firewall.take(run.script, owner.name)
        except RefusedError as exc:
            error = str(exc)
        kernel.at(run.back, run.answer, (error,))
