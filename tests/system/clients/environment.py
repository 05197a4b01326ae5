"""The clients' own environment, and how a test runs one of them there.

Nothing of the service's environment is visible to them: other interpreter, other packages, no variables
but the few that are named here, and an empty home directory.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import msgspec

from tests import ROOT
from tests.support.processes import PATIENCE, until

ENVIRONMENT: Final = ROOT / ".clients-venv"
REQUIREMENTS: Final = Path(__file__).with_name("clients.txt")

_RUNNER: Final = Path(__file__).parent / "clients" / "runner.py"
_START_SECONDS: Final = 60.0
_RUN_SECONDS: Final = 60


class MissingClientsError(RuntimeError):
    """The clients are not installed as they are pinned: an error, for a skipped test proves nothing."""


class ClientError(Exception):
    """A client's function raised ``kind``; the message is that of the client."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(f"{kind}: {message}")


class Done(msgspec.Struct, frozen=True):
    """How a run ended, and what it said."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return the document that it printed."""
        return msgspec.json.decode(self.out)


class Running:
    """A run that has been started."""

    def __init__(self, path: Path, request: dict[str, Any]) -> None:
        self._request = request
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(request["seconds"] + 10)
        self._socket.connect(str(path))
        self._socket.sendall(json.dumps(request).encode() + b"\n")

    def close(self) -> None:
        """Nobody waits for it any more."""
        self._socket.close()

    def done(self) -> Done:
        """Wait for its end."""
        with self._socket, self._socket.makefile("rb") as stream:
            line = stream.readline()
        assert line, f"the run died before it answered: {self._request}"
        return msgspec.json.decode(line, type=Done)


class Clients:
    """Starts clients in their environment; ``directory`` is their home. ``close`` ends the runner."""

    def __init__(self, directory: Path) -> None:
        check_installed()
        self.home = directory
        self._begun: list[Running] = []
        self._path = directory / "runner.socket"
        self._log = directory / "runner.log"
        with socket.socket(socket.AF_UNIX) as listener, self._log.open("wb") as log:
            listener.bind(str(self._path))
            listener.listen(64)
            self._process = subprocess.Popen(
                [str(ENVIRONMENT / "bin" / "python"), str(_RUNNER), str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=directory,
                env=self.variables(),
                pass_fds=[listener.fileno()],
            )
        ready = until(lambda: self._process.poll() is not None or self._is_ready(), seconds=_START_SECONDS)
        if not ready or self._process.poll() is not None:
            self.close()
            raise RuntimeError(f"the clients cannot be imported:\n{self._log.read_text(errors='replace')[-4000:]}")

    def close(self) -> None:
        """End the runner; runs that are under way go on to their end, though nobody may have waited for them.

        That happens where tests that share a run are distributed to several processes, or chosen with ``-k``.
        """
        for run in self._begun:
            run.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)

    def command(self, name: str, *words: str, seconds: int = _RUN_SECONDS) -> Running:
        """Start a command of the clients' environment; it is killed after ``seconds``."""
        return self._begin({"command": name, "words": [*words], "seconds": seconds})

    def function(self, name: str, arguments: dict[str, Any], *, seconds: int = _RUN_SECONDS) -> Running:
        """Start ``MODULE.FUNCTION`` of ``clients/``."""
        return self._begin({"function": name, "arguments": arguments, "seconds": seconds})

    def _begin(self, request: dict[str, Any]) -> Running:
        self._begun.append(Running(self._path, request))
        return self._begun[-1]

    def program(self, name: str, *words: str, seconds: int = _RUN_SECONDS, packages: Path | None = None) -> Done:
        """Run the installed program itself, to its end; ``packages`` is a directory with more packages for it."""
        done = subprocess.run(
            [str(ENVIRONMENT / "bin" / name), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.home,
            env=self.variables() | ({"PYTHONPATH": str(packages)} if packages else {}),
            timeout=seconds,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def variables(self) -> dict[str, str]:
        """Return the whole environment of a run."""
        return {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join([str(ENVIRONMENT / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]),
            "TZ": "UTC",
        }

    def _is_ready(self) -> bool:
        return self._log.read_text(errors="replace").endswith("ready\n")


def value(done: Done) -> Any:
    """Return what a function returned; raise ``ClientError`` where it raised."""
    assert done.code == 0, f"the run ended with {done.code}:\n{done.err}"
    outcome = done.json()
    if "raised" in outcome:
        raise ClientError(outcome["raised"], outcome["message"])
    return outcome["value"]


def check_installed() -> None:
    """Raise ``MissingClientsError`` unless every client is there in the version that is pinned."""
    problem = f"there is no {ENVIRONMENT.name}" if not ENVIRONMENT.exists() else _differences()
    if problem:
        raise MissingClientsError(f"the published clients are not installed ({problem}); run: make clients")


def _differences() -> str:
    lines = [line.split("#")[0].strip() for line in REQUIREMENTS.read_text().splitlines()]
    pins = [line.split("==") for line in lines if line]
    wanted = {name: f"{name.replace('-', '_')}-{version}.dist-info" for name, version in pins}
    installed = {path.name for path in ENVIRONMENT.glob("lib/python*/site-packages/*.dist-info")}
    wrong = [f"{REQUIREMENTS.name} wants {name}" for name, directory in wanted.items() if directory not in installed]
    return ", ".join(wrong)
