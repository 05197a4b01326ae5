"""Runs a role of the service and traces its journeys: ``python -P traced.py DIRECTORY ROLE ARGUMENT...``.

A journey is what one thread does for one call of the API, for one request of a worker, to parse what a client has sent,
or to claim a request. Each is a line of JSON in DIRECTORY, written when it ends: every call of a function of the
service, in order, as depth, file and name.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

FILE: Final = "journeys.jsonl"
# Functions that a journey begins with, and the titles of those that have no other.
_ROOTS: Final = {
    "Connection._serve": "",
    "Worker.carry_out": "",
    "Connection.data_received": "parser",
    "Dispatcher.step": "claim",
}

Step = tuple[int, str, str]


class Journey(msgspec.Struct):
    """``calls``: of Python functions, whosever they are; ``steps`` are those of ours."""

    title: str
    calls: int = 0
    steps: list[Step] = []


class Tracer(threading.local):
    """What a thread is in: a journey, the frame that it began with, and how many of our functions wait."""

    def __init__(self, directory: Path, packages: dict[str, str]) -> None:
        self._out = directory / FILE
        self._packages = packages  # directory -> prefix of the paths in it
        self._journey: Journey | None = None
        self._root: FrameType | None = None
        self._depth = 0

    def enter(self, frame: FrameType, event: str, _of: Any) -> None:
        path = self._find_path(frame.f_code.co_filename)
        name = frame.f_code.co_qualname
        if event == "call":
            if self._journey is None:
                if not path or name not in _ROOTS:
                    return
                self._journey, self._root, self._depth = Journey(_title(frame)), frame, 0
            self._journey.calls += 1
            if path:
                self._depth += 1
                self._journey.steps.append((self._depth, path, name))
        elif event == "return" and self._journey is not None:
            self._depth -= bool(path)
            if frame is self._root:
                line, self._journey = msgspec.json.encode(self._journey) + b"\n", None
                with self._out.open("ab", buffering=0) as out:
                    out.write(line)

    def _find_path(self, file: str) -> str:
        """Return the path of a file of ours, in its package; empty if it is not ours."""
        for directory, prefix in self._packages.items():
            if file.startswith(directory):
                return prefix + file.removeprefix(directory)
        return ""


def _title(frame: FrameType) -> str:
    if title := _ROOTS[frame.f_code.co_qualname]:
        return title
    arguments = frame.f_locals
    if "claim" in arguments:
        return f"worker: {arguments['claim'].request.event}"
    return f"api: {arguments['environ']['REQUEST_METHOD']} {arguments['environ']['PATH_INFO']}"


def main(directory: Path, arguments: list[str]) -> None:
    import ferroscope
    import ferroscope_client
    from ferroscope_client.cli.main import main as run

    prefixes = {ferroscope: "", ferroscope_client: "ferroscope_client/"}
    packages = {f"{Path(str(package.__file__)).parent}/": prefix for package, prefix in prefixes.items()}
    threading.setprofile(Tracer(directory, packages).enter)
    run(arguments, prog_name="ferroscope")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
