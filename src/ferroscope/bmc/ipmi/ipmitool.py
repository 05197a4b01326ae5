"""ipmitool as a subprocess: one command, by a deadline, with the password in no process list.

The password goes through a pipe that only the child inherits, the key Kg through its standard
input: they are in no argument, no environment and no file. What ipmitool says becomes the port's
error; see the failure matrix in docs/explanation/bmc-failures.md, which states the same.
"""

from __future__ import annotations

import os
import subprocess
from typing import Final

from ferroscope.bmc.ipmi.info import Access
from ferroscope.bmc.ipmi.relay import relayed
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from ferroscope.core.values import MASK, WITHHELD, is_too_short

PROGRAM: Final = "ipmitool"
_MAX_MESSAGE: Final = 200
# One packet a second, a lost one is sent three more times: ipmitool's own patience, below ours.
_PATIENCE: Final = ("-N", "1", "-R", "3")
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}

_REJECTED: Final = (
    "hmac is invalid",
    "unauthorized name",
    "unauthorized role",
    "invalid user name",
    "password invalid",
)
# The user and the password are right, and yet the session's keys differ.
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
    """The BMC does not know the cipher suite."""


def run(access: Access, cipher: int, words: tuple[str, ...], what: str, seconds: float) -> str:
    """Return what ipmitool prints for the command ``words``; ``BmcError``, ``TooLateError``."""
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
            start_new_session=True,  # it would ask a terminal for the key, if it had one
            capture_output=True,
            timeout=seconds,
            pass_fds=[reading],
            env=_ENVIRONMENT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failure(access, what, f"no answer within {seconds:.1f} s", Reason.BMC_UNREACHABLE) from None
    except FileNotFoundError:
        message = f"the ipmi driver needs the program {PROGRAM}; on Debian: apt-get install ipmitool"
        raise BmcError(message, transient=False, reason=Reason.DRIVER_INCOMPLETE) from None
    finally:
        os.close(reading)
    if done.returncode != 0:
        raise _judged(access, what, done.stderr.decode(errors="replace"))
    return done.stdout.decode(errors="replace")


def _judged(access: Access, what: str, said: str) -> BmcError:
    lowered = said.lower()
    if any(words in lowered for words in _REJECTED):
        return _failure(access, what, "the credentials were rejected", Reason.BMC_CREDENTIALS)
    if _OTHER_KEY in lowered:
        return _failure(access, what, "the BMC has another key Kg; correct ipmi_hex_kg_key", Reason.BMC_CREDENTIALS)
    if any(words in lowered for words in _NO_SUCH_CIPHER):
        message = f"{what} at {access.host}: the BMC does not know the cipher suite; set ipmi_cipher_suite"
        return CipherError(message, transient=False, reason=Reason.BMC_REFUSED)
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Loading IANA")]
    last = lines[-1] if lines else "ipmitool failed without a word"
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
