"""A process that gets no more memory: a control group of its own, in which the kernel kills whoever asks for more."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.support.processes import until

_ROOT: Final = Path("/sys/fs/cgroup")
# Bytes that it still gets: less than any work needs.
_LEFT: Final = 64 * 1024


@contextlib.contextmanager
def no_more_memory(pid: int) -> Iterator[Callable[[], int]]:
    """Let the process have what it has and no more; give how many the kernel has killed for that. Needs root."""
    second = "memory" in (_ROOT / "cgroup.controllers").read_text().split() if _is_unified() else False
    group = (_ROOT if second else _ROOT / "memory") / f"ferroscope-tests-{os.getpid()}-{pid}"
    if second:
        (_ROOT / "cgroup.subtree_control").write_text("+memory")
    group.mkdir()
    limit, told = ("memory.max", "memory.events") if second else ("memory.limit_in_bytes", "memory.oom_control")

    def killed() -> int:
        words = dict(line.split() for line in (group / told).read_text().splitlines())
        return int(words["oom_kill"])

    try:
        # What a process has got before stays with the group that it comes from.
        (group / limit).write_text(str(_LEFT))
        (group / "cgroup.procs").write_text(str(pid))
        yield killed
    finally:
        assert until(lambda: _is_removed(group))


def _is_unified() -> bool:
    return (_ROOT / "cgroup.controllers").exists()


def _is_removed(group: Path) -> bool:
    """Remove it once nobody is in it; who is still there goes back to where it may have memory."""
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError, OSError):
            (group.parent / "cgroup.procs").write_text(pid)
    try:
        group.rmdir()
    except OSError:
        return False
    return True
