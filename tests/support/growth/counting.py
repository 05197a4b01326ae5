"""Counts the processor's instructions of a call, with valgrind.

They are the same however busy the machine is, and nearly the same on each machine. The call of a function that the
service does not use, ``os.getpriority``, marks where counting begins and ends: there, callgrind writes a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.support.processes import PATIENCE

# Makes what is to be called for a length of the text.
Case = Callable[[int], Callable[[], object]]

MAX_GROWTH: Final = 2.2
_MAX_GROWTH_OF_MANY: Final = 2.05
# Among more cases, the cost of the one that grows could vanish.
_MOST_CASES: Final = 64
_MINUTES: Final = 20


class NoEndError(Exception):
    """A measurement has not ended, or the process has died in it."""


class Counter:
    """Counts within a process that ``run`` has started. A count costs as much as a million instructions."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = 0

    def find_growing(self, cases: Sequence[Case], size: int) -> tuple[Case, list[int]] | None:
        """Return the first case whose cost grows faster than the text, with its costs for n, 2n and 4n.

        A table that has become too small costs once what a longer text costs always, so twice is the rule. Of many
        cases, one that grows is seen in their sum, too: the others at most double.
        """
        if len(cases) > _MOST_CASES:
            groups = (cases[at : at + _MOST_CASES] for at in range(0, len(cases), _MOST_CASES))
            return next(filter(None, (self.find_growing(group, size) for group in groups)), None)
        alone = len(cases) == 1
        costs = [self._count([case(size) for case in cases]), self._count([case(2 * size) for case in cases])]
        if costs[1] <= (MAX_GROWTH if alone else _MAX_GROWTH_OF_MANY) * costs[0]:
            return None
        if alone:
            costs.append(self._count([cases[0](4 * size)]))
            return (cases[0], costs) if costs[2] > MAX_GROWTH * costs[1] else None
        half = len(cases) // 2
        return self.find_growing(cases[:half], size) or self.find_growing(cases[half:], size)

    def _count(self, calls: Iterable[Callable[[], object]]) -> int:
        self._mark().unlink()
        for call in calls:
            call()
        file = self._mark()
        total = file.read_bytes().rpartition(b"totals: ")[2]
        file.unlink()
        return int(total)

    def _mark(self) -> Path:
        """Return the file with what was counted since the last one."""
        self._files += 1
        os.getpriority(os.PRIO_PROCESS, 0)
        return self._directory / f"counts.{self._files}"


def run(directory: Path, *arguments: str) -> list[str]:
    """Run the module under valgrind; return its lines, of which the last one is ``done``. ``NoEndError``."""
    lines, errors = directory / "lines", directory / "errors"
    with lines.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [
                "valgrind", "--tool=callgrind", "--instr-atstart=no", "--dump-before=getpriority", "--dump-line=no",
                f"--callgrind-out-file={directory / 'counts'}", sys.executable,
                "-m", "tests.support.growth", str(directory), *arguments,
            ],
            cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "0"}, stdin=subprocess.PIPE, stdout=out, stderr=err,
        )  # fmt: skip
        try:
            end = time.monotonic() + PATIENCE
            while "ready" not in lines.read_text() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            subprocess.run(["callgrind_control", "--instr=on", str(process.pid)], capture_output=True, check=True)
            process.communicate(b"go\n", timeout=60 * _MINUTES)
        finally:
            process.kill()
            process.wait()
    found = lines.read_text().splitlines()
    if found[-1:] != ["done"]:
        raise NoEndError(f"ended at {found[-1:]}: {errors.read_text()[-3000:]}")
    return found
