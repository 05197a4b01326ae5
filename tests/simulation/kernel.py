"""One scheduler for everything: simulated time, tasks, and the processes to which they belong.

Tasks are greenlets; only one runs, and it runs until it waits. Whatever happens next is the oldest
event of one heap, so a seed says everything. No thread is started and no real time passes.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any, Literal

from greenlet import getcurrent, greenlet

_push = heapq.heappush
# How often it is looked whether the run is to end, in simulated seconds.
_CHECK = 0.5
_NEVER = -1.0
# More events than any honest run has: something spins without time passing.
MAX_EVENTS = 5_000_000

# What may be violated: an invariant of design.md, a promise that the design makes elsewhere, or that a run has an end.
Rule = Literal[
    "I1", "I2", "I3", "I4", "I6", "I7", "I8", "I10",
    "event", "filter", "intent", "leader", "order", "reboot", "state", "thread", "throttle", "trust", "two claims",
    "ready", "storm", "control plane", "proof", "twice", "stuck",
    "early", "in vain", "last word", "told", "waits",
    "spin",
]  # fmt: skip


def _not_yet() -> bool:
    return False


class OverError(BaseException):
    """The simulation has ended under this task; nothing it does counts any more."""


class ViolationError(Exception):
    """An invariant does not hold; ``rule`` names it as design.md does, or by its own word."""

    def __init__(self, rule: Rule, what: str, at: float) -> None:
        self.rule = rule
        self.what = what
        self.at = at
        super().__init__(f"{rule}: {what}")


class Owner:
    """What lives and dies together: an operating system process, or the world outside of them.

    ``rate`` is how fast its clock runs. A paused owner gets its events when it goes on; a dead
    one gets none. ``missed`` is for how many seconds it was paused until now.
    """

    def __init__(self, name: str, *, rate: float = 1.0, host: Any = None) -> None:
        self.name = name
        self.rate = rate
        self.host = host
        self.dead = False
        self.paused = False
        self.missed = 0.0
        self.paused_at = 0.0
        self.deferred: list[tuple[Task, int, Any]] = []
        self.on_death: list[Callable[[], object]] = []
        self.died_at = 0.0


class Task:
    """One thread of an owner. ``ticket`` counts its waits, so that a late wake-up is known as such.

    ``unanswered``: it has sent a COMMIT, and got no answer.
    """

    __slots__ = ("done", "frozen", "greenlet", "joiners", "name", "notes", "owner", "ticket", "unanswered")

    def __init__(self, owner: Owner, name: str) -> None:
        self.owner = owner
        self.name = name
        self.ticket = 0
        self.done = False
        self.frozen = False
        self.unanswered = False
        self.joiners: list[tuple[Task, int]] = []
        self.notes: dict[str, Any] = {}
        self.greenlet: Any = None

    def __str__(self) -> str:
        return f"{self.owner.name}/{self.name}"


class Kernel:
    """``now`` is true time in seconds; ``rng`` draws by name, so that one fault does not shift all others."""

    def __init__(self, seed: int, *, transcript: bool = False) -> None:
        self.seed = seed
        self.now = 0.0
        self.current: Task | None = None
        self.over = False
        self.failure: ViolationError | None = None
        self.events = 0
        self.lines: list[tuple[float, str, str]] | None = [] if transcript else None
        self.on_fault: Callable[[Task, BaseException], None] | None = None
        self.world = Owner("world")
        self._next: tuple[Task, Any] | None = None  # who goes on after the present event
        self._until = 0.0
        self._done: Callable[[], bool] = _not_yet
        self._was_done = False
        self._look_at = 0.0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._hub = getcurrent()
        self._tasks: list[Task] = []
        self._rngs: dict[str, random.Random] = {}

    def rng(self, name: str) -> random.Random:
        found = self._rngs.get(name)
        if found is None:
            found = self._rngs[name] = random.Random(f"{self.seed}/{name}")
        return found

    def say(self, what: str, actor: str = "") -> None:
        """Write a line of the transcript, if there is one."""
        if self.lines is not None:
            self.lines.append((self.now, actor or (str(self.current) if self.current else "world"), what))

    def fail(self, rule: Rule, what: str) -> None:
        """An invariant is violated: the run ends after the present event."""
        if self.failure is None and not self.over:
            self.failure = ViolationError(rule, what, self.now)
            self._until = self._look_at = _NEVER
            self.say(f"VIOLATION {rule}: {what}")

    def at(self, delay: float, act: Callable[..., object], *arguments: Any) -> None:
        """Let ``act`` happen ``delay`` seconds from now."""
        _push(self._heap, (self.now + delay, next(self._order), act, arguments))

    def spawn(self, owner: Owner, name: str, run: Callable[[], object]) -> Task:
        """Start a task of ``owner``; it begins with an event of its own."""
        task = Task(owner, name)

        def body(_value: object = None) -> None:
            try:
                run()
            except OverError:
                pass
            except BaseException as exc:  # noqa: BLE001  # the end of a thread: say why
                if not self.over and self.on_fault is not None:
                    self.on_fault(task, exc)
            finally:
                task.done = True
                for joiner, ticket in task.joiners:
                    self.at(0.0, self.resume, joiner, ticket, True)

        task.greenlet = greenlet(body, parent=self._hub)
        self._tasks.append(task)
        self.at(0.0, self.resume, task, 0, None)
        return task

    def resume(self, task: Task, ticket: int, value: Any = None) -> None:
        """Let the task go on with ``value``, after the present event, if it still waits with this ticket."""
        owner = task.owner
        if task.ticket != ticket or task.done or owner.dead or self.over:
            return
        if owner.paused or task.frozen:
            owner.deferred.append((task, ticket, value))
        elif self._next is not None:  # one at a time
            self.at(0.0, self.resume, task, ticket, value)
        else:
            task.ticket += 1
            self._next = (task, value)

    def park(self) -> Any:
        """Wait until somebody resumes the present task; return the value that they gave.

        Whatever happens meanwhile happens here, without a switch, until another task is to go on.
        """
        me, self.current = self.current, None
        if self.over or me is None:
            raise OverError
        try:
            self._happen()
        except BaseException as exc:  # noqa: BLE001  # no fault of this task's: it ends the run
            return self._hub.throw(exc)
        if self._next is None or not self._next[0].greenlet:
            return self._hub.switch()  # which also starts tasks: each begins at the depth of who started it
        task, value = self._take()
        return value if task is me else task.greenlet.switch(value)

    def _take(self) -> tuple[Task, Any]:
        assert self._next is not None
        found, self._next = self._next, None
        self.current = found[0]
        return found

    def _happen(self) -> None:
        """Let one event happen after the other until a task is to go on or the run ends (no ``_next``)."""
        heap, pop = self._heap, heapq.heappop
        while self._next is None:
            if heap and heap[0][0] <= self._look_at and self.events < MAX_EVENTS:
                self.now, _, act, arguments = pop(heap)
                self.events += 1
                act(*arguments)
            elif self._is_over():
                return

    def _is_over(self) -> bool:
        """Look whether the run is to end here; if not, when to look again."""
        if not self._heap or self.events >= MAX_EVENTS or self._look_at >= self._until:
            return True
        self.now = max(self.now, self._look_at)
        self._was_done = self._done()
        if self._was_done:
            self._until = _NEVER
        self._look_at = min(self.now + _CHECK, self._until)
        return self._was_done

    def sleep(self, seconds: float) -> None:
        """Let the present task wait so many true seconds."""
        task = self.me()
        self.at(seconds, self.resume, task, task.ticket)
        self.park()

    def me(self) -> Task:
        """Return the present task; once all is over there is none."""
        if self.over or self.current is None:
            raise OverError
        return self.current

    def run(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Let things happen until time ``until``, a violation, or ``done()``; whether it was done."""
        if self.failure is not None:
            return False
        self._until, self._done, self._was_done = until, done or _not_yet, False
        self._look_at = min(self.now + _CHECK, until)
        self._happen()
        while self._next is not None:
            task, value = self._take()
            task.greenlet.switch(value)
            self.current = None
            self._happen()
        if self.events >= MAX_EVENTS:
            self.fail("spin", f"{MAX_EVENTS} events happened in {self.now:.1f} simulated seconds")
        if self.failure is None and not self._was_done:
            self.now = max(self.now, until)
        return self._was_done

    def pause(self, owner: Owner) -> None:
        """Stop the owner as SIGSTOP, a debugger or a frozen virtual machine does."""
        owner.paused = True
        owner.paused_at = self.now

    def proceed(self, owner: Owner) -> None:
        """Let a paused owner go on; what it missed arrives at once."""
        if not owner.paused:
            return
        owner.paused = False
        owner.missed += self.now - owner.paused_at
        missed, owner.deferred = owner.deferred, []
        for task, ticket, value in missed:
            self.at(0.0, self.resume, task, ticket, value)

    def thaw(self, task: Task) -> None:
        """Let a frozen task go on."""
        task.frozen = False
        owner = task.owner
        mine = [entry for entry in owner.deferred if entry[0] is task]
        owner.deferred = [entry for entry in owner.deferred if entry[0] is not task]
        for _, ticket, value in mine:
            self.at(0.0, self.resume, task, ticket, value)

    def kill(self, owner: Owner) -> None:
        """End the owner as SIGKILL does: none of its code runs again, its connections break."""
        if owner.dead:
            return
        owner.dead = True
        owner.died_at = self.now
        owner.deferred.clear()
        for act in owner.on_death:
            act()
        owner.on_death.clear()

    def close(self) -> None:
        """Throw away every task that has not ended."""
        self.over = True
        self.current = None
        for task in self._tasks:
            if not task.done and task.greenlet:
                task.greenlet.throw(OverError)
        self._tasks.clear()
        self._heap.clear()
