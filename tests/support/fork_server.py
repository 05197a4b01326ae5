"""A process that has imported ``ferroscope``, and forks for each request: the new process is what was asked for.

It runs until the tests that have started it close their end of its socket; see ``tests.support.forking``.
"""

from __future__ import annotations

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
import sys
import time
from pathlib import Path
from typing import Any, Final, TextIO

from tests.support import processes

MODULE: Final = [sys.executable, "-m", "ferroscope"]
SCRIPT: Final = str(Path(sys.executable).with_name("ferroscope"))
STATUS: Final = struct.Struct("i")
HEADER: Final = struct.Struct("I")
# What most commands and all roles import, on every database.
_IMPORTED: Final = (
    "ferroscope.api.routes",
    "ferroscope.bmc.redfish.driver",
    "ferroscope_client.cli.main",
    "ferroscope_client.cli.node",
    "ferroscope.cli.roles",
    "ferroscope.db.migrate",
    "ferroscope.hooks.loader",
    "ferroscope.rules.engine",
    "ferroscope.runtime.process",
    "ferroscope.contrib.ui.app",
    "ferroscope.worker.tasks",
    "psycopg",
    "pymysql",
    "sqlalchemy.dialects.sqlite",
)


def exactly(connection: socket.socket, size: int) -> bytes:
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
                header, fds, _, _ = socket.recv_fds(connection, HEADER.size, 4)
                if not header:
                    return None
                request: dict[str, Any] = json.loads(exactly(connection, *HEADER.unpack(header)))
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return request | {"fds": fds[:3]}
                for fd in fds[:3]:
                    os.close(fd)
                children[pid] = fds[3]
                connection.sendall(HEADER.pack(pid))


def _tell_ended(children: dict[int, int]) -> None:
    for pid in list(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with socket.socket(fileno=children.pop(pid)) as waiting:
                try:
                    waiting.send(STATUS.pack(status), socket.MSG_NOSIGNAL)
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
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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
    if words[1:3] == MODULE[1:]:
        sys.path[0] = request["cwd"]
        sys.argv = ["-m", *words[3:]]
        runpy.run_module("ferroscope", run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(SCRIPT).parent)
        sys.argv = list(words)
        runpy.run_path(SCRIPT, run_name="__main__")


if __name__ == "__main__":
    main()
