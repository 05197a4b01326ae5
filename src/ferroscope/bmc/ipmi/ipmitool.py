"""Runs ipmitool as a subprocess: one command, with a time limit, and without the password on its command line.

The password is passed through a pipe that only the child inherits, the key Kg through its standard input; neither is
in an argument, the environment or a file. Errors of ipmitool become ``BmcError``; docs/explanation/bmc-failures.md has
the same failure matrix.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import selectors
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ferroscope.affinity import unconfine
from ferroscope.bmc.ipmi.info import IpmiAccess
from ferroscope.contracts.errors import BmcError
from ferroscope.remote.command_fence import TimeLeft, TooLateError, limit
from ferroscope_client.core.reasons import UNAVAILABLE, Reason
from ferroscope_client.core.values import MASK, WITHHELD, is_too_short

PROGRAM: Final = "ipmitool"
_MAX_MESSAGE: Final = 200
# One packet a second, three retransmissions: below our own time limit.
_RETRANSMIT: Final = ("-N", "1", "-R", "3")
# The same time with one packet: not every BMC recognizes a retransmission of what it has carried out.
_ONE_PACKET: Final = ("-N", "4", "-R", "1")
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}

# What ``-v`` adds about optional features, whatever becomes of the command itself.
_NOISE: Final = (
    "loading iana",
    "get hpm.x",
    "get device id command failed",
    "running get",
    "invalid completion code received",
    "discovered ipmb address",
    "raw req",
)
# Lines that follow from an error in an earlier line, and do not say which.
_CONSEQUENCES: Final = ("error: unable to establish", "close session command failed")

# No answer, or the late one to a request that was repeated: the lines after it are about another message
# (openbmc/openbmc#1812, openbmc/phosphor-net-ipmid#16).
_GARBLED: Final = ("no response from rakp", "unexpected rakp", "unexpected open session")
# What ipmitool prints before the completion code of an answer, or the status of an RMCP+ message.
_ANSWER: Final = re.compile(
    r"(?:failed: |\brsp=|message indicates an error : |response message : |session error:\s*)(.+)", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"0x([0-9a-f]{2})\b")
# ipmitool prints the system's own errors in the same form.
_SYSTEM_ERRORS: Final = frozenset(os.strerror(number).lower() for number in errno.errorcode)

# The generic completion codes (IPMI 2.0, table 5-2) that do not refuse for good: ipmitool's words, and the meaning.
# 0xcf is missing because ipmitool drops such an answer. All other codes, those of single commands and vendors included,
# are final refusals.
NOT_SUPPORTED_IN_STATE: Final = 0xD5
COMPLETION_CODES: Final = {
    0xC0: ("node busy", Reason.BMC_NOT_READY),
    0xC3: ("timeout", Reason.BMC_NOT_READY),
    0xC4: ("out of space", Reason.BMC_NOT_READY),
    0xCE: ("command response could not be provided", Reason.BMC_NOT_READY),
    0xD0: ("sdr repository in update mode", Reason.BMC_NOT_READY),
    0xD1: ("device firmeware in update mode", Reason.BMC_NOT_READY),
    0xD2: ("bmc initialization in progress", Reason.BMC_NOT_READY),
    0xD3: ("destination unavailable", Reason.BMC_NOT_READY),
    0xD4: ("insufficient privilege level", Reason.BMC_PRIVILEGES),
    NOT_SUPPORTED_IN_STATE: ("command not supported in present state", Reason.BMC_REFUSED),
    0xFF: ("unspecified error", Reason.BMC_NOT_READY),
}
# Of Send Message (table 22-9): lost arbitration, bus error, NAK. The BMC in front says that the one behind is silent.
_NOT_BRIDGED: Final = frozenset({0x81, 0x82, 0x83})
# The same of a session: RMCP+ status codes (table 13-15) and the codes of Activate Session (table 22-21). A BMC that
# restarts does not know the session of the message before (openbmc/openbmc#1241, openbmc/openbmc#1810).
_SESSION_ANSWERS: Final = {
    "insufficient resources": Reason.BMC_NOT_READY,
    "session slot": Reason.BMC_NOT_READY,
    "session id": Reason.BMC_NOT_READY,
    "unauthorized name": Reason.BMC_CREDENTIALS,
    "invalid user name": Reason.BMC_CREDENTIALS,
    "password invalid": Reason.BMC_CREDENTIALS,
    "role": Reason.BMC_PRIVILEGES,
    "privilege level": Reason.BMC_PRIVILEGES,
}
_ABOUT_SESSION: Final = ("session", "rakp")
# A session needs the level, so any lasting refusal of it is one of the level.
_LEVEL: Final = "set session privilege level"
_WRONG_PASSWORD: Final = ("hmac is invalid", "invalid user name")
# User and password are right, but the session keys differ.
_OTHER_KEY: Final = "rakp 4 message has invalid integrity check value"
# The last one is how ipmitool ends for a suite that it does not know itself (ipmitool/ipmitool#196).
_NO_SUCH_CIPHER: Final = (
    "invalid authentication algorithm",
    "invalid integrity algorithm",
    "invalid confidentiality algorithm",
    "no matching authentication payload",
    "no matching integrity payload",
    "no matching cipher suite",
    "no cipher suite match",
    "assertion",
)
# What ipmitool itself refuses to send.
_USAGE: Final = ("out of range", "not supported", "invalid argument")


class CipherError(BmcError):
    """The BMC, or ipmitool, does not support the cipher suite."""


class SilentError(BmcError):
    """The BMC did not answer; some do not answer requests for a cipher suite that they do not support."""


class RefusedError(BmcError):
    """The BMC has answered the command with a completion code that is an error."""


class StateError(RefusedError):
    """The BMC does not do this in the present power state (completion code 0xd5)."""


class IpmiCommand(msgspec.Struct, frozen=True):
    """The ``words`` of a command of ipmitool; ``action``: what it does, for messages.

    ``success`` is what ipmitool prints after success: it ends with status 0 although the BMC has refused a boot device.
    ``once``: it must not be carried out twice. ``typed``: lines that it asks for; ``script``: the command as a line of
    a file, instead of ``words``. Both are secret, and in a pipe, like the password.
    """

    action: str
    words: tuple[str, ...] = ()
    success: str = ""
    once: bool = False
    typed: tuple[str, ...] = ()
    script: str = ""

    def __repr__(self) -> str:
        return f"IpmiCommand({self.action})"


def run(access: IpmiAccess, cipher: int, command: IpmiCommand, seconds: float) -> str:
    """Return the output of ipmitool for the command; ``BmcError``, ``TooLateError``."""
    with open_relay(access.host, access.port) as (host, port):
        return _run(access, host, port, cipher, command, seconds)


def _run(access: IpmiAccess, host: str, port: int, cipher: int, command: IpmiCommand, seconds: float) -> str:
    arguments = [PROGRAM, "-v", "-I", access.interface, "-H", host, "-p", str(port), "-L", access.level]
    if access.username is not None:
        arguments += ["-U", access.username]
    if access.interface == "lanplus":
        arguments += ["-C", str(cipher), *(["-Y"] if access.key else [])]
    arguments += access.bridge
    typed = b"".join(line.encode() + b"\n" for line in command.typed)
    with _pipe(access.password) as password_pipe, _pipe(command.script) as script:
        words = ("exec", f"/dev/fd/{script}") if command.script else command.words
        unconfine()
        try:
            process = subprocess.run(  # noqa: S603  # an argument list, each word checked by ``info``
                [*arguments, "-f", f"/dev/fd/{password_pipe}", *(_ONE_PACKET if command.once else _RETRANSMIT), *words],
                input=(access.key + b"\n" if access.key else b"") + typed,
                start_new_session=True,  # otherwise it would prompt for the key on a terminal
                capture_output=True,
                timeout=seconds,
                pass_fds=[password_pipe, script],
                env=_ENVIRONMENT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _silence_error(access, cipher, command.action, f"timed out after {seconds:.1f} s") from None
        except FileNotFoundError:
            message = f"{PROGRAM} is not installed, but the ipmi driver needs it; on Debian: apt-get install ipmitool"
            raise BmcError(message, transient=False, reason=Reason.DRIVER_INCOMPLETE) from None
    output = process.stdout.decode(errors="replace")
    if process.returncode != 0 or command.success not in output:
        raise classify(access, cipher, command.action, process.stderr.decode(errors="replace"))
    return output


@contextlib.contextmanager
def _pipe(text: str) -> Iterator[int]:
    """Yield the descriptor of a pipe from which one line can be read."""
    reading, writing = os.pipe()
    try:
        os.write(writing, text.encode() + b"\n")  # far below what a pipe holds: never blocks
        os.close(writing)
        yield reading
    finally:
        os.close(reading)


def classify(access: IpmiAccess, cipher: int, action: str, stderr: str) -> BmcError:
    """Return the error for what ipmitool has printed; docs/explanation/bmc-failures.md has the same failure matrix."""
    lines = [line.strip(" >\t\r") for line in stderr.splitlines()]
    lines = [line for line in lines if line and not line.lower().startswith(_NOISE)]
    telling = [line for line in lines if not line.lower().startswith(_CONSEQUENCES)] or lines
    last = telling[-1] if telling else "ipmitool failed without an error message"
    output = "\n".join(telling).lower()

    def has(*words: str) -> bool:
        return any(word in output for word in words)

    if has(*_GARBLED):
        return _silence_error(access, cipher, action, last)
    if has(*_NO_SUCH_CIPHER):
        message = f"{action} at {access.host}: cipher suite {cipher} is not supported; set ipmi_cipher_suite"
        return CipherError(message, transient=False, reason=Reason.BMC_REFUSED)
    if has(_OTHER_KEY):
        return _error(access, action, "the key Kg is wrong; correct ipmi_hex_kg_key", Reason.BMC_CREDENTIALS)
    if has(*_WRONG_PASSWORD):
        return _error(access, action, "the credentials were rejected", Reason.BMC_CREDENTIALS)
    answer = _ANSWER.search(last)
    if answer is None or answer[1].lower() in _SYSTEM_ERRORS:
        if any(words in last.lower() for words in _USAGE):
            return _error(access, action, last, Reason.BMC_REFUSED)
        return _silence_error(access, cipher, action, last)
    code, reason = _meaning(answer[1].lower())
    is_session = any(word in last.lower() for word in _ABOUT_SESSION)
    if access.bridge and code in _NOT_BRIDGED:
        message = f"the BMC in front does not reach the one behind it: {last}"
        return _error(access, action, message, Reason.BMC_UNREACHABLE)
    if reason is Reason.BMC_REFUSED and last.lower().startswith(_LEVEL):
        reason = Reason.BMC_PRIVILEGES
    if reason is Reason.BMC_CREDENTIALS:
        last = "the credentials were rejected"
    elif reason is Reason.BMC_PRIVILEGES:
        last = f"the account lacks a privilege; ipmi_priv_level is {access.level} ({last})"
    if is_session:
        return _error(access, action, last, reason)
    return _error(access, action, last, reason, StateError if code == NOT_SUPPORTED_IN_STATE else RefusedError)


def _meaning(answer: str) -> tuple[int | None, Reason]:
    """Return the completion code that ipmitool's words name, None if it has no entry in a table, and what it means."""
    number = _NUMBER.search(answer)
    for code, (words, reason) in COMPLETION_CODES.items():
        if int(number[1], 16) == code if number else words in answer:
            return code, reason
    if number:
        return int(number[1], 16), Reason.BMC_REFUSED
    return None, next((reason for words, reason in _SESSION_ANSWERS.items() if words in answer), Reason.BMC_REFUSED)


def _silence_error(access: IpmiAccess, cipher: int, action: str, why: str) -> BmcError:
    session = f"cipher suite {cipher}, {access.level}" if access.interface == "lanplus" else f"IPMI 1.5, {access.level}"
    return _error(access, action, f"no answer with {session}: {why}", Reason.BMC_UNREACHABLE, SilentError)


def _error(access: IpmiAccess, action: str, message: str, reason: Reason, kind: type[BmcError] = BmcError) -> BmcError:
    text = f"{action} at {access.host}: {message}"
    if is_too_short(access.password):
        text = f"{action} at {access.host}: {reason} ({WITHHELD})"
    elif access.password:
        text = text.replace(access.password, MASK)
    return kind(text[:_MAX_MESSAGE], transient=reason in UNAVAILABLE, reason=reason)


_LOOPBACK: Final = "127.0.0.1"
_MAX_DATAGRAM_BYTES: Final = 65535


@contextlib.contextmanager
def open_relay(host: str, port: int) -> Iterator[tuple[str, int]]:
    """Yield the address and port for ipmitool; ``TooLateError`` if a part of its command was dropped.

    ipmitool is a separate process: it continues, and retransmits lost packets, while the process that started it is
    frozen or dead. So a fenced command (``remote.command_fence``) goes through a port of ours on the loopback
    interface. Nothing passes while this process is stopped, and datagrams that waited are dropped once it is too late.
    """
    time_left = limit()
    if time_left is None:
        yield host, port
        return
    relay = _Relay(host, port, time_left)
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

    def __init__(self, host: str, port: int, time_left: TimeLeft) -> None:
        self._time_left = time_left
        self.too_late = False
        # Numeric resolution by the system: it understands the zone of a link-local address.
        places = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        family, kind, _, _, place = places[0]
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
            for sock in (self._near, self._far, stopped):
                selector.register(sock, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if stopped in ready or (self._near in ready and not self._pass_on()):
                    return
                if self._far in ready:
                    answer = self._far.recv(_MAX_DATAGRAM_BYTES)
                    if self._peer is not None:
                        self._near.sendto(answer, self._peer)

    def _pass_on(self) -> bool:
        datagram, self._peer = self._near.recvfrom(_MAX_DATAGRAM_BYTES)
        if self._time_left() <= 0:
            self.too_late = True
            return False
        self._far.send(datagram)
        return True
