"""Starts ``ferroscope`` as a fork of a process that has imported it, which spares two thirds of a second each time.

``make test`` sets ``FERROSCOPE_TESTS_FORK``; ``make test-exhaustive`` starts everything anew. What a test starts is a
process of its own here too, with its own environment, directory, streams and exit code, but its parent is the fork
server. A command that needs more than that is started anew: another program, other variables for Python itself, other
namespaces or users, a function to be called before.
"""

from __future__ import annotations

import array
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, TextIO
from unittest import mock

from tests.support import processes

WANTED: Final = "FERROSCOPE_TESTS_FORK"
_MODULE: Final = [sys.executable, "-m", "ferroscope"]
_SCRIPT: Final = str(Path(sys.executable).with_name("ferroscope"))
# What most commands and all roles import, on every database.
_IMPORTED: Final = (
    "ferroscope.api.routes",
    "ferroscope.bmc.redfish.driver",
    "ferroscope.cli.main",
    "ferroscope.cli.node",
    "ferroscope.cli.service",
    "ferroscope.db.migrate",
    "ferroscope.hooks.loader",
    "ferroscope.rules.engine",
    "ferroscope.runtime.process",
    "ferroscope.ui.app",
    "ferroscope.worker.tasks",
    "psycopg",
    "pymysql",
    "sqlalchemy.dialects.sqlite",
)
# Variables that Python or the loader reads before any of our code runs.
_EARLY: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")
_STATUS: Final = struct.Struct("i")
_HEADER: Final = struct.Struct("I")
_ROOT: Final = Path(__file__).parents[2]
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
        streams = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        ours, theirs = socket.socketpair()
        with theirs:
            fds = [number if fd == -1 else fd for number, fd in enumerate(streams)]
            self.pid = _fork_server().fork(_request(asked), [*fds, theirs.fileno()])
        self._ended = ours
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in names if name[:3] in ("p2c", "c2p", "err")))

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._ended is None:
            return super()._try_wait(wait_flags)
        try:
            said = self._ended.recv(_STATUS.size, socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        self._ended.close()
        return self.pid, _STATUS.unpack(said)[0] if said else signal.SIGKILL

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
    if words[:3] != _MODULE and words[:1] != [_SCRIPT]:
        return False
    if asked["preexec_fn"] not in (None, processes.die_with_parent) or asked["pass_fds"] or not asked["close_fds"]:
        return False
    if (asked["gid"], asked["gids"], asked["uid"], asked["umask"]) != (None, None, None, -1):
        return False
    return _early(os.environ if env is None else env) == _early(os.environ) and _namespaces() == _NAMESPACES


def _split(words: Any) -> tuple[str, list[str]]:
    """Return the network namespace in which the command shall run, empty for this one, and the command."""
    words = [os.fsdecode(word) for word in words]
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
                command, cwd=_ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
            )

    def fork(self, request: dict[str, Any], fds: list[int]) -> int:
        """Return the pid of a new process with these streams; it tells on the last of ``fds`` how it ended."""
        text = json.dumps(request).encode()
        with self._lock:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            self._socket.sendmsg([_HEADER.pack(len(text))], rights)
            self._socket.sendall(text)
            (pid,) = _HEADER.unpack(_exactly(self._socket, _HEADER.size))
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


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError("the process that starts others is gone")
        found += part
    return found


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; return it in the new process, and None in the old one when the tests have ended."""
    children: dict[int, int] = {}
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as ready:
        ready.register(connection, selectors.EVENT_READ)
        ready.register(awake, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is not connection:
                    os.read(awake, 4096)
                    _tell_ended(children)
                    continue
                header, fds, _, _ = socket.recv_fds(connection, _HEADER.size, 4)
                if not header:
                    return None
                request: dict[str, Any] = json.loads(_exactly(connection, *_HEADER.unpack(header)))
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return request | {"fds": fds[:3]}
                for fd in fds[:3]:
                    os.close(fd)
                children[pid] = fds[3]
                connection.sendall(_HEADER.pack(pid))


def _tell_ended(children: dict[int, int]) -> None:
    for pid in list(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with socket.socket(fileno=children.pop(pid)) as waiting:
                try:
                    waiting.send(_STATUS.pack(status), socket.MSG_NOSIGNAL)
                except OSError:  # nobody waits for it any more
                    continue


def become(request: dict[str, Any]) -> None:
    """Be the process that was asked for, up to its program."""
    if request["session"]:
        os.setsid()
    elif request["group"] not in (None, -1):
        os.setpgid(0, request["group"])
    if request["dies"]:
        processes.die_with_parent()
    for number, fd in enumerate(request["fds"]):
        os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["network"]:
        processes.enter_network(request["network"])
    os.chdir(request["cwd"])
    for name in set(os.environ) - set(request["env"]):
        del os.environ[name]
    os.environ.update(request["env"])
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])


def _stream(number: int) -> TextIO:
    """Return a standard stream, as Python makes it."""
    like = (sys.stdin, sys.stdout, sys.stderr)[number]
    unbuffered = number > 0 and bool(os.environ.get("PYTHONUNBUFFERED"))
    raw: Any = open(number, "wb" if number else "rb", buffering=0 if unbuffered else -1, closefd=False)  # noqa: SIM115
    by_line = not unbuffered and (number == 2 or os.isatty(number))
    return io.TextIOWrapper(
        raw, encoding=like.encoding, errors=like.errors, newline="\n", line_buffering=by_line, write_through=unbuffered
    )


def main() -> None:
    gc.disable()
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.enable()
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    become(request)
    words = request["words"]
    if words[1:3] == _MODULE[1:]:
        sys.path[0] = request["cwd"]
        sys.argv = ["-m", *words[3:]]
        runpy.run_module("ferroscope", run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(_SCRIPT).parent)
        sys.argv = list(words)
        runpy.run_path(_SCRIPT, run_name="__main__")


if __name__ == "__main__":
    main()
