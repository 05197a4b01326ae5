"""What people read: the transcript of a run in columns, and the figures of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.simulation.run import Line, Result

_YEAR = 365.25 * 24 * 3600


def transcript(lines: Sequence[Line]) -> str:
    """Return the lines in columns: time in seconds, who, what."""
    width = max((len(who) for _, who, _ in lines), default=0)
    return "\n".join(f"{when:10.3f}  {who:{width}}  {what}" for when, who, what in lines)


def command(result: Result, options: str = "") -> str:
    """Return the command that repeats the run."""
    return f"python -m tests.simulation --seed {result.seed} --transcript{options}"


def failure(result: Result, options: str = "") -> str:
    """Return what is wrong and how to see it."""
    return f"seed {result.seed}: {result.rule}: {result.what}\n  repeat it: {command(result, options)}"


class Tally:
    """Adds up results; ``summary`` is the table at the end."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.failed: list[Result] = []
        self.seeds = 0
        self.simulated = 0.0
        self.real = 0.0

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.simulated += result.simulated
        self.real += result.real
        self.counted += result.counted
        if result.rule is not None:
            self.failed.append(result)

    def summary(self, elapsed: float) -> str:
        """Return the figures; ``elapsed`` is the wall clock's time for all of it, in seconds."""
        counted = self.counted
        rows = [
            ("seeds run", f"{self.seeds}, {len(self.failed)} of them violate an invariant"),
            ("simulated time", f"{self.simulated / 3600:.1f} h in {elapsed:.0f} s of machine time"),
            ("simulated years per minute", f"{self.simulated / _YEAR / (elapsed / 60 or 1):.6f}"),
            ("inspections", self._list("inspections", ("finished", "error"))),
            ("errors by reason", self._prefixed("error: ")),
            ("claims, commits", f"{counted['claims']}, {counted['commits']}"),
            ("statements", f"{counted['statements']}, {counted['deadlocks']} deadlocks"),
            (
                "takeovers",
                f"{counted['takeovers']} leases went to a new holder in a new epoch, "
                f"{counted['takeovers'] / (elapsed / 60 or 1):.0f} a minute",
            ),
            (
                "stale writes",
                f"{counted['stale writes refused']} refused, 0 accepted" if not self.failed else "see above",
            ),
            ("processes started", f"{counted['processes started']}"),
            ("faults injected", self._prefixed("fault: ")),
            (
                "lost by fail-overs",
                f"{counted['commits lost by fail-overs']} commits, "
                f"{counted['answers 2xx lost by a fail-over']} of them answered 2xx (replicas that lag behind only)",
            ),
        ]
        known = ("fault: ", "error: ", "inspections")
        told = {
            "claims",
            "commits",
            "statements",
            "deadlocks",
            "takeovers",
            "stale writes refused",
            "processes started",
            "commits lost by fail-overs",
            "answers 2xx lost by a fail-over",
            "events",
        }
        others = [
            (name, str(number))
            for name, number in sorted(counted.items())
            if not name.startswith(known) and name not in told
        ]
        return "\n".join(f"{name:28} {value}" for name, value in [*rows, *others])

    def _list(self, name: str, ends: Sequence[str]) -> str:
        parts = ", ".join(f"{self.counted[f'{name} {end}']} {end}" for end in ends)
        return f"{self.counted[name]} accepted, {parts}"

    def _prefixed(self, prefix: str) -> str:
        found = sorted((name.removeprefix(prefix), n) for name, n in self.counted.items() if name.startswith(prefix))
        return ", ".join(f"{name} {number}" for name, number in found) or "none"
