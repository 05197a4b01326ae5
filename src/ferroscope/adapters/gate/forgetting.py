"""Has dnsmasq forget what it has read: by SIGHUP, to the process in its pid file and to no other."""

from __future__ import annotations

import os
import signal
from enum import Enum
from pathlib import Path
from typing import Final

import structlog

_log = structlog.get_logger(__name__)

_PROGRAM: Final = "dnsmasq"


class Memory(Enum):
    """What dnsmasq knows of files that are gone."""

    NONE = "it does not run"
    FORGETS = "it can be told to forget them"
    KEEPS = "it remembers them until its restart"


class Dnsmasq:
    """``pid_file`` is dnsmasq's; empty: nothing is known of the process."""

    def __init__(self, pid_file: str) -> None:
        self._pid_file = pid_file

    def memory(self) -> Memory:
        """Look at the process; whoever else has its number is left alone, and named in the log."""
        return self._look()[0]

    def tell_to_forget(self) -> Memory:
        """Have it read its files anew where it can be told; what it knows of those that are gone now."""
        memory, pid = self._look()
        if memory is not Memory.FORGETS:
            return memory
        try:
            os.kill(pid, signal.SIGHUP)
        except ProcessLookupError:
            return Memory.NONE
        except PermissionError:
            _log.warning("dnsmasq may not be told to forget host files; give the gate CAP_KILL", pid=pid)
            return Memory.KEEPS
        return Memory.NONE

    def _look(self) -> tuple[Memory, int]:
        if not self._pid_file:
            return Memory.KEEPS, 0
        try:
            pid = int(Path(self._pid_file).read_text(encoding="ascii"))
        except OSError:
            return Memory.KEEPS, 0
        except ValueError:
            pid = 0
        if pid <= 1:
            return self._foreign(pid, "no pid of a dnsmasq")
        try:
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return Memory.NONE, pid
        except OSError as exc:
            return self._foreign(pid, exc.strerror or "unreadable")
        return (Memory.FORGETS, pid) if name == _PROGRAM else self._foreign(pid, name)

    def _foreign(self, pid: int, name: str) -> tuple[Memory, int]:
        _log.warning(
            "no dnsmasq is told to forget host files: the pid file names another process; see [pxe_filter] "
            "dnsmasq_pid_file", file=self._pid_file, pid=pid, process=name,
        )  # fmt: skip
        return Memory.KEEPS, pid
