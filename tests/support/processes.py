"""Processes that the tests start: under the right user, on a free port, and never left behind.

Standard library only: ``keeper`` runs before and beside everything else.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import pwd
import random
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.support.speed import slowness

T = TypeVar("T")

IN_MEMORY = "memory"  # the link in the directory of a test run to one on a file system in memory
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET, _CLONE_NEWNS = 0x40000000, 0x00020000
_MS_REC, _MS_SLAVE, _MNT_DETACH = 16384, 1 << 19, 2
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def account(*names: str) -> str | None:
    """Return whom a server shall run as: nobody else for a plain user, the first that exists for root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in names if name in known), "nobody")


def run(command: Sequence[str], *, user: str | None, directory: Path) -> None:
    """Run a command to its end; raise ``RuntimeError`` with what it said where it fails."""
    done = subprocess.run(
        command, **_identity(user), cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def spawn(command: Sequence[str], *, user: str | None, directory: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a process that is killed when this one dies, in a process group of its own."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            **_identity(user),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


# How many of the last ports that were given out are kept for those who asked.
_RESERVATIONS: Final = 200
_reserved: deque[socket.socket] = deque()


@atexit.register
def _give_up_ports() -> None:
    while _reserved:
        _reserved.popleft().close()


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free, outside the range from which the kernel hands out ports.

    Whoever asked has it for a while, until it is listened at: nobody else on this machine gets it from here, not
    even another run of the tests. The reservation is a socket in the abstract namespace, which ends with its process.
    """
    for port in random.sample(range(20000, 32000), 200):
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0ferroscope-tests-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        _reserved.append(reservation)
        if len(_reserved) > _RESERVATIONS:
            _reserved.popleft().close()
        return port
    raise RuntimeError("no free port between 20000 and 32000 on 127.0.0.1")


# Seconds for which tests wait for what must happen: only a failure takes longer, however busy the machine.
PATIENCE: Final = 120.0 * slowness()
# Seconds that nobody waits for: what limits a wait that something else has to end.
HOURS: Final = 100 * PATIENCE


def until(condition: Callable[[], bool], *, seconds: float | None = None) -> bool:
    """Wait until the condition holds; return False on timeout. An expensive condition is checked less often.

    Give ``seconds`` for what takes longer on an ordinary machine, or to see that something does not happen: a slower
    one has more.
    """
    deadline = time.monotonic() + (PATIENCE if seconds is None else seconds * slowness())
    while True:
        began = time.monotonic()
        if condition():
            return True
        looked = time.monotonic()
        if looked > deadline:
            return False
        time.sleep(max(0.02, min(4 * (looked - began), 0.5)))


def open_files(pid: int | str = "self") -> list[str]:
    """Return what the process's open files are called; one that is closed meanwhile is left out."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(entry.readlink()))
    return found


def finished(act: Callable[[], T]) -> T:
    """Return what ``act`` returns, or raise what it raises; fail if it does not come to an end.

    What limits the wait inside has to be much longer than ``PATIENCE``, so that nothing else can have ended it.
    """
    done: Future[T] = Future()

    def work() -> None:
        try:
            done.set_result(act())
        except BaseException as error:  # noqa: BLE001
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return done.result(PATIENCE)


def tree(pid: int) -> list[int]:
    """Return ``pid`` and all its living descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, ()))
    return found


def signal_tree(pid: int, number: signal.Signals) -> set[int]:
    """Send the signal to a process and all its descendants, until no new ones appear; return their pids."""
    done: set[int] = set()
    while fresh := [member for member in tree(pid) if member not in done]:
        for member in fresh:
            try:
                os.kill(member, number)
            except ProcessLookupError:
                continue
            finally:
                done.add(member)
    return done


def is_running(pid: int) -> bool:
    """Tell whether the process has not ended: one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_halted(pid: int) -> bool:
    """Tell whether no thread of the process runs: all are stopped, or it has ended.

    A signal is only queued when ``kill`` returns: until the thread that it was given to runs, the others go on.
    """
    try:
        states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # it, or a thread of it, ended meanwhile
        return not Path(f"/proc/{pid}").exists()
    return all(state in "TZX" for state in states)


class Harmable:
    """A process with all its descendants, which may be killed, frozen and thawed; ``process`` while it runs."""

    process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """All its processes die at this instant."""
        if self.process is not None:
            signal_tree(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """It is silent from now on."""
        assert self.process is not None
        for pid in signal_tree(self.process.pid, signal.SIGSTOP):
            until(partial(is_halted, pid))

    def thaw(self) -> None:
        assert self.process is not None
        signal_tree(self.process.pid, signal.SIGCONT)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent dies, so that ``reap`` can wait for it."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap(pids: Iterable[int]) -> None:
    """Wait for the end of those of the processes that are children of this one."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _identity(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def enter_network(name: str) -> None:
    """Enter a network namespace for good, and show it in /sys, as ``ip netns exec`` does."""
    with Path("/run/netns", name).open() as namespace:
        _check(_libc.setns(namespace.fileno(), _CLONE_NEWNET))
    _check(_libc.unshare(_CLONE_NEWNS))
    _check(_libc.mount(b"none", b"/", None, _MS_SLAVE | _MS_REC, None))
    _check(_libc.umount2(b"/sys", _MNT_DETACH))
    _check(_libc.mount(b"none", b"/sys", b"sysfs", 0, None))


def _check(failed: int) -> None:
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
