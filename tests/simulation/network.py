"""Links between hosts: latency, partitions during which words wait in vain, connections that break.

A link is what TCP makes of the network: words arrive in order or not at all. While it is cut they wait;
if it is mended before the sender's patience ends they arrive late, else the sender gets an error.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.kernel import Kernel

# How often words still arrive although their sender has given up.
_GHOSTS = 0.3


class Link:
    """One host's way to one service. ``reset_chance`` is per message, ``slowness`` stretches latency."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name = name
        self.up = True
        self.reset_chance = 0.0
        self.commit_reset_chance = 0.0
        self.slowness = 1.0
        self.deaf_to: tuple[str, ...] = ()  # names of tasks whose words are swallowed
        self._kernel = kernel
        self._rng = kernel.rng(f"link {name}")
        self._draw = self._rng.random
        self._stalled: list[tuple[Callable[[], object], list[bool]]] = []

    @property
    def healthy(self) -> bool:
        return self.up and self.slowness == 1.0 and not (self.reset_chance or self.commit_reset_chance or self.deaf_to)

    def latency(self) -> float:
        """Return a latency: mostly a fraction of a millisecond, now and then much more."""
        draw = self._draw()
        base = 0.0002 + 0.0006 * self._draw()
        if draw > 0.98:
            base *= 40
        return base * self.slowness

    def swallows(self, name: str) -> bool:
        """Whether a firewall has forgotten the connection of the task of this name."""
        return bool(self.deaf_to) and name.startswith(self.deaf_to)

    def resets(self, *, commit: bool) -> bool:
        """Whether the connection breaks at this message."""
        chance = self.commit_reset_chance if commit else self.reset_chance
        return chance > 0.0 and self._rng.random() < chance

    def send(
        self,
        deliver: Callable[[], object],
        patience: float | None,
        lost: Callable[[], object] | None = None,
        *,
        after: float = 0.0,
    ) -> float:
        """Deliver after the latency, not before the time ``after``; ``lost`` once ``patience`` seconds are over.

        Returns when it will arrive if nothing happens to the link.
        """
        kernel, delay = self._kernel, self.latency()
        if after:
            delay = max(delay, after - kernel.now)
        kernel.at(delay, self._arrive, deliver, patience, lost)
        return kernel.now + delay

    def _arrive(self, deliver: Callable[[], object], patience: float | None, lost: Callable[[], object] | None) -> None:
        if self.up:
            deliver()
            return
        waits = [True]
        if patience is None:  # nobody waits for it, and nobody will say it again
            return
        self._stalled.append((deliver, waits))

        def give_up() -> None:
            if waits[0]:
                # The sender has gone, but its kernel may go on trying.
                waits[0] = self._rng.random() < _GHOSTS
                if lost is not None:
                    lost()

        self._kernel.at(patience, give_up)

    def cut(self) -> None:
        self.up = False

    def mend(self) -> None:
        self.up = True
        stalled, self._stalled = self._stalled, []
        for deliver, waits in stalled:
            if waits[0]:
                self._kernel.at(0.05 + self._rng.random(), self._late, deliver, waits)

    def _late(self, deliver: Callable[[], object], waits: list[bool]) -> None:
        if not waits[0]:
            return
        if not self.up:
            self._stalled.append((deliver, waits))
            return
        waits[0] = False
        deliver()
