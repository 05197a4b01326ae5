"""Runs a role of the service and traces its journeys: ``python -P traced.py DIRECTORY ROLE ARGUMENT...``.

A journey is what one thread does for one call of the API, or for one request of a worker. Each is a line of JSON in
DIRECTORY, written when it ends: every call of a function of the service, in order, as depth, file and name.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

FILE: Final = "journeys.jsonl"
_CALL: Final = "Connection._serve"
_REQUEST: Final = "Worker.carry_out"

Step = tuple[int, str, str]


class Journey(msgspec.Struct):
    """``calls``: of Python functions, whosever they are; ``steps`` are those of ours."""

    title: str
    calls: int = 0
    steps: list[Step] = []


class Tracer:
    """Traces all threads that start from now on."""

    def __init__(self, directory: Path, source: str) -> None:
        self._out = directory / FILE
        self._source = source
        self._lock = threading.Lock()
        self._of = threading.local()

    def install(self) -> None:
        threading.setprofile(self._enter)

    def _enter(self, frame: FrameType, event: str, _of: Any) -> None:
        now = vars(self._of)
        journey: Journey | None = now.get("journey")
        code = frame.f_code
        if journey is None:
            if event == "call" and code.co_qualname in (_CALL, _REQUEST) and self._source in code.co_filename:
                now["journey"], now["depth"], now["root"] = Journey(_title(frame)), 0, frame
                self._called(frame, now)
        elif event == "call":
            self._called(frame, now)
        elif event == "return":
            now["depth"] -= self._source in code.co_filename
            if frame is now["root"]:
                now["journey"] = None
                with self._lock, self._out.open("ab") as out:
                    out.write(msgspec.json.encode(journey) + b"\n")

    def _called(self, frame: FrameType, now: dict[str, Any]) -> None:
        now["journey"].calls += 1
        _, found, path = frame.f_code.co_filename.partition(self._source)
        if found:
            now["depth"] += 1
            now["journey"].steps.append((now["depth"], path, frame.f_code.co_qualname))


def _title(frame: FrameType) -> str:
    given = frame.f_locals
    if "claim" in given:
        return f"worker: {given['claim'].request.event}"
    return f"api: {given['environ']['REQUEST_METHOD']} {given['environ']['PATH_INFO']}"


def main(directory: Path, arguments: list[str]) -> None:
    import ferroscope
    from ferroscope.cli.main import main as run

    Tracer(directory, str(Path(ferroscope.__file__).parent) + "/").install()
    run(arguments, prog_name="ferroscope")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
