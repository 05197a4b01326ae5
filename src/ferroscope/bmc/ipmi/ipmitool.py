"""Runs ipmitool as a subprocess: one command, with a time limit, and without the password on its command line.

The password is passed through a pipe that only the child inherits, the key Kg through its standard input; neither is
in an argument, the environment or a file. Errors of ipmitool become ``BmcError``; docs/explanation/bmc-failures.md has
the same failure matrix.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any, Final

from ferroscope.bmc.ipmi.info import Access
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from ferroscope.core.values import MASK, WITHHELD, is_too_short
from ferroscope.remote.command_fence import Left, TooLateError, limit

PROGRAM: Final = "ipmitool"
_MAX_MESSAGE: Final = 200
# One packet a second, three retransmissions: below our own time limit.
_PATIENCE: Final = ("-N", "1", "-R", "3")
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}

_REJECTED: Final = (
    "hmac is invalid",
    "unauthorized name",
    "unauthorized role",
    "invalid user name",
    "password invalid",
)
# User and password are right, but the session keys differ.
_OTHER_KEY: Final = "rakp 4 message has invalid integrity check value"
_NO_SUCH_CIPHER: Final = (
    "invalid authentication algorithm",
    "invalid integrity algorithm",
    "invalid confidentiality algorithm",
    "no matching cipher suite",
    "no cipher suite match",
)
_REFUSED: Final = (
    "insufficient privilege",
    "invalid command",
    "invalid data field",
    "parameter out of range",
    "not supported",
    "invalid argument",
)


class CipherError(BmcError):
    """The BMC does not support the cipher suite."""


def run(access: Access, cipher: int, words: tuple[str, ...], what: str, seconds: float) -> str:
    """Return the output of ipmitool for the command ``words``; ``BmcError``, ``TooLateError``."""
    with relayed(access.host, access.port) as (host, port):
        return _run(access, host, port, cipher, words, what, seconds)


def _run(access: Access, host: str, port: int, cipher: int, words: tuple[str, ...], what: str, seconds: float) -> str:
    command = [PROGRAM, "-v", "-I", access.interface, "-H", host, "-p", str(port), "-L", access.level]
    if access.username is not None:
        command += ["-U", access.username]
    if access.interface == "lanplus":
        command += ["-C", str(cipher), *(["-Y"] if access.key else [])]
    command += access.bridge
    reading, writing = os.pipe()
    try:
        os.write(writing, access.password.encode() + b"\n")  # at most 21 bytes: never blocks
        os.close(writing)
        done = subprocess.run(  # noqa: S603  # an argument list, each word checked by ``info``
            [*command, "-f", f"/dev/fd/{reading}", *_PATIENCE, *words],
            input=access.key + b"\n" if access.key else b"",
            start_new_session=True,  # otherwise it would prompt for the key on a terminal
            capture_output=True,
            timeout=seconds,
            pass_fds=[reading],
            env=_ENVIRONMENT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failure(access, what, f"timed out after {seconds:.1f} s", Reason.BMC_UNREACHABLE) from None
    except FileNotFoundError:
        message = f"{PROGRAM} is not installed, but the ipmi driver needs it; on Debian: apt-get install ipmitool"
        raise BmcError(message, transient=False, reason=Reason.DRIVER_INCOMPLETE) from None
    finally:
        os.close(reading)
    if done.returncode != 0:
        raise _classify(access, what, done.stderr.decode(errors="replace"))
    return done.stdout.decode(errors="replace")


def _classify(access: Access, what: str, stderr: str) -> BmcError:
    lowered = stderr.lower()
    if any(words in lowered for words in _REJECTED):
        return _failure(access, what, "the credentials were rejected", Reason.BMC_CREDENTIALS)
    if _OTHER_KEY in lowered:
        return _failure(access, what, "the key Kg is wrong; correct ipmi_hex_kg_key", Reason.BMC_CREDENTIALS)
    if any(words in lowered for words in _NO_SUCH_CIPHER):
        message = f"{what} at {access.host}: the BMC does not support the cipher suite; set ipmi_cipher_suite"
        return CipherError(message, transient=False, reason=Reason.BMC_REFUSED)
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("Loading IANA")]
    last = lines[-1] if lines else "ipmitool failed without an error message"
    if any(words in last.lower() for words in _REFUSED):
        return _failure(access, what, last, Reason.BMC_REFUSED)
    return _failure(access, what, last, Reason.BMC_UNREACHABLE)


def _failure(access: Access, what: str, message: str, reason: Reason) -> BmcError:
    text = f"{what} at {access.host}: {message}"[:_MAX_MESSAGE]
    if is_too_short(access.password):
        text = f"{what} at {access.host}: {reason} ({WITHHELD})"
    elif access.password:
        text = text.replace(access.password, MASK)
    return BmcError(text, transient=reason is Reason.BMC_UNREACHABLE, reason=reason)


_LOOPBACK: Final = "127.0.0.1"
_LARGEST: Final = 65535


@contextlib.contextmanager
def relayed(host: str, port: int) -> Iterator[tuple[str, int]]:
    """Yield the address and port for ipmitool; ``TooLateError`` if a part of its command was dropped.

    ipmitool is a separate process: it continues, and retransmits lost packets, while the process that started it is
    frozen or dead. So a fenced command (``remote.command_fence``) goes through a port of ours on the loopback
    interface. Nothing passes while this process is stopped, and datagrams that waited are dropped once it is too late.
    """
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
    """Forwards datagrams from a separate thread. ``host`` is an IP address."""

    def __init__(self, host: str, port: int, left: Left) -> None:
        self._left = left
        self.too_late = False
        # Numeric resolution by the system: it understands the zone of a link-local address.
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)[
            0
        ]
        with contextlib.ExitStack() as opened:
            self._near = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self._near.bind((_LOOPBACK, 0))
            self._far = opened.enter_context(socket.socket(family, kind))
            self._far.connect(place)
            self._end, stopped = socket.socketpair()
            opened.enter_context(self._end)
            opened.enter_context(stopped)
            self._thread = threading.Thread(
                target=self._run, args=(stopped, opened.pop_all()), name="ipmi", daemon=True
            )
        self.port: int = self._near.getsockname()[1]
        self._peer: Any = None
        self._thread.start()

    def close(self) -> None:
        """Stop forwarding."""
        with contextlib.suppress(OSError):
            self._end.send(b".")
        self._thread.join()

    def _run(self, stopped: socket.socket, opened: contextlib.ExitStack) -> None:
        # When the near port is closed, the kernel reports that to ipmitool, which then stops waiting.
        with opened, contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
            for one in (self._near, self._far, stopped):
                selector.register(one, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if stopped in ready or (self._near in ready and not self._pass_on()):
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
