"""The client of the watchdog process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ferroscope.contracts.pxe_filter import PxeFilterError

_SCRIPT = Path(__file__).with_name("watchdog.py")


class Watchdog:
    """Starts the process when it is first needed, and again after it died."""

    def __init__(self, *, directory: str = "", commands: Sequence[tuple[Sequence[str], str]] = ()) -> None:
        self._instructions = {"directory": directory, "commands": [[list(argv), text] for argv, text in commands]}
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self, until: float) -> bool:
        """Have the filter closed at ``until`` unless held again; return whether it was closed since the last call."""
        closed = self._read_reports() or self._process is None
        self._send({"until": until})
        return closed

    def has_closed(self) -> bool:
        """Whether the filter was, or may have been, closed since the last call of this or of ``hold``."""
        return self._read_reports()

    def release(self) -> None:
        """Stop watching, because the filter is closed."""
        self._read_reports()  # detects a dead process
        if self._process is not None:
            self._send({"until": 0.0})

    def end(self) -> None:
        """Stop the process, which closes the filter if it was held open."""
        if self._process is not None:
            assert self._process.stdin is not None  # noqa: S101  # it was started with a pipe
            assert self._process.stdout is not None  # noqa: S101
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def _read_reports(self) -> bool:
        if self._process is None:
            return False
        if self._process.poll() is not None:
            self.end()
            return True
        assert self._process.stdout is not None  # noqa: S101
        try:
            return bool(os.read(self._process.stdout.fileno(), 4096))
        except BlockingIOError:
            return False

    def _send(self, message: dict[str, Any]) -> None:
        try:
            if self._process is None:
                self._process = self._start()
                self._write({"close": self._instructions})
            self._write(message)
        except OSError as exc:
            raise PxeFilterError(f"cannot write to the filter's watchdog process: {exc.strerror}") from exc

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process is not None  # noqa: S101
        assert self._process.stdin is not None  # noqa: S101
        os.write(self._process.stdin.fileno(), json.dumps(message).encode() + b"\n")

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # signals to our process group must not reach it
        )
        assert process.stdout is not None  # noqa: S101
        os.set_blocking(process.stdout.fileno(), False)
        return process
