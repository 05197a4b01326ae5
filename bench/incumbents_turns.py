"""What ``incumbents`` has measured: turns of each service, and what can be said of all of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bench.incumbents_plan import Run
from bench.quantiles import Spread, middle, spread


class Turn(msgspec.Struct):
    """The rounds of one service between its start and its end; CPU in seconds.

    ``beside``: that of clients, and of what stands in for Ironic. ``others``: that of anything else on the machine.
    ``wrong``: what was wrong, by machine and round.
    """

    rounds: int = 0
    inspections: int = 0
    seconds: float = 0.0
    spent: float = 0.0
    beside: float = 0.0
    others: float = 0.0
    looks: int = 0
    repeated: int = 0
    callbacks: list[float] = []
    wrong: dict[str, str] = {}

    def add(self, run: Run, wrong: dict[str, str], spent: float, beside: float, machine: float) -> None:
        """Add a round, and the CPU seconds of the service, of what was beside it, and of the whole machine."""
        self.rounds += 1
        self.wrong.update({f"{name}, round {self.rounds}": text for name, text in {**wrong, **run.wrong}.items()})
        self.inspections += run.inspections
        self.seconds += run.seconds
        self.spent += spent
        self.beside += beside
        self.others += max(0.0, machine - spent - beside)
        self.looks += run.looks
        self.repeated += run.repeated
        self.callbacks.extend(run.callbacks)

    @property
    def rate(self) -> float:
        """Inspections per second."""
        return self.inspections / self.seconds

    @property
    def cpu(self) -> float:
        """CPU milliseconds of the service per inspection."""
        return 1000 * self.spent / self.inspections

    @property
    def other_load(self) -> float:
        """Processors that were busy with something else."""
        return self.others / self.seconds


class Measured(msgspec.Struct, frozen=True):
    """Everything, by the service's name, ours first."""

    versions: dict[str, str]
    turns: dict[str, list[Turn]]

    def middle(self, name: str, value: Callable[[Turn], float]) -> float:
        """Return the median of the turns."""
        return middle([value(turn) for turn in self.turns[name]])

    def rate(self, name: str) -> float:
        return self.middle(name, lambda turn: turn.rate)

    def cpu(self, name: str) -> float:
        return self.middle(name, lambda turn: turn.cpu)

    def callbacks(self, name: str) -> Spread:
        """Return how long the callbacks of all turns took to be answered."""
        return spread([seconds for turn in self.turns[name] for seconds in turn.callbacks])
