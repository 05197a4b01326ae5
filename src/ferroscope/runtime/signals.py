"""Waiting for signals that are blocked, so that nothing runs at an arbitrary point of a thread."""

from __future__ import annotations

import signal
from collections.abc import Collection


def stopping() -> tuple[signal.Signals, ...]:
    """Return the signals that ask a process to stop.

    SIGHUP, of a terminal that is closed, is one, unless it is to be ignored (nohup): blocked signals come all the same.
    """
    told = (signal.SIGTERM, signal.SIGINT)
    return told if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*told, signal.SIGHUP)


def wait(awaited: Collection[signal.Signals], timeout: float) -> signal.Signals | None:
    """Return which of ``awaited`` came within ``timeout`` seconds; None where none did.

    A process that was stopped (SIGSTOP, a frozen host) until after the time-out gets a result
    from CPython that was never filled in, so only a signal that was awaited counts as one.
    """
    received = signal.sigtimedwait(awaited, timeout)
    if received is None or received.si_signo not in awaited:
        return None
    return signal.Signals(received.si_signo)
