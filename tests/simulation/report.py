"""What people read: the transcript of a run in columns, and the figures of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.simulation.run import Line, Result

_YEAR = 365.25 * 24  # in hours


def transcript(lines: Sequence[Line]) -> str:
    """Return the lines in columns: time in seconds, who, what."""
    width = max((len(who) for _, who, _ in lines), default=0)
    return "\n".join(f"{when:10.3f}  {who:{width}}  {what}" for when, who, what in lines)


def command(result: Result, options: str = "") -> str:
    """Return the command that repeats the run."""
    return f"python -m tests.simulation --seed {result.seed} --transcript{options}"


def failure(result: Result, options: str = "") -> str:
    """Return what is wrong and how to see it."""
    story = f" ({result.story})" if result.story else ""
    return f"seed {result.seed}{story}: {result.rule}: {result.what}\n  repeat it: {command(result, options)}"


class Tally:
    """Adds up results; ``summary`` is the table at the end."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.failed: list[Result] = []
        self.seeds = self.stories = 0
        self.simulated = 0.0
        self.real = 0.0

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.stories += bool(result.story)
        self.simulated += result.simulated
        self.real += result.real
        self.counted += result.counted
        if result.rule is not None:
            self.failed.append(result)

    def summary(self, elapsed: float) -> str:
        """Return the figures; ``elapsed`` is the wall clock's time for all of it, in seconds."""
        counted, hours, minutes = self.counted, self.simulated / 3600, elapsed / 60 or 1
        faults = sum(number for name, number in counted.items() if name.startswith("fault: "))
        rows = [
            ("seeds run", f"{self.seeds}, {len(self.failed)} of them violate an invariant"),
            ("simulated time", f"{hours:,.1f} hours in {elapsed:,.0f} s, or {self.real:,.0f} s of one core"),
            (
                "simulated years per minute",
                f"{hours / _YEAR / minutes:.5f} ({hours / minutes:,.1f} hours), "
                f"and {hours / _YEAR / (self.real / 60 or 1):.5f} ({hours / (self.real / 60 or 1):,.1f} hours) "
                "per minute of one core",
            ),
            *self._pxe_filters(hours),
            *self._no_harm(),
            ("inspections", self._list("inspections", ("finished", "error"))),
            ("errors by reason", self._prefixed("error: ")),
            ("claims, commits", f"{counted['claims']}, {counted['commits']}"),
            ("statements", f"{counted['statements']}, {counted['deadlocks']} deadlocks"),
            (
                "takeovers",
                f"{counted['takeovers']} leases went to a new holder in a new epoch, "
                f"{counted['takeovers'] / minutes:.0f} a minute, "
                f"{counted['takeovers'] / (hours or 1):.1f} a simulated hour",
            ),
            (
                "stale writes",
                f"{counted['stale writes refused']} refused, 0 accepted" if not self.failed else "see above",
            ),
            ("processes started", f"{counted['processes started']}"),
            ("faults injected", f"{faults / (hours or 1):.1f} a simulated hour: {self._prefixed('fault: ')}"),
            (
                "lost by fail-overs",
                f"{counted['commits lost by fail-overs']} commits, "
                f"{counted['answers 2xx lost by a fail-over']} of them answered 2xx (replicas that lag behind only)",
            ),
        ]
        known = ("fault: ", "error: ", "inspections", "story ", "prohibition: ", "nodes that failed: ")
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
            "machines left off: told",
            "filter openings",
            "seconds with an open filter",
        }
        others = [
            (name, str(number))
            for name, number in sorted(counted.items())
            if not name.startswith(known) and name not in told
        ]
        return "\n".join(f"{name:28} {value}" for name, value in [*rows, *others])

    def _no_harm(self) -> list[tuple[str, str]]:
        """Return what no story may end with, and how its failed nodes fared."""
        if not self.stories:
            return []
        rules = Counter(result.rule for result in self.failed)
        words = {"ready": "healthy machines off", "twice": "pods twice", "told": "not told", "waits": "not failed over"}
        harm = ", ".join(f"{rules[rule]} {word}" for rule, word in words.items())  # type: ignore[index]
        others = ", ".join(f"{number} {rule}" for rule, number in sorted(rules.items(), key=str) if rule not in words)
        return [
            ("stories", f"{self.stories}: {harm}; {others or 'nothing else'}"),
            ("failed nodes", self._prefixed("nodes that failed: ")),
            ("machines left off", f"{self.counted['machines left off: told']}, all told"),
            ("failures", self._prefixed("story failure: ")),
            ("mistakes", self._prefixed("story mistake: ")),
            ("spellings", self._prefixed("story spelling: ")),
            ("prohibitions", self._prefixed("prohibition: ")),
            ("their moments", self._prefixed("story moment: ")),
            ("troubles", self._prefixed("story trouble: ")),
        ]

    def _pxe_filters(self, hours: float) -> list[tuple[str, str]]:
        openings, seconds = self.counted["filter openings"], self.counted["seconds with an open filter"]
        if not openings:
            return []
        double = sum(result.rule == "I4" for result in self.failed)
        share = seconds / (self.simulated or 1)
        return [
            ("filters open at once", f"{double} times more than one"),
            (
                "filter openings",
                f"{openings}, {openings / (hours or 1):.1f} a simulated hour; open {share:.0%} of the time",
            ),
        ]

    def _list(self, name: str, ends: Sequence[str]) -> str:
        parts = ", ".join(f"{self.counted[f'{name} {end}']} {end}" for end in ends)
        return f"{self.counted[name]} accepted, {parts}"

    def _prefixed(self, prefix: str) -> str:
        found = sorted((name.removeprefix(prefix), n) for name, n in self.counted.items() if name.startswith(prefix))
        return ", ".join(f"{name} {number}" for name, number in found) or "none"
