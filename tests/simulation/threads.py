"""What the product takes from ``threading``, ``time`` and ``signal``, on the simulated scheduler.

Only one task runs at a time and none is interrupted between its waits, so nothing here needs a lock.
Durations are measured by the clock of the host on which the caller runs.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from time import gmtime, strftime, struct_time
from typing import Any

from tests.simulation.kernel import Kernel, Owner, Task

# No wait ends to the microsecond.
_JITTER = 0.001


def _duration(kernel: Kernel, task: Task, seconds: float) -> float:
    return seconds / task.owner.rate + _JITTER * kernel.rng("wake-ups").random()


class Flag:
    """``threading.Event``, which is a ``ports.clock.StopFlag``."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._set = False
        self._waiting: list[tuple[Task, int]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task, ticket in waiting:
            self._kernel.at(_JITTER * self._kernel.rng("wake-ups").random(), self._kernel.resume, task, ticket)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._set or (timeout is not None and timeout <= 0):
            return self._set
        kernel, task = self._kernel, self._kernel.me()
        self._waiting.append((task, task.ticket))
        if timeout is not None:
            kernel.at(_duration(kernel, task, timeout), kernel.resume, task, task.ticket)
        kernel.park()
        self._waiting = [entry for entry in self._waiting if entry[0] is not task]
        return self._set


class Condition:
    """``threading.Condition``, as far as the bus needs it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._waiting: list[tuple[Task, int]] = []

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_exc: object) -> None: ...

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task, ticket in waiting:
            self._kernel.at(_JITTER * self._kernel.rng("wake-ups").random(), self._kernel.resume, task, ticket)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        if predicate() or (timeout is not None and timeout <= 0):
            return predicate()
        kernel, task = self._kernel, self._kernel.me()
        deadline = None if timeout is None else kernel.now + _duration(kernel, task, timeout)
        while not predicate():
            if deadline is not None:
                if kernel.now >= deadline:
                    break
                kernel.at(deadline - kernel.now, kernel.resume, task, task.ticket)
            self._waiting.append((task, task.ticket))
            kernel.park()
            self._waiting = [entry for entry in self._waiting if entry[0] is not task]
        return predicate()


class Thread:
    """``threading.Thread`` as a task of the process that starts it."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        target: Callable[..., object],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str = "thread",
        daemon: bool = False,
    ) -> None:
        self._kernel = kernel
        self._run = lambda: target(*args, **(kwargs or {}))
        self.name = name
        self.daemon = daemon
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._kernel.spawn(self._kernel.me().owner, self.name, self._run)

    def join(self, timeout: float | None = None) -> None:
        if self._task is None:
            raise RuntimeError("cannot join thread before it is started")
        if self._task.done or (timeout is not None and timeout <= 0):
            return
        kernel, me = self._kernel, self._kernel.me()
        self._task.joiners.append((me, me.ticket))
        if timeout is not None:
            kernel.at(_duration(kernel, me, timeout), kernel.resume, me, me.ticket)
        kernel.park()

    @property
    def ident(self) -> int | None:
        return None if self._task is None else id(self._task)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done


class Executor:
    """``concurrent.futures.ThreadPoolExecutor`` that never makes anybody wait for a thread; see ``waiting``."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel = kernel
        self._name = name
        self._closed = False

    def submit(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(call(*arguments, **options))
            except Exception as exc:  # noqa: BLE001  # as the executor does
                future.set_exception(exc)

        self._kernel.spawn(self._kernel.me().owner, self._name, run)
        return future

    def shutdown(self, **_options: Any) -> None:
        self._closed = True


def waiting(kernel: Kernel) -> Callable[..., None]:
    """Return a ``concurrent.futures.wait`` for the first of these futures."""

    def wait(futures: Collection[Future[Any]], timeout: float, return_when: str) -> None:
        assert return_when == FIRST_COMPLETED
        ended = Flag(kernel)
        for future in futures:
            future.add_done_callback(lambda _: ended.set())
        ended.wait(timeout)

    return wait


class Threading:
    """Stands in for the module ``threading``."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def Event(self) -> Flag:  # noqa: N802  # its name in threading
        return Flag(self._kernel)

    def Lock(self) -> Condition:  # noqa: N802  # its name in threading
        return Condition(self._kernel)

    def Condition(self, _lock: Condition | None = None) -> Condition:  # noqa: N802  # its name in threading
        return Condition(self._kernel)

    def Thread(self, **options: Any) -> Thread:  # noqa: N802  # its name in threading
        return Thread(self._kernel, **options)


class Time:
    """Stands in for the module ``time``, as far as it is used."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def time(self) -> float:
        return self._clock.time()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def gmtime(self) -> struct_time:
        return gmtime(self._clock.time())

    def strftime(self, form: str, at: struct_time) -> str:
        return strftime(form, at)

    @property
    def _clock(self) -> Any:
        return self._kernel.me().owner.host.clock

    def sleep(self, seconds: float) -> None:
        self._kernel.sleep(_duration(self._kernel, self._kernel.me(), seconds))


class Signals:
    """Stands in for ``runtime.system.wait``: each process has a mailbox for its signals."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._sent: dict[Owner, Flag] = {}

    def _mailbox(self, owner: Owner) -> Flag:
        return self._sent.setdefault(owner, Flag(self._kernel))

    def terminate(self, owner: Owner) -> None:
        self._mailbox(owner).set()

    def wait(self, _awaited: Collection[signal.Signals], timeout: float) -> signal.Signals | None:
        return signal.SIGTERM if self._mailbox(self._kernel.me().owner).wait(timeout) else None


class NoMasks:
    """Stands in for the module ``signal`` in ``runtime.process``: nothing is masked here."""

    SIGTERM = signal.SIGTERM
    SIGINT = signal.SIGINT
    SIGHUP = signal.SIGHUP
    SIG_BLOCK = signal.SIG_BLOCK

    def pthread_sigmask(self, _how: int, _mask: Collection[int]) -> None: ...
