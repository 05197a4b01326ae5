"""The process that owns the tests' servers: started with the test run, and gone with it.

It serves one request after the other on a Unix socket that it inherits, for any number of test
processes. When the test run ends in whatever way, even by SIGKILL, its standard input closes;
then it kills its servers by their pids, removes their directories and ends. When it is killed
itself, the kernel kills the servers. Standard library only.
"""

from __future__ import annotations

import json
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.daemons import KINDS, VOLATILE, Daemon
from tests.support.processes import IN_MEMORY, adopt_orphans, free_port, reap, run, signal_tree, spawn, until

_START_SECONDS = 150.0  # beside many other tests
_STOP_SECONDS = 30.0


class Kept:
    """One server: its directory, its port, and its process while it runs."""

    def __init__(self, kind: str, directory: Path, *, volatile: bool) -> None:
        self.kind = kind
        self.directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._daemon: Daemon = KINDS[kind]()
        template = directory.parent / f"new-{kind}"
        if not template.exists():
            self._install(template)
        run(["cp", "-a", str(template), str(directory)], user=None, directory=directory.parent)
        if volatile:
            (directory / VOLATILE).touch()

    def start(self) -> None:
        """Run it and wait until it takes connections; its port and its data stay the same."""
        if self.process is not None:
            return
        command = self._daemon.command(self.directory, self.port)
        log = self.directory / "server.log"
        process = spawn(command, user=self._daemon.user, directory=self.directory, log=log)
        self.process = process
        until(lambda: process.poll() is not None or self._daemon.answers(self.port), seconds=_START_SECONDS)
        if process.poll() is not None or not self._daemon.answers(self.port):
            self.kill()
            raise RuntimeError(f"{self.kind} did not start:\n{log.read_text(errors='replace')[-4000:]}")

    def _install(self, directory: Path) -> None:
        """Make what all new servers of this kind are copies of: that takes seconds, in which nobody else is served."""
        directory.mkdir()
        try:
            if self._daemon.user is not None:
                shutil.chown(directory, self._daemon.user)
            self._daemon.install(directory)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def stop(self) -> None:
        """Let it end in its own time, connections cut."""
        if self.process is not None:
            signal_tree(self.process.pid, signal.SIGCONT)
            self.process.send_signal(signal.SIGINT if self.kind == "postgresql" else signal.SIGTERM)
            try:
                self.process.wait(_STOP_SECONDS)
                self.process = None
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """All its processes die at this instant."""
        if self.process is not None:
            killed = signal_tree(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            reap(killed)

    def freeze(self) -> None:
        """All its processes stop; their connections stay open and silent."""
        if self.process is not None:
            signal_tree(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        if self.process is not None:
            signal_tree(self.process.pid, signal.SIGCONT)

    def discard(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Keeper:
    """All servers by name."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._servers: dict[str, Kept] = {}

    def answer(self, request: dict[str, str]) -> dict[str, Any]:
        name, verb = request["name"], request["verb"]
        if verb == "start":
            server = self._server(name, request["kind"], volatile="volatile" in request)
            server.start()
        elif verb == "discard":
            server = self._servers.pop(name)
            server.discard()
        elif verb in ("stop", "kill", "freeze", "thaw"):
            server = self._servers[name]
            getattr(server, verb)()
        else:
            raise ValueError(f"no such verb: {verb}")
        pid = server.process.pid if server.process else None
        return {"port": server.port, "pid": pid, "directory": str(server.directory)}

    def end(self) -> None:
        for server in self._servers.values():
            server.kill()
        shutil.rmtree((self._base / IN_MEMORY).resolve(), ignore_errors=True)
        shutil.rmtree(self._base, ignore_errors=True)

    def _server(self, name: str, kind: str, *, volatile: bool) -> Kept:
        if name not in self._servers:
            self._servers[name] = Kept(kind, self._base / name, volatile=volatile)
        return self._servers[name]


def main(base: Path, listener: socket.socket) -> None:
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    keeper = Keeper(base)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(listener, selectors.EVENT_READ)
            ready.register(sys.stdin, selectors.EVENT_READ)
            while all(key.fileobj is listener for key, _ in ready.select()):
                _serve(keeper, listener)
    finally:
        keeper.end()


def _serve(keeper: Keeper, listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with suppress(OSError), connection, connection.makefile("rw") as stream:  # whoever asked may be gone
        try:
            answer = keeper.answer(json.loads(stream.readline()))
        except Exception as exc:  # noqa: BLE001  # whoever asked raises it
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        stream.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
