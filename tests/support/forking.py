"""Starts ``ferroscope`` as a fork of a process that has imported it, which spares two thirds of a second each time.

With ``FERROSCOPE_TESTS_START_ANEW``, everything is started anew. What a test starts is a process of its own here too,
with its own environment, directory, streams and exit code, but its parent is the fork server. A command that needs more
than that is started anew: another program, other variables for Python itself, other namespaces or users, a function to
be called before.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from unittest import mock

from tests import ROOT
from tests.support import processes
from tests.support.fork_server import HEADER, MODULE, SCRIPT, STATUS, exactly

ANEW: Final = "FERROSCOPE_TESTS_START_ANEW"
# Variables that Python or the loader reads before any of our code runs.
_EARLY: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")
_new_popen: Final = subprocess.Popen


class ForkingPopen(subprocess.Popen):
    """``subprocess.Popen`` whose commands are forks where they can be."""

    _ended: socket.socket | None = None

    def _execute_child(self, *given: Any) -> None:
        names = _new_popen._execute_child.__code__.co_varnames[1 : len(given) + 1]
        asked = dict(zip(names, given, strict=True))
        if not _can_fork(asked):
            super()._execute_child(*given)
            return
        sys.audit(
            "subprocess.Popen", asked["executable"], asked["args"], asked["cwd"], asked["env"]
        )  # as its parent does
        streams = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        ours, theirs = socket.socketpair()
        with theirs:
            fds = [number if fd == -1 else fd for number, fd in enumerate(streams)]
            self.pid = _fork_server().fork(_request(asked), [*fds, theirs.fileno()])
        self._ended = ours
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in names if name[:3] in ("p2c", "c2p", "err")))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for its end, as ever; but after a failure of the test nothing else would end it."""
        if error is not None:
            self.kill()
        super().__exit__(kind, error, trace)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._ended is None:
            return super()._try_wait(wait_flags)
        try:
            said = self._ended.recv(STATUS.size, socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        self._ended.close()
        return self.pid, STATUS.unpack(said)[0] if said else signal.SIGKILL

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._ended is None:
            return super()._internal_poll(*given, **named)
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid == self.pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _can_fork(asked: dict[str, Any]) -> bool:
    words, env = asked["args"], asked["env"]
    if isinstance(words, str | bytes | os.PathLike) or asked["shell"] or asked["executable"] is not None:
        return False
    _, words = _split(words)
    if words[:3] != MODULE and words[:1] != [SCRIPT]:
        return False
    if asked["preexec_fn"] not in (None, processes.die_with_parent) or asked["pass_fds"] or not asked["close_fds"]:
        return False
    if (asked["gid"], asked["gids"], asked["uid"], asked["umask"]) != (None, None, None, -1):
        return False
    return _early(os.environ if env is None else env) == _early(os.environ) and _namespaces() == _NAMESPACES


def _split(words: Any) -> tuple[str, list[str]]:
    """Return the network namespace in which the command shall run, empty for this one, and the command."""
    words = [os.fsdecode(word) for word in words]
    if words[:2] == ["env", "--default-signal=HUP"]:  # as any fork has it
        words = words[2:]
    return (words[3], words[4:]) if words[:3] == ["ip", "netns", "exec"] else ("", words)


def _early(env: Any) -> dict[str, str]:
    named = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    return {name: value for name, value in named.items() if name.startswith(_EARLY)}


def _namespaces() -> list[str]:
    """Return the namespaces of this thread: a test may have entered others."""
    return [str(Path(f"/proc/thread-self/ns/{name}").readlink()) for name in ("mnt", "net", "user")]


_NAMESPACES: Final = _namespaces()


def _request(asked: dict[str, Any]) -> dict[str, Any]:
    env = os.environ if asked["env"] is None else asked["env"]
    network, words = _split(asked["args"])
    return {
        "network": network,
        "words": words,
        "cwd": str(Path.cwd() / os.fsdecode(asked["cwd"] or "")),
        "env": {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()},
        "session": asked["start_new_session"],
        "group": asked["process_group"],
        "dies": asked["preexec_fn"] is not None,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    }


class ForkServer:
    """The process that has imported ``ferroscope``, as the tests see it; it ends with them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())]
            self._process = _new_popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
            )

    def fork(self, request: dict[str, Any], fds: list[int]) -> int:
        """Return the pid of a new process with these streams; it tells on the last of ``fds`` how it ended."""
        text = json.dumps(request).encode()
        with self._lock:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            self._socket.sendmsg([HEADER.pack(len(text))], rights)
            self._socket.sendall(text)
            (pid,) = HEADER.unpack(exactly(self._socket, HEADER.size))
        return int(pid)

    def close(self) -> None:
        """End it; what it has forked goes on."""
        self._socket.close()
        self._process.wait()


@contextmanager
def forking() -> Iterator[None]:
    """Let ``subprocess`` start commands as forks of a server, which starts with the first of them."""
    with mock.patch.object(subprocess, "Popen", ForkingPopen):
        yield
    if _fork_server.cache_info().currsize:
        _fork_server().close()


@cache
def _fork_server() -> ForkServer:
    return ForkServer()
