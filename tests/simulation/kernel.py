"""One scheduler for everything: simulated time, tasks, and the processes to which they belong.

Tasks are greenlets; only one runs, and it runs until it waits. Whatever happens next is the oldest
event of one heap, so a seed says everything. No thread is started and no real time passes.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

# More events than any honest run has: something spins without time passing.
MAX_EVENTS = 5_000_000


class OverError(BaseException):
    """The simulation has ended under this task; nothing it does counts any more."""


class ViolationError(Exception):
    """An invariant does not hold; ``rule`` names it as design.md does, or by its own word."""

    def __init__(self, rule: str, what: str, at: float) -> None:
        self.rule = rule
        self.what = what
        self.at = at
        super().__init__(f"{rule}: {what}")


class Owner:
    """What lives and dies together: an operating system process, or the world outside of them.

    ``rate`` is how fast its clock runs. A paused owner gets its events when it goes on; a dead
    one gets none.
    """

    def __init__(self, name: str, *, rate: float = 1.0, host: Any = None) -> None:
        self.name = name
        self.rate = rate
        self.host = host
        self.dead = False
        self.paused = False
        self.paused_for = 0.0
        self.deferred: list[tuple[Task, int, Any]] = []
        self.on_death: list[Callable[[], object]] = []
        self.died_at = 0.0


class Task:
    """One thread of an owner. ``ticket`` counts its waits, so that a late wake-up is known as such."""

    __slots__ = ("done", "frozen", "greenlet", "joiners", "name", "notes", "owner", "ticket")

    def __init__(self, owner: Owner, name: str) -> None:
        self.owner = owner
        self.name = name
        self.ticket = 0
        self.done = False
        self.frozen = False
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

    def fail(self, rule: str, what: str) -> None:
        """An invariant is violated: the run ends after the present event."""
        if self.failure is None and not self.over:
            self.failure = ViolationError(rule, what, self.now)
            self.say(f"VIOLATION {rule}: {what}")

    def at(self, delay: float, act: Callable[..., object], *arguments: Any) -> None:
        """Let ``act`` happen ``delay`` seconds from now."""
        heapq.heappush(self._heap, (self.now + delay, next(self._order), act, arguments))

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
        """Let the task go on with ``value`` if it still waits with this ticket."""
        owner = task.owner
        if task.ticket != ticket or task.done or owner.dead or self.over:
            return
        if owner.paused or task.frozen:
            owner.deferred.append((task, ticket, value))
            return
        task.ticket += 1
        self.current = task
        task.greenlet.switch(value)
        self.current = None

    def park(self) -> Any:
        """Wait until somebody resumes the present task; return the value that they gave."""
        if self.over:
            raise OverError
        return self._hub.switch()

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
        heap, pop = self._heap, heapq.heappop
        check_at = self.now
        while heap and self.failure is None:
            if heap[0][0] > until:
                break
            when, _, act, arguments = pop(heap)
            self.now = when
            act(*arguments)
            self.events += 1
            if self.events > MAX_EVENTS:
                self.fail("spin", f"{MAX_EVENTS} events happened in {self.now:.1f} simulated seconds")
            if done is not None and when >= check_at:
                check_at = when + 0.5
                if done():
                    return True
        if self.failure is None:
            self.now = max(self.now, until)
        return False

    def pause(self, owner: Owner) -> None:
        """Stop the owner as SIGSTOP, a debugger or a frozen virtual machine does."""
        owner.paused = True
        owner.paused_for = self.now

    def proceed(self, owner: Owner) -> None:
        """Let a paused owner go on; what it missed arrives at once."""
        if not owner.paused:
            return
        owner.paused = False
        owner.paused_for = self.now - owner.paused_for
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
