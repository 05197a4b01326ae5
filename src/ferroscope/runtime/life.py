"""What every process of ours has in common: its name, its errors and exit codes, its word to the service manager."""

from __future__ import annotations

import os
import socket
from typing import Final

import structlog

EXIT_CUT_OFF: Final = 69  # the database did not answer for too long ([database] outage_retries), or its file is gone
EXIT_FAULT: Final = 70  # a thread of this process failed; see the log

_log = structlog.get_logger(__name__)


class StartError(Exception):
    """The process cannot start; the message says why and what to do."""


class SetupError(Exception):
    """Something is configured that cannot work: ``summary`` says what, ``advice`` what to do; the message has both."""

    def __init__(self, summary: str, advice: str = "") -> None:
        super().__init__(f"{summary}; {advice}" if advice else summary)
        self.summary = summary
        self.advice = advice


def process_name(role: str) -> str:
    """Return how this process is called in logs and journals: role, host, pid."""
    return f"{role}@{socket.gethostname()}:{os.getpid()}"


def notify(state: str) -> None:
    """Tell the service manager, if there is one (the sd_notify protocol)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as exc:
            _log.warning("could not notify the service manager", error=str(exc))
