"""Start inspections, poll them until they end, and display their progress.

At most ``limit`` inspections are in progress. ``Watch`` prints nothing and never sleeps; the caller of ``step`` decides
how often to poll. The load on the service depends on the number of inspections in progress, not on the number of nodes.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from ferroscope.cli.client import Api, ApiError, Json, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.output import console
from ferroscope.cli.text import clean, with_reason
from ferroscope.core.states import TERMINAL, UNDER_WAY, State

if TYPE_CHECKING:
    from rich.console import Console

FINISHED: Final = str(State.FINISHED)
ERROR: Final = str(State.ERROR)
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
STILL_RUNNING: Final = "still running"
NOT_STARTED: Final = "not started"

_FEW: Final = 8
_STARTS_A_STEP: Final = 50


class Target(msgspec.Struct, frozen=True):
    """A node to inspect, with its readable name."""

    uuid: str
    label: str


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a node's inspection; ``code`` is the exit code for this node alone."""

    node: str
    uuid: str
    result: str
    reason: str | None = None
    error: str | None = None
    hint: str | None = None
    seconds: float | None = None
    code: Exit = Exit.OK


class Watch:
    """``waiting`` are not started yet, ``active`` (UUID -> provision state) are in progress, ``ended`` have ended.

    With ``join`` nothing is started: it watches inspections in progress, and reports the results of the others.
    """

    def __init__(
        self,
        api: Api,
        targets: Iterable[Target],
        *,
        limit: int | None = None,
        join: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._limit = limit
        self._join = join
        self._clock = clock
        self._targets: dict[str, Target] = {}
        self._began: dict[str, float] = {}
        self.waiting = deque(targets)
        self.total = len(self.waiting)
        self.active: dict[str, str] = {}
        self.ended: list[Ended] = []
        self.seconds_left: float | None = None

    @property
    def over(self) -> bool:
        return not self.waiting and not self.active

    @property
    def may_start(self) -> bool:
        """Whether another inspection can be started within the limit."""
        return bool(self.waiting) and (self._join or self._limit is None or len(self.active) < self._limit)

    def label(self, uuid: str) -> str:
        """Return the readable name of a node whose inspection was started."""
        return self._targets[uuid].label

    def counts(self) -> Counter[str]:
        """Return how many nodes are in each phase."""
        phases = Counter(self.active.values())
        phases.update(end.result for end in self.ended)
        if self.waiting:
            phases["to start"] = len(self.waiting)
        return phases

    def step(self) -> list[Ended]:
        """Poll the inspections in progress and start further ones; return those that ended since the last step."""
        before = len(self.ended)
        if self.active:
            self._poll()
        self.start(_STARTS_A_STEP)
        return self.ended[before:]

    def start(self, most: int) -> None:
        """Start as many as the limit allows, at most ``most``."""
        while self.may_start and most > 0:
            target = self.waiting[0]
            refusal = None if self._join else self._start(target)
            self.waiting.popleft()
            most -= 1
            if refusal is not None:
                self._end(target, REFUSED, error=refusal.message, code=Exit(refusal.exit_code))
                continue
            self._targets[target.uuid] = target
            self._began[target.uuid] = self._clock()
            self.active[target.uuid] = str(UNDER_WAY[0])

    def _start(self, target: Target) -> ApiError | None:
        """Start an inspection; return the error if it was refused."""
        try:
            self._api.put(node_path(target.uuid, "states", "provision"), {"target": "inspect"})
        except ApiError as exc:
            if exc.exit_code == Exit.UNREACHABLE:
                raise
            return exc
        return None

    def detach(self) -> None:
        """Start all inspections without waiting for them: their result is ``accepted``."""
        self.start(len(self.waiting))
        for uuid in self.active:
            self._end(self._targets[uuid], ACCEPTED)
        self.active.clear()

    def give_up(self) -> None:
        """Stop waiting; the service continues with the inspections that were started."""
        for uuid, state in self.active.items():
            self._end(self._targets[uuid], STILL_RUNNING, error=f"still {state}", code=Exit.TIMED_OUT)
        for target in self.waiting:
            self._end(target, NOT_STARTED, code=Exit.TIMED_OUT)
        self.active.clear()
        self.waiting.clear()

    def _poll(self) -> None:
        states = self._states()
        for uuid in list(self.active):
            if uuid in states:
                self.active[uuid] = states[uuid]
            else:
                self._conclude(uuid)

    def _states(self) -> dict[str, str]:
        """Return the provision states of the inspections that are certainly in progress."""
        if len(self.active) <= _FEW:
            seen = {uuid: self._state(uuid) for uuid in self.active}
            return {uuid: state for uuid, state in seen.items() if state in UNDER_WAY}
        return {
            node["uuid"]: state
            for state in UNDER_WAY
            for node in self._api.pages("/v1/nodes", "nodes", provision_state=state, fields=("uuid",))
        }

    def _state(self, uuid: str) -> str | None:
        try:
            return str(self._api.get(node_path(uuid), fields=("provision_state",))["provision_state"])
        except ApiError as exc:
            if exc.status != 404:
                raise
            return None

    def _conclude(self, uuid: str) -> None:
        """Record the result from the node's newest inspection, unless it is still in progress.

        The node may have changed its state between two pages of the poll.
        """
        target = self._targets[uuid]
        try:
            found = self._api.get(node_path(uuid, "inspections"), limit=1)["inspections"]
        except ApiError as exc:
            if exc.status != 404:
                raise
            found = [{"state": ERROR, "error": "the node was deleted"}]
        if not found and self._join:
            del self.active[uuid]
            self._end(target, REFUSED, error="the node has never been inspected", code=Exit.CONFLICT)
            return
        newest: Json = found[0] if found else {"state": ERROR, "error": "its inspection was deleted"}
        if newest["state"] not in TERMINAL:
            return
        del self.active[uuid]
        if newest["state"] == FINISHED:
            self._end(target, FINISHED)
        else:
            details = {name: newest.get(name) for name in ("reason", "error", "hint")}
            self._end(target, ERROR, **details, code=Exit.FAILURE)

    def _end(self, target: Target, result: str, *, code: Exit = Exit.OK, **details: str | None) -> None:
        began = self._began.get(target.uuid)
        seconds = None if began is None else round(self._clock() - began, 2)
        self.ended.append(
            Ended(node=target.label, uuid=target.uuid, result=result, seconds=seconds, code=code, **details)
        )


def verdict(ended: Iterable[Ended]) -> Exit:
    """Return the exit code for all these results."""
    codes = {end.code for end in ended} - {Exit.OK}
    if Exit.TIMED_OUT in codes:
        return Exit.TIMED_OUT
    return codes.pop() if len(codes) == 1 else Exit.FAILURE if codes else Exit.OK


def as_data(end: Ended) -> Json:
    """Return a result for JSON and YAML."""
    return {name: value for name, value in msgspec.structs.asdict(end).items() if name != "code"}


# Display of the progress

_PHASES: Final = {
    "to start": "to start",
    "accepted": "accepted",
    "inspecting": "inspecting",
    "inspect wait": "inspect wait",
    "finished": "finished",
    "error": "failed",
    "refused": "refused",
    "still running": "still running",
    "not started": "not started",
}
_STYLES: Final = {
    "to start": "dim",
    "inspecting": "cyan",
    "inspect wait": "blue",
    "finished": "green",
    "failed": "bold red",
    "refused": "bold red",
    "still running": "yellow",
    "not started": "yellow",
}
_LINE_EVERY: Final = 1.0
_POLL_SECONDS: Final = 0.25
_PATIENCE: Final = 60.0


class Display:
    """Shows the progress of a watch; this base class shows nothing, for --wait."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def update(self, watch: Watch, ended: Iterable[Ended]) -> None:
        """Show the progress; ``ended`` are the inspections that ended since the last call."""

    def say(self, text: Any, style: str = "") -> None:
        """Print a permanent line."""


def follow(
    watch: Watch, shown: Display, *, timeout: float | None = None, also: Callable[[], None] = lambda: None
) -> None:
    """Run ``watch`` until it ends or ``timeout`` seconds have passed; ``also`` is called in each iteration.

    An unreachable service is tolerated for a minute: the inspections continue when it is back.
    """
    began = seen = time.monotonic()
    while True:
        ended: list[Ended] = []
        try:
            ended = watch.step()
            seen = time.monotonic()
        except Failure as exc:
            if exc.exit_code != Exit.UNREACHABLE or time.monotonic() - seen > _PATIENCE:
                raise
        if timeout is not None:
            watch.seconds_left = max(0.0, began + timeout - time.monotonic())
            if not watch.seconds_left and not watch.over:
                watch.give_up()
        shown.update(watch, ended)
        also()
        if watch.over:
            return
        if not watch.may_start:
            time.sleep(_POLL_SECONDS)


def display(*, error: bool = False, quiet: bool = False) -> Display:
    """Return the display for a terminal or for other output; ``quiet``: only a bar, and only on a terminal."""
    screen = console(error=error or quiet)
    if screen.is_terminal:
        return LiveDisplay(screen, quiet=quiet)
    return Display() if quiet else LineDisplay(screen)


class LiveDisplay(Display):
    """For terminals; ``quiet``: failures are not shown, and the bar disappears at the end."""

    def __init__(self, screen: Console, *, quiet: bool = False) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[phases]}", markup=True),
            console=screen,
            refresh_per_second=8,
            transient=quiet,
        )
        self._quiet = quiet
        self._task = self._progress.add_task("", total=None, phases="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, watch: Watch, ended: Iterable[Ended]) -> None:
        for end in ended:
            if end.result != FINISHED and not self._quiet:
                self.say(failure(end), style="red")
        shown = "  ".join(f"[{_STYLES.get(name, 'none')}]{count} {name}[/]" for name, count in phases(watch.counts()))
        if watch.seconds_left is not None and not watch.over:
            shown += f"  {watch.seconds_left:.0f} s left"
        self._progress.update(self._task, total=watch.total, completed=len(watch.ended), phases=shown)

    def say(self, text: Any, style: str = "") -> None:
        self._progress.console.print(text, style=style)


class LineDisplay(Display):
    """For pipes, files and CI: a line for each change, at most one per second."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._began = time.monotonic()
        self._shown: tuple[tuple[str, int], ...] = ()
        self._shown_at = 0.0

    def update(self, watch: Watch, ended: Iterable[Ended]) -> None:
        for end in ended:
            if end.result != FINISHED:
                self.say(failure(end))
        counts = tuple(phases(watch.counts()))
        now = time.monotonic()
        if counts == self._shown or (now - self._shown_at < _LINE_EVERY and not watch.over):
            return
        self._shown, self._shown_at = counts, now
        shown = "  ".join(f"{count} {name}" for name, count in counts)
        if watch.seconds_left is not None and not watch.over:
            shown += f"  {watch.seconds_left:.0f} s left"
        self.say(f"{now - self._began:5.1f} s  {len(watch.ended):>{len(str(watch.total))}}/{watch.total}  {shown}")

    def say(self, text: Any, style: str = "") -> None:
        self._screen.print(text)
        self._screen.file.flush()


def phases(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return the non-empty phases with their counts, in the order of an inspection."""
    return [(shown, counts[name]) for name, shown in _PHASES.items() if counts[name]]


def shown_result(end: Ended) -> str:
    """Return the result as readable text."""
    return _PHASES.get(end.result, end.result)


def failure(end: Ended) -> str:
    """Return the result of a node, the reason, and the advice."""
    why = with_reason(end.error, end.reason).strip()
    text = f"{end.node}: {shown_result(end)}: {why}" if why else f"{end.node}: {shown_result(end)}"
    return clean(f"{text}\n    {end.hint}" if end.hint else text)
