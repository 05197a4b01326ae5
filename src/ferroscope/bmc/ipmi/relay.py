"""Between ipmitool and a BMC: each datagram of a command passes only while the command is sure to be wanted.

ipmitool is a process of its own: it goes on, and repeats what was lost, while the process that started it is frozen or
dead. So a fenced command (``remote.command_fence``) goes by a port of ours on the loopback interface. Nothing passes
there while we stand still, and what has waited there is dropped when it is too late.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

from ferroscope.contracts.errors import BmcError
from ferroscope.remote.command_fence import Left, TooLateError, limit

_LOOPBACK: Final = "127.0.0.1"
_LARGEST: Final = 65535


@contextlib.contextmanager
def relayed(host: str, port: int) -> Iterator[tuple[str, int]]:
    """Give the address and port that ipmitool is to speak to; ``TooLateError`` where its command did not all pass."""
    left = limit()
    if left is None:
        yield host, port
        return
    relay = _Relay(host, port, left)
    try:
        yield _LOOPBACK, relay.port
    except BmcError:
        if relay.too_late:
            raise TooLateError from None
        raise
    finally:
        relay.close()


class _Relay:
    """Passes datagrams on in a thread of its own. ``host`` is an IP address."""

    def __init__(self, host: str, port: int, left: Left) -> None:
        self._left = left
        self.too_late = False
        # The kernel's own resolver of numeric addresses: it knows what the zone of a link-local one means.
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)[
            0
        ]
        with contextlib.ExitStack() as opened:
            self._near = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self._near.bind((_LOOPBACK, 0))
            self._far = opened.enter_context(socket.socket(family, kind))
            self._far.connect(place)
            self._end, told = socket.socketpair()
            opened.enter_context(self._end)
            opened.enter_context(told)
            self._thread = threading.Thread(target=self._run, args=(told, opened.pop_all()), name="ipmi", daemon=True)
        self.port: int = self._near.getsockname()[1]
        self._peer: Any = None
        self._thread.start()

    def close(self) -> None:
        """Let nothing pass any more."""
        with contextlib.suppress(OSError):
            self._end.send(b".")
        self._thread.join()

    def _run(self, told: socket.socket, opened: contextlib.ExitStack) -> None:
        # Once the near port is closed, ipmitool is told so by the kernel and waits for nothing.
        with opened, contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
            for one in (self._near, self._far, told):
                selector.register(one, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if told in ready or (self._near in ready and not self._pass_on()):
                    return
                if self._far in ready:
                    answer = self._far.recv(_LARGEST)
                    if self._peer is not None:
                        self._near.sendto(answer, self._peer)

    def _pass_on(self) -> bool:
        datagram, self._peer = self._near.recvfrom(_LARGEST)
        if self._left() <= 0:
            self.too_late = True
            return False
        self._far.send(datagram)
        return True
