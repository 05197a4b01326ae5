"""DHCPv6 as it is on the wire: the SOLICIT of a firmware or of iPXE, and the options of an answer.

Sources: RFC 8415; RFC 5970 for a client's architecture and the boot file's URL. Firmware that boots over HTTP asks for
the vendor class as well, as EDK II does.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

_SOLICIT: Final = 1
_CLIENT, _IA_NA, _REQUESTED, _ELAPSED, _USER_CLASS, _ARCHITECTURE = 1, 3, 6, 8, 15, 61
VENDOR_CLASS: Final = 16
BOOT_FILE: Final = 59
_PARAMETERS: Final = 60


def solicit(mac: str, *, arch: int | None, user_class: str, xid: bytes) -> bytes:
    """Return the message; ``arch`` is of IANA's register, ``xid`` has three bytes."""
    message = bytes([_SOLICIT]) + xid
    message += _option(_CLIENT, b"\0\3\0\1" + bytes.fromhex(mac.replace(":", "")))
    message += _option(_IA_NA, struct.pack("!III", 7, 0, 0)) + _option(_ELAPSED, b"\0\0")
    message += _option(_REQUESTED, struct.pack("!HHH", BOOT_FILE, _PARAMETERS, VENDOR_CLASS))
    if arch is not None:
        message += _option(_ARCHITECTURE, struct.pack("!H", arch))
    if user_class:
        message += _option(_USER_CLASS, struct.pack("!H", len(user_class)) + user_class.encode())
    return message


def ask(link: str, message: bytes, *, seconds: float) -> dict[int, bytes] | None:
    """Send it to all servers on a link of this thread's namespace; return the first answer's options, or None."""
    until = time.monotonic() + seconds
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
        client.bind(("::", 546))
        client.sendto(message, ("ff02::1:2", 547, 0, socket.if_nametoindex(link)))
        while (left := until - time.monotonic()) > 0:
            client.settimeout(left)
            try:
                answer = client.recv(4096)
            except TimeoutError:
                break
            if answer[1:4] == message[1:4]:
                return _options(answer[4:])
    return None


def _option(code: int, data: bytes) -> bytes:
    return struct.pack("!HH", code, len(data)) + data


def _options(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while len(data) >= 4:
        code, length = struct.unpack_from("!HH", data)
        found[code], data = data[4 : 4 + length], data[4 + length :]
    return found
