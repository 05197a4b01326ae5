"""Somebody who follows a page of the documentation in a directory, with a real service and simulated machines."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.service import executable
from tests.fast.cli.running import NO_CREDENTIALS
from tests.fast.docs.pages import page, typed
from tests.support.installation import Played
from tests.support.processes import free_port, until

USER: Final = "alice"
PASSWORD: Final = "Canary-of-alice"
_RUN_ON: Final = ("ferroscope all ", "ferroscope sim ")


def steps(name: str) -> list[str]:
    """Return the commands of a page, in order."""
    return [command for block in page(name).blocks for command in typed(block)]


class Follower:
    """Uses free ports. ``said`` and ``seconds``: output and duration by command, the last one of a command that recurs.

    ``failing``: parts of commands that end with 1, to tell of a problem or a difference. ``own``: what is in place of
    texts of the page. ``variables`` are in place of those that the page exports.
    """

    def __init__(
        self,
        directory: Path,
        *,
        failing: Sequence[str] = (),
        own: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.directory, self.port, self.bmcs = directory, free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._failing, self._own, self._variables = failing, own or {}, variables or {}
        shown = {name: value for name, value in os.environ.items() if name not in NO_CREDENTIALS}
        path = f"{Path(executable()).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = shown | {"FERROSCOPE_URL": self.url, "PATH": path, "COLUMNS": "160", "HOME": str(directory)}
        self.running: list[Played] = []
        self.outputs: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def follow(self, command: str) -> None:
        """Run a line of the page."""
        own = command.replace("127.0.1.7:6390", f"127.0.1.7:{self.bmcs}")
        own = own.replace("127.0.0.1:6385", f"127.0.0.1:{self.port}")
        for text, other in self._own.items():
            own = own.replace(text, other)
        if own.startswith("export "):
            name, _, value = own.removeprefix("export ").partition("=")
            self.environment[name] = self._variables.get(name, value)
        elif own.startswith(_RUN_ON):
            more = ["--port", str(self.bmcs)] if own.startswith("ferroscope sim") else []
            words = ["env", *(f"{name}={value}" for name, value in self.environment.items()), *own.split(), *more]
            self.running.append(Played(own.split()[1], self.directory, words, cwd=self.directory))
            self._wait(own)
        else:
            self._run(command, own)
        if " setup " in own:
            file = self.directory / "ferroscope.conf"
            ports = f"[api]\nbare_metal_port = {self.port}\nintrospection_port = 0\n"
            file.write_text(file.read_text().replace("[api]\n", ports))

    def print(self, command: str) -> str:
        """Run a line of the page, and return what it prints."""
        self.follow(command)
        return self.outputs.get(command, "")

    def end(self) -> None:
        """End what the page has started."""
        for played in reversed(self.running):
            played.end()

    def _run(self, command: str, own: str) -> None:
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", own],
            input=f"{PASSWORD}\n" if " setup " in own else "",
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.seconds[command] = time.monotonic() - began
        self.outputs[command] = done.stdout
        expected = (1,) if any(part in own for part in self._failing) else (0,)
        if " setup " in own:
            expected = (0, 1)  # a port of this host may be taken
        assert done.returncode in expected, f"{own}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert not any(secret in done.stdout + done.stderr for secret in (PASSWORD, *self._variables.values()))

    def _wait(self, command: str) -> None:
        """Return when what runs on is ready."""
        if command.startswith("ferroscope all"):
            self.running[-1].wait_ready()
        else:
            assert until(lambda: not self.running[-1].alive or "end with Ctrl-C" in self.running[-1].output())
            assert self.running[-1].alive, self.running[-1].output()
